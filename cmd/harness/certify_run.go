package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/certify"
	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// run does what the options ask for.
func (o *certifyOptions) run(ctx context.Context) (err error) {
	if o.show {
		return o.printSuite()
	}
	c, err := certify.Prepare(ctx, o.Options)
	if err != nil {
		return err
	}
	if c.Fabric != nil {
		defer func() { err = c.Fabric.Finish(err) }()
	}
	failed, err := o.failedBefore(ctx)
	if err != nil {
		return err
	}
	baseline := func() (err error) { c.Baseline, err = o.baseline.read(ctx); return err }
	for _, step := range []func() error{baseline, func() error { return c.Repeat(ctx, failed, true) }} {
		if err := step(); err != nil {
			return err
		}
	}
	if o.List {
		return o.printList(c)
	}
	if o.site.named() && !c.Long() {
		return exit.Usagef("--slurm, --kubernetes: the suite %s says nothing about this machine: name one that does, such as --suite quick", c.Name())
	}
	if o.as.given() && (!c.Long() || c.Fabric != nil) {
		return exit.Usagef("--as %s: the verdict is about one machine: name a suite about machines, such as --suite quick, and start it once (of several machines, harness report --as --machine NAME reads it from their certificate)", o.as.name)
	}
	// Check what is needed at the end before anything runs.
	site := func() error { return o.site.check(ctx) }
	for _, check := range []func() error{o.sign.check, o.push.check, site} {
		if err := check(); err != nil {
			return err
		}
	}
	if err := c.Repeat(ctx, o.site.failed(ctx), false); err != nil {
		return err
	}
	return o.certify(ctx, c)
}

// certify runs the checks and writes all requested output.
func (o *certifyOptions) certify(ctx context.Context, c *certify.Certification) error {
	var dir *outfile.Dir
	said, before := o.stderr, o.lastWritten()
	if !c.First() { // it writes and records nothing, unless it becomes the first
		said, c.Baseline = io.Discard, certify.Baseline{}
	} else if o.Dir != "" {
		var err error
		if dir, err = outfile.OpenDir(o.Dir); err != nil {
			return outFailed(o.Dir, err)
		}
		defer dir.Close()
	}
	if c.First() {
		for _, file := range []string{o.out, o.inventory} {
			if err := checkOut(file); err != nil {
				return err
			}
		}
	}
	defer c.Close()
	if c.Long() {
		fmt.Fprintln(said, "harness:", duration(c))
	}
	progress, clear := newProgress(said, c.Long())
	st, joint, err := c.Run(ctx, progress.Observe)
	clear()
	if err != nil {
		return err
	}
	if c.Fabric != nil {
		return o.certifyAll(ctx, c, st, joint, dir, before)
	}
	if err := o.publish(ctx, c, st, dir); err != nil {
		return errors.Join(err, o.site.actOn(ctx, st)) // a full disk must not keep a bad node in use
	}
	c.Done()
	told := o.site.actOn(ctx, st)
	if err := c.Verdict(st); err != nil {
		if told != nil {
			fmt.Fprintln(o.stderr, "harness:", told)
		}
		return err // the verdict's status overrides the site's error
	}
	return told
}

// publish writes the certificate to all requested destinations.
func (o *certifyOptions) publish(ctx context.Context, c *certify.Certification, st *certificate.Statement, dir *outfile.Dir) error {
	doc, err := st.Marshal()
	if err != nil {
		return err
	}
	signed := doc
	if o.sign.key != "" {
		if signed, err = o.sign.sign(ctx, doc); err != nil {
			return err
		}
	}
	if err := o.write(c, st, doc, signed, dir); err != nil {
		return err
	}
	if o.push.to == "" {
		return nil
	}
	ref, err := o.push.push(ctx, signed, st)
	if err != nil {
		return exit.With(exit.NotDone, fmt.Errorf("--push %s: %w (harness push sends what was written)", o.push.to, err))
	}
	fmt.Fprintln(o.stderr, "harness: pushed", ref)
	return nil
}

// write writes the requested documents. It writes stdout last, so that what stdout says
// is already true.
func (o *certifyOptions) write(c *certify.Certification, st *certificate.Statement, doc, signed []byte, dir *outfile.Dir) error {
	if c.Fabric != nil {
		if err := c.Fabric.Stopped(); err != nil { // another machine writes
			return exit.With(exit.NotDone, err)
		}
	}
	if o.out != "" {
		if err := outfile.Write(o.out, signed); err != nil {
			return err
		}
	}
	if dir != nil {
		files, err := report.Render([]report.Document{{Statement: st}}, report.TextOptions{Verbose: true}, report.Forms...)
		if err != nil {
			return err
		}
		if o.sign.key != "" {
			files["certificate.dsse.json"] = signed
		}
		if err := dir.Write(files); err != nil {
			return outFailed(dir.Name, err)
		}
	}
	if o.inventory != "" {
		inv, err := image.Inventory(c.Env.Root)
		if err != nil {
			return err
		}
		b, err := inv.Marshal()
		if err != nil {
			return err
		}
		if err := outfile.Write(o.inventory, b); err != nil {
			return err
		}
	}
	switch {
	case o.as.given():
		return o.as.write(o.stdout, st)
	case o.format == "json":
		return writeIndented(words.Raw(o.stdout), doc)
	}
	return report.Text(painted(o.stdout), st, report.TextOptions{
		Color: colored(o.stdout), Width: columns(o.stdout), Verbose: o.verbose, Hide: func(r result.Result) bool { return c.Deselected(r.ID) },
	})
}

// duration states how long a run takes before it begins.
func duration(c *certify.Certification) string {
	text := fmt.Sprintf("%s: %s", c.Name(), words.Count(len(c.Checks), "check"))
	if c.Fabric != nil {
		text += fmt.Sprintf(" on %s", words.Count(c.Fabric.Size(), "machine"))
	} else if c.Machines > 1 {
		text += fmt.Sprintf(" on %s", words.Count(c.Machines, "machine"))
	}
	about, most := c.Expected()
	if about >= time.Second {
		text += ", about " + rounded(about)
	}
	if most > 0 {
		text += ", at most " + rounded(most)
	}
	return text
}

// rounded is a duration in seconds, or in minutes where it is long.
func rounded(d time.Duration) string {
	if d < 2*time.Minute {
		return words.Count(int(d.Round(time.Second)/time.Second), "second")
	}
	return words.Count(int(d.Round(time.Minute)/time.Minute), "minute")
}

func writeIndented(w io.Writer, doc []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, doc, "", "  "); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// printSuite prints the file of a suite that comes with the harness.
func (o *certifyOptions) printSuite() error {
	name := o.Chosen()
	text, err := node.Text(name)
	if err != nil {
		return exit.Usagef("--show: the suite %q is not a file that comes with the harness (these are %s)", name, strings.Join(node.Names(), ", "))
	}
	_, err = o.stdout.Write(text)
	return err
}

func (o *certifyOptions) printList(c *certify.Certification) error {
	if o.format == "json" {
		type item struct {
			ID        string   `json:"id"`
			Component string   `json:"component,omitempty"`
			Title     string   `json:"title"`
			Needs     []string `json:"needs,omitempty"`
			Seconds   float64  `json:"seconds,omitempty"` // that it usually takes
		}
		items := []item{}
		for _, k := range c.Checks {
			items = append(items, item{k.ID, k.Component, k.Title, k.Needs, k.About.Seconds()})
		}
		about, most := c.Expected()
		return writeJSON(o.stdout, map[string]any{"version": 1, "suite": c.Name(), "seconds": about.Seconds(), "limit": most.Seconds(), "checks": items})
	}
	for _, k := range c.Checks {
		if _, err := fmt.Fprintf(o.stdout, "%-32s %s\n", k.ID, k.Title); err != nil {
			return err
		}
	}
	if c.Long() {
		fmt.Fprintln(o.stderr, "harness:", duration(c))
	}
	return nil
}
