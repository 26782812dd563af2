// Upstreams maintains docs/upstreams.json, which records the components that were executed on
// their real source, with the image and date, and generates docs/upstreams.md from it. A record
// is made from the layout and the log of a build. The certificate of its image must be a pass,
// for exactly the recipe that matrix.yaml and matrix.lock give.
//
//	assay build TARGET… --progress plain 2> build.log
//	go run ./build/e2e/upstreams -layout out -log build.log TARGET…
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
	log := flag.String("log", "", "file with the build's --progress plain")
	standin := flag.Bool("standin", false, "the layout's images were built of stand-ins")
	flag.Parse()
	if err := compareUpstreams(*layout, *log, *standin, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "upstreams:", err)
		os.Exit(1)
	}
}

func compareUpstreams(layout, log string, standin bool, targets []string) error {
	w, err := driver.Open(driver.Options{Matrix: "matrix.yaml"})
	if err != nil {
		return err
	}
	rec, err := read(recordFile)
	if err != nil {
		return err
	}
	if layout != "" {
		steps, err := readLog(log)
		if err != nil {
			return err
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
	i := slices.IndexFunc(w.Targets, func(t target) bool { return t.Name == name })
	if i < 0 {
		return nil, errors.New("matrix.yaml has no such target")
	}
	t := w.Targets[i]
	images, err := imagesOf(layout, name)
	if err != nil {
		return nil, err
	}
	var runs []Run
	for _, img := range images {
		p, err := platform(img.Platform)
		if err != nil {
			return nil, err
		}
		res, err := w.Recipe(t, p, p)
		if err != nil {
			return nil, err
		}
		if have := img.Certificate.Recipe; have != res.Recipe.Declared() {
			return nil, fmt.Errorf("the image's recipe is %s, the matrix's %s: build it anew", have, res.Recipe.Declared())
		}
		r := runOf(name, img)
		for _, c := range res.Recipe.Components {
			out := Component{Name: c.Name, Version: c.Version, Sources: c.Sources, Checks: len(c.Checks)}
			for _, name := range sortedKeys(steps) {
				if strings.Contains(name, "["+c.Name+"-"+c.Version+"-") {
					out.Steps = append(out.Steps, Step{name, steps[name]})
				}
			}
			r.Components = append(r.Components, out)
		}
		runs = append(runs, r)
	}
	return runs, nil
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
)

// readLog returns the seconds of each step that the log shows as completed. Steps that came from
// the cache are not included.
func readLog(file string) (map[string]float64, error) {
	steps := map[string]float64{}
	if file == "" {
		return steps, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
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
		}
	}
	return steps, nil
}
