// Upstreams maintains docs/upstreams.json, which records the components that were executed on
// their real source, with the image and date, and generates docs/upstreams.md from it. A record
// is made from the layout and the log of a build. The certificate of its image must be a pass,
// for exactly the recipe that matrix.yaml and matrix.lock give. For an image that was built on
// another machine, the certificate of a node that ran it takes the layout's place; the log says
// that the image passed its gate.
//
//	assay build TARGET… --progress plain 2> build.log
//	go run ./build/e2e/upstreams -layout out -log build.log TARGET…
//	go run ./build/e2e/upstreams -certificate certificate.json -log build.log
//	go run ./build/e2e/upstreams             # rewrites the document
//
// TestStandinMatrix records what is built from stand-ins, when it is told to update its data:
//
//	ASSAY_TEST_ALL=1 go test ./build/e2e -run TestStandinMatrix -args -update
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/inspect"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

const (
	recordFile   = "docs/upstreams.json"
	documentFile = "docs/upstreams.md"
)

// A Record is what was executed, newest last, and notes on components for which the real source
// is not available here.
type Record struct {
	Runs  []Run             `json:"runs"`
	Notes map[string]string `json:"notes"` // by component: what was checked instead
}

// A Run is one image that was built and passed its gate.
type Run struct {
	Date       string      `json:"date"` // 2026-11-23
	Target     string      `json:"target"`
	Platform   string      `json:"platform"`
	Image      string      `json:"image"`             // digest of the platform's manifest
	Recipe     string      `json:"recipe"`            // SHA-256
	Standin    bool        `json:"standin,omitempty"` // its sources were stand-ins
	Components []Component `json:"components"`
}

// A Component is one part of the image.
type Component struct {
	Name    string                 `json:"name"`
	Version string                 `json:"version"`
	Sources []certificate.Download `json:"sources,omitempty"` // none: packages of the distribution
	Steps   []Step                 `json:"steps,omitempty"`   // as the log shows
	Checks  int                    `json:"checks"`            // number that passed in the image
}

// A Step is one that the build executed, according to BuildKit's log.
type Step struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

func main() {
	layout := flag.String("layout", "", "layout with the images to record")
	node := flag.String("certificate", "", "certificate of a node, in place of the layout")
	log := flag.String("log", "", "file with the build's --progress plain")
	standin := flag.Bool("standin", false, "the layout's images were built of stand-ins")
	flag.Parse()
	if err := compareUpstreams(*layout, *node, *log, *standin, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "upstreams:", err)
		os.Exit(1)
	}
}

func compareUpstreams(layout, node, log string, standin bool, targets []string) error {
	w, err := driver.Open(driver.Options{Matrix: "matrix.yaml"})
	if err != nil {
		return err
	}
	rec, err := read(recordFile)
	if err != nil {
		return err
	}
	if layout != "" || node != "" {
		steps, passed, err := readLog(log)
		if err != nil {
			return err
		}
		if node != "" {
			r, err := recordNode(w, node, steps, passed)
			if err != nil {
				return fmt.Errorf("%s: %w", node, err)
			}
			rec.add(r)
		}
		for _, name := range targets {
			var runs []Run
			if standin {
				runs, err = recordStandin(layout, name)
			} else {
				runs, err = record(w, layout, name, steps)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, r := range runs {
				rec.add(r)
			}
		}
		text, err := json.MarshalIndent(rec, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(recordFile, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(documentFile, []byte(render(rec, w.Targets)), 0o644)
}

func read(file string) (*Record, error) {
	rec := &Record{Notes: map[string]string{}}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, rec); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return rec, nil
}

// add adds a run and replaces an earlier one of the same image. A step that this run took from
// the cache keeps the time of the run that executed it.
func (rec *Record) add(r Run) {
	for i, c := range r.Components {
		if len(c.Steps) > 0 || r.Standin {
			continue
		}
		for _, old := range rec.Runs {
			for _, o := range old.Components {
				if o.Name == c.Name && o.Version == c.Version && slices.Equal(o.Sources, c.Sources) && len(o.Steps) > 0 {
					r.Components[i].Steps = o.Steps
				}
			}
		}
	}
	same := func(o Run) bool {
		return o.Target == r.Target && o.Platform == r.Platform && o.Standin == r.Standin
	}
	rec.Runs = append(slices.DeleteFunc(rec.Runs, same), r)
}

// record reads one target of a layout.
func record(w *driver.Workspace, layout, name string, steps map[string]float64) ([]Run, error) {
	images, err := imagesOf(layout, name)
	if err != nil {
		return nil, err
	}
	var runs []Run
	for _, img := range images {
		r, err := complete(w, runOf(name, img), steps)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// recordNode reads the certificate that a node gave itself in an image, for an image that passed its gate.
func recordNode(w *driver.Workspace, file string, steps map[string]float64, passed []string) (Run, error) {
	doc, err := certificate.ReadFile(file)
	if err != nil {
		return Run{}, err
	}
	st, err := certificate.Parse(doc)
	if err != nil {
		return Run{}, err
	}
	p := st.Predicate
	if p.Verdict != result.Pass {
		return Run{}, fmt.Errorf("its verdict is %s", p.Verdict)
	}
	i := slices.IndexFunc(st.Subject, func(s certificate.Subject) bool { return slices.Contains(passed, "sha256:"+s.Digest["sha256"]) })
	if i < 0 {
		return Run{}, errors.New("the log does not say that the image passed its gate")
	}
	r := Run{Date: p.Started.UTC().Format(time.DateOnly), Target: p.Environment.Target, Platform: p.Environment.Platform, Recipe: p.Environment.Recipe}
	r.Image = "sha256:" + st.Subject[i].Digest["sha256"]
	return complete(w, r, steps)
}

// complete adds the components of a run, whose recipe must be that of the matrix.
func complete(w *driver.Workspace, r Run, steps map[string]float64) (Run, error) {
	i := slices.IndexFunc(w.Targets, func(t target) bool { return t.Name == r.Target })
	if i < 0 {
		return Run{}, errors.New("matrix.yaml has no such target")
	}
	p, err := platform(r.Platform)
	if err != nil {
		return Run{}, err
	}
	res, err := w.Recipe(w.Targets[i], p, p)
	if err != nil {
		return Run{}, err
	}
	if want := res.Recipe.Declared(); r.Recipe != want {
		return Run{}, fmt.Errorf("the image's recipe is %s, the matrix's %s: build it anew", r.Recipe, want)
	}
	for _, c := range res.Recipe.Components {
		out := Component{Name: c.Name, Version: c.Version, Sources: c.Sources, Checks: len(c.Checks)}
		for _, name := range sortedKeys(steps) {
			if strings.Contains(name, "["+c.Name+"-"+c.Version+"-") {
				out.Steps = append(out.Steps, Step{name, steps[name]})
			}
		}
		r.Components = append(r.Components, out)
	}
	return r, nil
}

// imagesOf returns the images of a target. Each must have all its documents, and each document
// must be about the image and be a pass.
func imagesOf(layout, name string) ([]inspect.Image, error) {
	src, err := oci.OpenSource("oci:"+layout+":"+name, oci.Options{})
	if err != nil {
		return nil, err
	}
	rep, err := inspect.Inspect(context.Background(), src, attest.Policy{Target: name, Required: inspect.All})
	if err != nil {
		return nil, err
	}
	return rep.Images, nil
}

func runOf(name string, img inspect.Image) Run {
	return Run{Date: time.Now().UTC().Format(time.DateOnly), Target: name, Platform: img.Platform, Image: img.Digest, Recipe: img.Certificate.Recipe}
}

// recordStandin reads one target of a layout. It takes the contents from the image's documents:
// the stand-ins' checksums are not in a permanent lock.
func recordStandin(layout, name string) ([]Run, error) {
	images, err := imagesOf(layout, name)
	if err != nil {
		return nil, err
	}
	var runs []Run
	for _, img := range images {
		r := runOf(name, img)
		r.Standin = true
		for _, c := range img.Components {
			r.Components = append(r.Components, Component{Name: c.Name, Version: c.Version})
		}
		runs = append(runs, r)
	}
	return runs, nil
}

var (
	named = regexp.MustCompile(`^#(\d+) (\[.*)$`)
	done  = regexp.MustCompile(`^#(\d+) DONE ([0-9.]+)s$`)
	gated = regexp.MustCompile(`^linux/\w+ +(sha256:[0-9a-f]{64}) \(certificate: pass\)$`)
)

// readLog returns the seconds of each step that the log shows as completed, and the digests of the
// images that passed their gates. Steps that came from the cache are not included.
func readLog(file string) (steps map[string]float64, passed []string, err error) {
	steps = map[string]float64{}
	if file == "" {
		return steps, nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	names := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := named.FindStringSubmatch(line); m != nil {
			names[m[1]] = m[2]
		} else if m := done.FindStringSubmatch(line); m != nil && names[m[1]] != "" {
			if s, err := strconv.ParseFloat(m[2], 64); err == nil {
				steps[names[m[1]]] = s
			}
		} else if m := gated.FindStringSubmatch(line); m != nil {
			passed = append(passed, m[1])
		}
	}
	return steps, passed, nil
}
