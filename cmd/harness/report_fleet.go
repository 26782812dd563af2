package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/fleet"
	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/harness/registry"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/words"
)

// A fleetReader collects the certificates of a fleet. It keeps them whole as long as there is one
// machine, or where all are rendered.
type fleetReader struct {
	*fleet.Collector
	all     bool   // keep all
	machine string // keep those of this machine alone
	kept    []*certificate.Statement
	names   []string
}

// Add implements [registry.Sink].
func (r *fleetReader) Add(st *certificate.Statement) {
	r.Collector.Add(st)
	r.keep(st)
	if !r.all && r.machine == "" && r.Nodes() > 1 {
		r.kept = nil
	}
}

func (r *fleetReader) keep(st *certificate.Statement) {
	for _, m := range st.Predicate.Machines {
		if m.Certificate != nil {
			r.keep(m.Certificate)
		}
	}
	if n := st.Predicate.Node; r.machine != "" && n != nil && n.Name != r.machine {
		r.names = append(r.names, n.Name)
		return
	}
	if r.machine == "" || st.Predicate.Node != nil {
		r.kept = append(r.kept, st)
	}
}

// latest returns the latest certificate of each subject and suite, and the earlier ones.
func (r *fleetReader) latest() (latest, earlier []*certificate.Statement) {
	key := func(st *certificate.Statement) string {
		p := &st.Predicate
		if p.Node != nil {
			return p.Suite + " node:" + p.Node.Name
		}
		return fmt.Sprint(p.Suite, st.Subject)
	}
	slices.SortStableFunc(r.kept, func(a, b *certificate.Statement) int {
		return cmp.Or(strings.Compare(key(a), key(b)), b.Predicate.Finished.Compare(a.Predicate.Finished))
	})
	for i, st := range r.kept {
		if i == 0 || key(st) != key(r.kept[i-1]) {
			latest = append(latest, st)
		} else {
			earlier = append(earlier, st)
		}
	}
	return latest, earlier
}

// fleet writes one page of the certificates of many machines; of one machine alone, its own page.
func (o *reportOptions) fleet(ctx context.Context, places []string, out io.Writer) error {
	keys, err := loadKeys(ctx, o.keys.Value())
	if err != nil {
		return err
	}
	expected, err := o.expected()
	switch {
	case err != nil:
		return err
	case o.maxAge < 0:
		return exit.Usagef("--max-age %v is less than 0", o.maxAge)
	case len(o.history.Value()) > 0:
		return exit.Usagef("--history belongs to one certificate; in a directory or a repository earlier certificates are found")
	case o.format != "":
		if _, err := report.LookupForm(o.format); err != nil {
			return err
		}
	}
	whole := o.format == "junit" || o.format == "prometheus"
	c := &fleetReader{Collector: fleet.NewCollector(), all: whole, machine: o.machine}
	stdin := o.src.stdin
	if stdin == nil {
		stdin = os.Stdin
	}
	r := registry.Reader{To: c, Keys: keys, Options: registryOptions(o.src.insecure), Stdin: stdin}
	for _, where := range places {
		if err := r.Read(ctx, where); err != nil {
			return err
		}
	}
	r.Summary(o.stderr)
	if whole || o.machine != "" || c.Nodes() < 2 && expected == nil {
		return o.single(c, r.Seen(), out)
	}
	return o.writeFleet(c.Fleet(fleet.Options{Now: time.Now(), MaxAge: o.maxAge, Expected: expected}), out)
}

// single writes certificates in full: the latest ones, the first with the earlier ones.
func (o *reportOptions) single(c *fleetReader, seen int, out io.Writer) error {
	latest, earlier := c.latest()
	switch {
	case len(latest) == 0 && o.machine != "" && len(c.names) > 0:
		return exit.Usagef("--machine: there is no %q; did you mean %q?", o.machine, words.Nearest(o.machine, c.names))
	case len(latest) == 0:
		return exit.With(exit.NotDone, fmt.Errorf("none of the %d files is a readable certificate", seen))
	}
	form, err := report.LookupForm(cmp.Or(o.format, "text"))
	if err != nil {
		return err
	}
	forms := []report.Form{form}
	if o.format == "" && isDir(o.output) {
		forms = report.Forms
	}
	if slices.ContainsFunc(forms, func(f report.Form) bool { return f.Format == "html" }) { // a page has one: that with the most checks
		_, first := history.Subject(latest[0])
		if slices.ContainsFunc(latest, func(st *certificate.Statement) bool { _, digest := history.Subject(st); return digest != first }) {
			return exit.Usagef("a page shows one machine or image, not %d: name one CERTIFICATE, or another --format", len(latest))
		}
		slices.SortStableFunc(latest, func(a, b *certificate.Statement) int { return len(b.Predicate.Results) - len(a.Predicate.Results) })
		latest = latest[:1]
	}
	var docs []report.Document
	for _, st := range latest {
		docs = append(docs, report.Document{Statement: st})
	}
	docs[0].History = earlier
	return o.pages(docs, forms, out)
}

// writeFleet writes a fleet in one format, or all into a directory.
func (o *reportOptions) writeFleet(f *fleet.Fleet, out io.Writer) error {
	made := map[string][]byte{}
	for _, form := range report.FleetForms {
		switch wanted := cmp.Or(o.format, "text"); {
		case o.output == "" && form.Format == wanted:
			if form.Format != "text" {
				out = words.Raw(out)
			}
			return form.Write(painted(out), f, textOptions(out))
		case form.Format != wanted && (o.format != "" || !isDir(o.output)):
			continue
		}
		var b bytes.Buffer
		if err := form.Write(&b, f, report.TextOptions{}); err != nil {
			return err
		}
		made[form.File] = b.Bytes()
	}
	return o.store(made)
}

// expected reads --nodes: a file, or a list.
func (o *reportOptions) expected() (*fleet.Expected, error) {
	if o.nodes == "" {
		return nil, nil
	}
	name, text := "--nodes", o.nodes
	const most = 16 << 20
	b, err := infile.ReadArgument(o.nodes, most)
	switch {
	case err == nil:
		name, text = o.nodes, string(b)
	case !errors.Is(err, fs.ErrNotExist) || strings.Contains(o.nodes, "/"):
		return nil, exit.Usagef("--nodes: %w", err)
	}
	e, err := fleet.ParseExpected(name, text)
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return e, nil
}
