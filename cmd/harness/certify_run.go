package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/harness/version"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/plain"
)

// A certification is a suite and what it runs on.
type certification struct {
	suite  *suite.Suite
	file   *suite.File // nil: the suite image
	env    *suite.Env
	spec   *certificate.ImageSpec
	node   *certificate.Node // nil: the suite is not about the machine
	fabric *fabric.Fabric    // nil: no other machines
	checks []suite.Check
}

// first reports whether this process represents all machines.
func (c *certification) first() bool { return c.fabric == nil || c.fabric.Rank() == 0 }

// together reports whether all machines run a check together.
func (c *certification) together(id string) bool {
	return slices.ContainsFunc(c.checks, func(k suite.Check) bool { return k.ID == id && slices.Contains(k.Uses, node.UseJob) })
}

// run does what the options ask for.
func (o *certifyOptions) run(ctx context.Context) (err error) {
	if o.show {
		return o.printSuite()
	}
	c, err := o.prepare(ctx)
	if err != nil {
		return err
	}
	if c.fabric != nil {
		defer func() { err = leaveFabric(c.fabric, err) }()
	}
	if err := o.matchesAny(c.checks); err != nil {
		return err
	}
	if o.list {
		return o.printList(c)
	}
	// Check what is needed at the end before anything runs.
	site := func() error { return o.site.check(ctx) }
	for _, check := range []func() error{o.baseline.check, o.sign.check, o.push.check, site} {
		if err := check(); err != nil {
			return err
		}
	}
	return o.certify(ctx, c)
}

// prepare determines what to check, and on what.
func (o *certifyOptions) prepare(ctx context.Context) (*certification, error) {
	env, err := o.environment()
	if err != nil {
		return nil, err
	}
	c := &certification{env: env}
	var specErr error
	c.spec, specErr = image.ReadSpec(env.Root, o.spec)
	if specErr != nil && o.spec != "" {
		return nil, exit.Usagef("--spec %s: %w", o.spec, specErr)
	}
	if c.spec != nil && !env.Root.Native() {
		env.Platform = c.spec.Platform
	}
	self, _ := os.Executable() // fails without /proc; the check that needs it says so
	cfg := image.Config{Spec: c.spec, Unbelieved: o.spec == certificate.NoSpec, SpecErr: specErr, Version: version.Get().Version, Self: self}
	name := o.chosen()
	var machine *node.Config
	if name == imageSuite {
		s := image.Suite(cfg)
		c.suite = &s
	} else if machine, err = o.prepareMachine(ctx, c, name, cfg); err != nil {
		return nil, err
	}
	c.checks, err = c.suite.Checks(ctx, env)
	if err != nil {
		if c.file != nil {
			return nil, exit.Usagef("--suite: %w", err)
		}
		return nil, err
	}
	// Report what would make the certificate invalid before anything runs.
	if err := (&certificate.Predicate{Suite: c.suite.Name, Node: c.node, Results: []result.Result{}}).Validate(); err != nil {
		return nil, exit.Usagef("a certificate of this cannot be written: %w (a machine's name is NODE_NAME, SLURMD_NODENAME or the host's)", err)
	}
	if machine != nil && !o.list && slices.ContainsFunc(c.checks, func(k suite.Check) bool { return slices.Contains(k.Uses, node.UseJob) }) {
		if err := o.joinMachines(ctx, c, machine); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// joinMachines connects the machines that run checks together.
func (o *certifyOptions) joinMachines(ctx context.Context, c *certification, machine *node.Config) (err error) {
	if c.fabric, err = o.fabric.join(ctx, c.node.Name, o.stderr); err != nil || c.fabric == nil {
		return err
	}
	if o.resume {
		return exit.Usagef("--resume is for one machine: of several it is not known where each was")
	}
	machine.Job = c.fabric
	o.jobs = 1 // all machines must run their joint checks in the same order
	return nil
}

// prepareMachine is prepare for a suite that is about the machine.
func (o *certifyOptions) prepareMachine(ctx context.Context, c *certification, name string, cfg image.Config) (*node.Config, error) {
	if !c.env.Root.Native() {
		return nil, exit.Usagef("--root: the suite %s is about the machine that this runs on", name)
	}
	if _, err := o.suiteFile(name); err != nil { // before drivers are queried
		return nil, err
	}
	id := identified(ctx, runChild)
	machine, err := o.config(id)
	if err != nil {
		return nil, err
	}
	c.node = &id.Node
	c.suite, c.file, err = o.aboutMachine(name, machine, imageKind(c.env, cfg))
	return machine, err
}

// certify runs the checks and writes all requested output.
func (o *certifyOptions) certify(ctx context.Context, c *certification) error {
	var dir *outputDir
	if !c.first() {
		o.silence()
	}
	if o.output != "" {
		var err error
		if dir, err = openOutput(o.output); err != nil {
			return err
		}
		defer dir.close()
	}
	started := time.Now()
	notes, err := o.openNotes(c, started)
	if err != nil {
		return err
	}
	defer notes.close()
	going, stop := ctx, func() {}
	if c.fabric != nil {
		going, stop = c.fabric.UntilGone(ctx)
	}
	results, err := o.runChecks(going, c, notes)
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = exit.With(exit.NotDone, errors.New("interrupted; no certificate was written"+notes.hint()))
	case going.Err() != nil:
		err = exit.With(exit.NotDone, context.Cause(going))
	}
	stop()
	if err != nil {
		return err
	}
	var together []result.Result
	if c.fabric != nil {
		results, together = c.apart(results)
	}
	st, err := o.statement(c, notes.started, results)
	if err != nil {
		return err
	}
	if c.fabric != nil {
		if st, err = o.ofAll(ctx, c, st, together, dir); err != nil || st == nil {
			return err
		}
	}
	if err := o.publish(ctx, c, st, dir); err != nil {
		return errors.Join(err, o.site.act(ctx, st)) // a full disk must not keep a bad node in use
	}
	notes.done()
	told := o.site.act(ctx, st)
	if err := o.verdict(st); err != nil {
		if told != nil {
			fmt.Fprintln(o.stderr, "harness:", told)
		}
		return err // the verdict's status overrides the site's error
	}
	return told
}

// publish writes the certificate to all requested destinations.
func (o *certifyOptions) publish(ctx context.Context, c *certification, st *certificate.Statement, dir *outputDir) error {
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
	if err := o.write(c.env, st, doc, signed, dir); err != nil {
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

// runChecks runs the checks within the suite's time limit.
func (o *certifyOptions) runChecks(ctx context.Context, c *certification, notes *notes) ([]result.Result, error) {
	if c.file != nil && c.file.Limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, c.file.Limit, fmt.Errorf("the suite's limit of %v", c.file.Limit))
		defer stop()
	}
	show := newProgress(o.stderr, c.file != nil)
	defer show.clear()
	return suite.Run(ctx, c.env, c.checks, suite.Options{
		Parallel: o.jobs, Timeout: o.timeout, Select: o.selected, Earlier: notes.earlier,
		Observe: func(e suite.Event) {
			show.observe(e)
			if e.Result != nil && ctx.Err() == nil {
				notes.add(e.Result)
			}
		},
	})
}

// statement creates the certificate.
func (o *certifyOptions) statement(c *certification, started time.Time, results []result.Result) (*certificate.Statement, error) {
	v := version.Get()
	p := certificate.Predicate{
		Suite: c.suite.Name, Started: started, Finished: time.Now(), Results: results, Node: c.node,
		Harness:     certificate.Harness{Version: v.Version, Commit: v.Commit},
		Environment: image.Describe(c.env.Root, c.spec),
	}
	p.Environment.Platform = c.env.Platform
	if r := o.baseline.result(p); r != nil {
		p.Results = append(p.Results, *r)
	}
	st := certificate.New(p)
	for _, subject := range o.subjects.Value() {
		name, digest, err := splitSubject(subject)
		if err == nil {
			err = st.AddSubject(name, digest)
		}
		if err != nil {
			return nil, err
		}
	}
	if c.node != nil {
		if err := st.SetNode(c.node); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// write writes the requested documents. It writes stdout last, so that what stdout says
// is already true.
func (o *certifyOptions) write(env *suite.Env, st *certificate.Statement, doc, signed []byte, dir *outputDir) error {
	if o.out != "" {
		if err := writeFile(o.out, signed); err != nil {
			return err
		}
	}
	if dir != nil {
		files, err := rendered([]document{{statement: st}}, renderings...)
		if err != nil {
			return err
		}
		if o.sign.key != "" {
			files["certificate.dsse.json"] = signed
		}
		if err := dir.write(files); err != nil {
			return err
		}
	}
	if o.inventory != "" {
		inv, err := image.Inventory(env.Root)
		if err != nil {
			return err
		}
		b, err := inv.Marshal()
		if err != nil {
			return err
		}
		if err := writeFile(o.inventory, b); err != nil {
			return err
		}
	}
	if o.format == "json" {
		return writeIndented(plain.Raw(o.stdout), doc)
	}
	return report.Text(painted(o.stdout), st, report.TextOptions{
		Color: colored(o.stdout), Width: columns(o.stdout), Verbose: o.verbose, Hide: func(r result.Result) bool { return o.deselected(r.ID) },
	})
}

func writeIndented(w io.Writer, doc []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, doc, "", "  "); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// verdict turns the certificate's verdict into the exit status.
func (o *certifyOptions) verdict(st *certificate.Statement) error {
	switch st.Predicate.Verdict {
	case result.Fail:
		return exit.With(exit.Fail, nil)
	case result.Error:
		return exit.With(exit.NotDone, nil)
	case result.Skip:
		return exit.With(exit.NotDone, errors.New("every check was skipped: nothing was shown"))
	}
	if !o.noSkip {
		return nil
	}
	for _, r := range st.Predicate.Results {
		if r.Verdict == result.Skip && !o.deselected(r.ID) {
			return exit.With(exit.Fail, fmt.Errorf("--no-skip: %s was skipped: %s", r.ID, r.Reason))
		}
	}
	return nil
}

// printSuite prints the file of a suite that comes with the harness.
func (o *certifyOptions) printSuite() error {
	name := o.chosen()
	text, err := node.Text(name)
	if err != nil {
		return exit.Usagef("--show: the suite %q is not a file that comes with the harness (these are %s)", name, strings.Join(node.Names(), ", "))
	}
	_, err = o.stdout.Write(text)
	return err
}

func (o *certifyOptions) printList(c *certification) error {
	if o.format == "json" {
		type item struct {
			ID        string   `json:"id"`
			Component string   `json:"component,omitempty"`
			Title     string   `json:"title"`
			Needs     []string `json:"needs,omitempty"`
		}
		items := []item{}
		for _, c := range c.checks {
			items = append(items, item{c.ID, c.Component, c.Title, c.Needs})
		}
		enc := json.NewEncoder(o.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"version": 1, "suite": c.suite.Name, "checks": items})
	}
	for _, c := range c.checks {
		if _, err := fmt.Fprintf(o.stdout, "%-32s %s\n", c.ID, c.Title); err != nil {
			return err
		}
	}
	return nil
}
