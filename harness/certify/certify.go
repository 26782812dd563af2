// Package certify makes certificates. It determines which suite is about this machine or image,
// prepares its checks and runs them, on several machines together, continues a run that was cut
// off, and compares figures with those of an earlier certificate. What becomes of a certificate is
// the caller's matter. Errors carry an exit status of package exit.
package certify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/harness/audit"
	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/confine"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/rootfs"
	"github.com/assay-hpc/assay/internal/version"
)

// Options say what is certified, and how.
type Options struct {
	Suite    string   // its name, or a file; "": what fits the machine
	Spec     string   // file of the image's declaration; "": the image's own; or certificate.NoSpec
	Root     string   // directory of the image; its programs run only for "/"
	Env      []string // of an image below another root, NAME=VALUE
	Subjects []string // NAME@sha256:…
	suite.Selection
	GPUs, Ports *int   // required numbers; nil: not specified
	Hardware    string // required platform; "": not specified
	Thresholds  string // the site's file of limits; "": none
	Machines    int    // that are planned, for a list; 0: this one
	Jobs        int    // checks at once
	Timeout     time.Duration
	NoSkip      bool // skipped checks count as failures
	Baseline    Baseline

	// Recall adds the earlier certificates of machines to what knows a certificate that is a failure, so
	// that reasons say how often something failed; nil: they do not.
	Recall func(context.Context, *history.Recall)

	// Dir is where a suite about the machine records its progress; "": nowhere. With Resume it
	// continues the run that was cut off there.
	Dir    string
	Resume bool

	// List is set if the checks will not run. Otherwise Join connects the machines of a job, of
	// which this one has the given name; it returns nil if there are no others.
	List bool
	Join func(ctx context.Context, name string) (*fabric.Fabric, error)
}

// Validate reports what is wrong with the options before anything is read.
func (o *Options) Validate() error {
	if o.Jobs < 1 || o.Timeout <= 0 {
		return exit.Usagef("--jobs and --timeout must be more than nothing")
	}
	for _, subject := range o.Subjects {
		if _, _, err := splitSubject(subject); err != nil {
			return err
		}
	}
	for _, kv := range o.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			return exit.Usagef("--env %q is not NAME=VALUE", kv)
		}
	}
	if err := suite.CheckPatterns(slices.Concat(o.Only, o.Skip)); err != nil {
		return exit.Usagef("%w (see certify --list)", err)
	}
	return nil
}

// splitSubject reads NAME@sha256:….
func splitSubject(s string) (name, digest string, err error) {
	i := strings.LastIndex(s, "@")
	if i < 0 {
		return "", "", exit.Usagef("--subject %q is not NAME@sha256:…", s)
	}
	name, digest = s[:i], s[i+1:]
	if err := new(certificate.Statement).SetSubject(name, digest); err != nil {
		return "", "", exit.Usagef("--subject: %w", err)
	}
	return name, digest, nil
}

// A Certification is a suite and what it runs on.
type Certification struct {
	Options
	Env    *suite.Env
	Fabric *fabric.Fabric // nil: no other machines
	Checks []suite.Check

	suite *suite.Suite
	file  *suite.File // nil: the suite image
	spec  *certificate.ImageSpec
	node  *certificate.Node // nil: the suite is not about the machine
	facts machine.Facts     // of that machine
	site  *health.SiteFile  // nil: the built-in limits alone
	notes *notes            // of this machine's own checks
	joint *notes            // at the first machine of a job: of those that all make together

	kinds  []suite.Kind
	after  []string      // checks that are repeated, because the machine failed by them
	longer time.Duration // that this takes at most
}

// Prepare determines what to check, and on what.
func Prepare(ctx context.Context, o Options) (*Certification, error) {
	env, err := o.environment()
	if err != nil {
		return nil, err
	}
	c := &Certification{Options: o, Env: env}
	var specErr error
	c.spec, specErr = image.ReadSpec(env.Root, o.Spec)
	if specErr != nil && o.Spec != "" {
		return nil, exit.Usagef("--spec %s: %w", o.Spec, specErr)
	}
	if c.spec != nil && !env.Root.Native() {
		env.Platform = c.spec.Platform
	}
	cfg := image.Config{Spec: c.spec, Unbelieved: o.Spec == certificate.NoSpec, SpecErr: specErr, Version: version.Get().Version}
	if env.Root.Native() {
		cfg.Runner = confine.Local{}
	}
	name := o.Chosen()
	if err := o.checkSubject(name); err != nil {
		return nil, err
	}
	var config *node.Config
	if name == image.Name {
		s := image.Suite(cfg)
		c.suite = &s
	} else if config, err = c.prepareMachine(ctx, name, cfg); err != nil {
		return nil, err
	}
	c.Checks, err = c.suite.Checks(ctx, env)
	if err != nil {
		if c.file != nil {
			return nil, exit.Usagef("--suite: %w", err)
		}
		return nil, err
	}
	// Report what would make the certificate invalid before anything runs.
	for _, k := range c.Checks {
		if slices.Contains(ownIDs, k.ID) {
			return nil, exit.Usagef("--suite: %s: the id %q is that of a result that certify adds itself; give the entry another id", name, k.ID)
		}
	}
	if err := (&certificate.Predicate{Suite: c.suite.Name, Node: c.node, Results: []result.Result{}}).Validate(); err != nil {
		return nil, exit.Usagef("a certificate of this cannot be written: %w (a machine's name is NODE_NAME, SLURMD_NODENAME or the host's)", err)
	}
	if err := c.Match(c.ids()); err != nil {
		return nil, exit.Usagef("%w (see certify --list)", err)
	}
	if config != nil && !o.List && slices.ContainsFunc(c.Checks, together) {
		return c, c.joinMachines(ctx, config)
	}
	return c, nil
}

// defaultPath is the PATH of a container that does not set it.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (o *Options) environment() (*suite.Env, error) {
	root, err := rootfs.Open(o.Root)
	if err != nil {
		return nil, exit.Usagef("--root: %w", err)
	}
	env := &suite.Env{
		Root: root, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Environ: append([]string{defaultPath}, o.Env...),
	}
	if root.Native() {
		if len(o.Env) > 0 {
			return nil, exit.Usagef("--env goes with --root: here the environment is the harness's own")
		}
		env.Environ = os.Environ()
	}
	return env, nil
}

// prepareMachine is Prepare for a suite that is about the machine.
func (c *Certification) prepareMachine(ctx context.Context, name string, cfg image.Config) (*node.Config, error) {
	if !c.Env.Root.Native() {
		return nil, exit.Usagef("--root: the suite %s is about the machine that this runs on", name)
	}
	var err error
	if c.file, err = suiteFile(name); err != nil { // before drivers are queried
		return nil, err
	}
	if c.Thresholds != "" {
		if c.site, err = health.ReadSiteFile(c.Thresholds); err != nil {
			return nil, exit.Usagef("--thresholds: %w", err)
		}
	}
	id := node.Identify(ctx, node.RunChild)
	config := &node.Config{Run: node.RunChild, Machine: id.Facts, Platform: c.Hardware, GPUs: c.GPUs, Ports: c.Ports, Machines: c.Machines}
	if c.site != nil {
		if config.Limits, err = c.site.Text(); err != nil {
			return nil, err
		}
	}
	c.node, c.facts = &id.Node, id.Facts
	about := c.predicate()
	config.Facts = about.Facts()
	c.kinds = append(config.Kinds(), image.Kind(c.Env, cfg), audit.Kind())
	s := c.file.Suite(suite.FileSuite(name), c.kinds)
	c.suite = &s
	return config, nil
}

// joinMachines connects the machines that run checks together.
func (c *Certification) joinMachines(ctx context.Context, config *node.Config) (err error) {
	if c.Fabric, err = c.Join(ctx, c.node.Name); err != nil || c.Fabric == nil {
		return err
	}
	config.Job = c.Fabric
	c.Jobs = 1 // all machines must run their joint checks in the same order
	return nil
}

// Name returns the suite's name.
func (c *Certification) Name() string { return c.suite.Name }

// Long reports whether the suite is about the machine: then it takes minutes.
func (c *Certification) Long() bool { return c.file != nil }

// First reports whether this process represents all machines. It may do so later, if the one that
// does is lost.
func (c *Certification) First() bool { return c.Fabric == nil || c.Fabric.First() }

// Expected returns how long the run usually takes, and how long at most; 0: not known.
func (c *Certification) Expected() (about, most time.Duration) {
	for _, k := range c.Checks {
		if c.Wants(k.ID) {
			about += k.About
		}
	}
	if c.file != nil {
		most = c.file.Limit + c.longer
	}
	return about, most
}

func (c *Certification) ids() (ids []string) {
	for _, k := range c.Checks {
		ids = append(ids, k.ID)
	}
	return ids
}

// Deselected reports whether the options left a check out.
func (c *Certification) Deselected(id string) bool {
	return !c.Wants(id) && !slices.Contains(ownIDs, id) // which are in no suite
}

// Wants reports whether the options want a check, or the machine failed by it before.
func (c *Certification) Wants(id string) bool {
	return c.Selection.Wants(id) || slices.Contains(c.after, id)
}

// Select is suite.Options.Select.
func (c *Certification) Select(k suite.Check) (wanted bool, reason string) {
	if slices.Contains(c.after, k.ID) {
		return true, ""
	}
	return c.Selection.Select(k)
}

// together reports whether all machines run a check together.
func together(c suite.Check) bool { return slices.Contains(c.Uses, node.UseJob) }

// apart separates a machine's own results from those of checks that all machines run
// together.
func (c *Certification) apart(all []result.Result) (own, joint []result.Result) {
	for _, r := range all {
		if slices.ContainsFunc(c.Checks, func(k suite.Check) bool { return k.ID == r.ID && together(k) }) {
			joint = append(joint, r)
		} else {
			own = append(own, r)
		}
	}
	return own, joint
}

// Run runs the checks. It returns this machine's certificate, and of several machines the results
// of their joint checks. observe is called for every event of the run. The caller calls Close, and
// before that Done, if everything has been written.
func (c *Certification) Run(ctx context.Context, observe func(suite.Event)) (st *certificate.Statement, joint []result.Result, err error) {
	if c.Fabric != nil {
		err = c.openJobNotes(time.Now())
	} else {
		c.notes, err = c.openNotes(time.Now())
	}
	if err != nil {
		return nil, nil, err
	}
	going, stop := ctx, func() {}
	if c.Fabric != nil {
		going, stop = c.Fabric.UntilGone(ctx)
	}
	results, err := c.runChecks(going, observe)
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = exit.With(exit.NotDone, errors.New("interrupted; no certificate was written"+c.notes.hint()))
	case going.Err() != nil:
		err = exit.With(exit.NotDone, context.Cause(going))
	}
	stop()
	if err != nil {
		return nil, nil, err
	}
	if c.Fabric != nil {
		results, joint = c.apart(results)
	}
	if st, err = c.statement(results); err == nil {
		c.recall(ctx, st)
	}
	return st, joint, err
}

// Done deletes what was recorded for resuming.
func (c *Certification) Done() {
	c.notes.done()
	c.joint.done()
}

// Close ends the recording. A run that was cut off can be resumed.
func (c *Certification) Close() {
	for _, n := range []*notes{c.notes, c.joint} {
		n.close()
	}
}

// runChecks runs the checks within the suite's time limit.
func (c *Certification) runChecks(ctx context.Context, observe func(suite.Event)) ([]result.Result, error) {
	if c.file != nil && c.file.Limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, c.file.Limit+c.longer, fmt.Errorf("the suite's limit of %v", c.file.Limit+c.longer))
		defer stop()
	}
	return suite.Run(ctx, c.Env, c.Checks, suite.Options{
		Parallel: c.Jobs, Timeout: c.Timeout, Select: c.Select, Earlier: c.notes.earlier,
		Observe: func(e suite.Event) {
			observe(e)
			switch {
			case e.Result == nil || ctx.Err() != nil:
			case c.Fabric != nil && together(e.Check):
				c.joint.add(e.Result)
			default:
				c.notes.add(e.Result)
			}
		},
	})
}

// predicate is what a certificate says besides of what was measured.
func (c *Certification) predicate() certificate.Predicate {
	v := version.Get()
	p := certificate.Predicate{
		Node: c.node, Harness: certificate.Harness{Version: v.Version, Commit: v.Commit}, Environment: image.Describe(c.Env.Root, c.spec),
	}
	p.Environment.Platform = c.Env.Platform
	return p
}

// statement creates the certificate.
func (c *Certification) statement(results []result.Result) (*certificate.Statement, error) {
	p := c.predicate()
	p.Started, p.Finished = c.notes.times(time.Now())
	p.Suite, p.Results = c.suite.Name, results
	if c.site != nil {
		p.Limits = siteLimits(c.site)
	}
	if len(c.Only)+len(c.Skip) > 0 {
		p.Selected = &certificate.Selected{Only: c.Only, Skip: c.Skip}
	}
	p.After = c.repetitions()
	if c.node != nil {
		if r := presentGPUs(c.GPUs, c.node, c.facts); r != nil { // first: without its GPUs nothing else is worth a reason
			p.Results = slices.Insert(slices.Clone(p.Results), 0, *r)
		}
	}
	if r := c.Baseline.result(p); r != nil {
		p.Results = append(p.Results, *r)
	}
	st := certificate.New(p)
	for _, subject := range c.Subjects {
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

// Verdict turns a certificate's verdict into the error that ends the program; nil: it passed.
func (c *Certification) Verdict(st *certificate.Statement) error {
	switch st.Predicate.Verdict {
	case result.Fail:
		return exit.With(exit.Fail, nil)
	case result.Error:
		return exit.With(exit.NotDone, nil)
	case result.Skip:
		return exit.With(exit.NotDone, errors.New("every check was skipped: nothing was shown"))
	}
	if !c.NoSkip {
		return nil
	}
	for _, r := range st.Predicate.Results {
		if r.Verdict == result.Skip && !c.Deselected(r.ID) {
			return exit.With(exit.Fail, fmt.Errorf("--no-skip: %s was skipped: %s", r.ID, r.Reason))
		}
	}
	return nil
}
