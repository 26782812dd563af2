package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/harness/rootfs"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/harness/version"
	"github.com/assay-hpc/assay/internal/nearest"
)

type certifyOptions struct {
	suite, spec, root     string
	subjects              cli.StringSlice
	format, output        string
	out, inventory        string
	only, skip, env       []string
	noSkip, list, verbose bool
	jobs                  int
	timeout               time.Duration
	stdout, stderr        io.Writer
}

func certifyCommand(out, errOut io.Writer) *cli.Command {
	o := certifyOptions{stdout: out, stderr: errOut}
	return &cli.Command{
		Name:  "certify",
		Usage: "run a suite of checks and make a certificate of what came out",
		Description: "Exits 0 if all checks passed (some may be skipped, with a reason), 1 if one failed,\n" +
			"2 on wrong usage, 3 if checks could not be carried out or nothing was shown.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "suite", Value: "image", Destination: &o.suite, Usage: "the `NAME` of the suite"},
			&cli.StringFlag{Name: "spec", Destination: &o.spec, Usage: "the image's declaration is in `FILE`, not in " + certificate.SpecPath},
			&cli.StringSliceFlag{Name: "subject", Destination: &o.subjects, Usage: "the certificate is about the image `NAME@sha256:…`; again for images that differ in their entry point alone"},
			&cli.StringFlag{Name: "root", Value: "/", Destination: &o.root, Usage: "the image's root is `DIR`; its programs are run only for /"},
			&cli.StringSliceFlag{Name: "env", Usage: "with --root: the image's environment has `NAME=VALUE`"},
			&cli.StringFlag{Name: "format", Aliases: []string{"o"}, Value: "text", Destination: &o.format, Usage: "`FORMAT` on stdout: text or json"},
			&cli.StringFlag{Name: "output", Destination: &o.output, Usage: "also write certificate.json, report.txt, report.html, junit.xml and metrics.prom into `DIR`"},
			&cli.StringFlag{Name: "out", Destination: &o.out, Usage: "also write the certificate, an in-toto statement, to `FILE`"},
			&cli.StringFlag{Name: "inventory", Destination: &o.inventory, Usage: "also write the list of packages to `FILE`"},
			&cli.StringSliceFlag{Name: "only", Usage: "only checks whose id matches `GLOB`, and what they need"},
			&cli.StringSliceFlag{Name: "skip", Usage: "no checks whose id matches `GLOB`"},
			&cli.BoolFlag{Name: "no-skip", Destination: &o.noSkip, Usage: "a skipped check is a failure (those that --only and --skip leave out are not)"},
			&cli.BoolFlag{Name: "list", Destination: &o.list, Usage: "list the suite's checks for this image and run none"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Destination: &o.verbose, Usage: "show the output of checks that passed, too"},
			&cli.IntFlag{Name: "jobs", Value: runtime.GOMAXPROCS(0), Destination: &o.jobs, Usage: "at most `N` checks at once"},
			&cli.DurationFlag{Name: "timeout", Value: suite.DefaultTimeout, Destination: &o.timeout, Usage: "`TIME` for each check that sets none itself"},
		},
		Before: noArgs,
		Action: func(c *cli.Context) error {
			o.only, o.skip, o.env = c.StringSlice("only"), c.StringSlice("skip"), c.StringSlice("env")
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(c.Context)
		},
	}
}

func (o *certifyOptions) validate() error {
	if o.format != "text" && o.format != "json" {
		return usagef("--format is text or json, not %q", o.format)
	}
	if o.output == "text" || o.output == "json" {
		return usagef("--output names a directory: say --format %s for stdout, or --output ./%s", o.output, o.output)
	}
	if o.jobs < 1 || o.timeout <= 0 {
		return usagef("--jobs and --timeout must be more than nothing")
	}
	for _, subject := range o.subjects.Value() {
		if _, _, err := splitSubject(subject); err != nil {
			return err
		}
	}
	for _, kv := range o.env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			return usagef("--env %q is not NAME=VALUE", kv)
		}
	}
	return checkGlobs(slices.Concat(o.only, o.skip))
}

// splitSubject reads NAME@sha256:….
func splitSubject(s string) (name, digest string, err error) {
	i := strings.LastIndex(s, "@")
	if i < 0 {
		return "", "", usagef("--subject %q is not NAME@sha256:…", s)
	}
	name, digest = s[:i], s[i+1:]
	if err := new(certificate.Statement).SetSubject(name, digest); err != nil {
		return "", "", usagef("--subject: %w", err)
	}
	return name, digest, nil
}

// run does what the options ask for.
func (o *certifyOptions) run(ctx context.Context) error {
	env, err := o.environment()
	if err != nil {
		return err
	}
	spec, specErr := image.ReadSpec(env.Root, o.spec)
	if specErr != nil && o.spec != "" {
		return usagef("--spec %s: %w", o.spec, specErr)
	}
	if spec != nil && !env.Root.Native() {
		env.Platform = spec.Platform
	}
	self, _ := os.Executable() // fails without /proc; the check that needs it says so
	reg := registry(image.Config{Spec: spec, SpecErr: specErr, Version: version.Get().Version, Self: self})
	s, err := lookup(reg, o.suite)
	if err != nil {
		return err
	}
	checks, err := s.Checks(ctx, env)
	if err != nil {
		return err
	}
	if err := o.matchesAny(checks); err != nil {
		return err
	}
	if o.list {
		return o.printList(checks)
	}
	return o.certify(ctx, env, spec, checks)
}

// registry holds all the suites that this binary knows.
func registry(cfg image.Config) *suite.Registry {
	reg := new(suite.Registry)
	reg.Add(image.Suite(cfg))
	return reg
}

func lookup(reg *suite.Registry, name string) (suite.Suite, error) {
	s, ok := reg.Lookup(name)
	if ok {
		return s, nil
	}
	var names []string
	for _, s := range reg.Suites() {
		names = append(names, s.Name)
	}
	return s, usagef("there is no suite %q; the nearest is %q (all: %s)", name, nearest.To(name, names), strings.Join(names, ", "))
}

// defaultPath is what a container gets that sets no PATH.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (o *certifyOptions) environment() (*suite.Env, error) {
	root, err := rootfs.Open(o.root)
	if err != nil {
		return nil, usagef("--root: %w", err)
	}
	env := &suite.Env{
		Root: root, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Environ: append([]string{defaultPath}, o.env...),
	}
	if root.Native() {
		if len(o.env) > 0 {
			return nil, usagef("--env goes with --root: here the environment is the harness's own")
		}
		env.Environ = os.Environ()
	}
	return env, nil
}

// certify runs the checks and writes all that was asked for.
func (o *certifyOptions) certify(ctx context.Context, env *suite.Env, spec *certificate.ImageSpec, checks []suite.Check) error {
	var dir *outputDir
	if o.output != "" {
		var err error
		if dir, err = openOutput(o.output); err != nil {
			return err
		}
		defer dir.close()
	}
	started := time.Now()
	progress := newProgress(o.stderr)
	results, err := suite.Run(ctx, env, checks, suite.Options{
		Parallel: o.jobs, Timeout: o.timeout, Select: o.selected, Observe: progress.observe,
	})
	progress.clear()
	if err != nil {
		return err
	}
	v := version.Get()
	st := certificate.New(certificate.Predicate{
		Suite: o.suite, Started: started, Finished: time.Now(), Results: results,
		Harness:     certificate.Harness{Version: v.Version, Commit: v.Commit},
		Environment: image.Describe(env.Root, spec),
	})
	st.Predicate.Environment.Platform = env.Platform
	for _, subject := range o.subjects.Value() {
		name, digest, err := splitSubject(subject)
		if err == nil {
			err = st.AddSubject(name, digest)
		}
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return &statusError{exitNotDone, errors.New("interrupted; nothing was written")}
	}
	if err := o.write(env, st, dir); err != nil {
		return err
	}
	return o.verdict(st, checks)
}

// write puts the documents where they were asked for, stdout last: what it
// says is then already so.
func (o *certifyOptions) write(env *suite.Env, st *certificate.Statement, dir *outputDir) error {
	doc, err := st.Marshal()
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := writeFile(o.out, doc); err != nil {
			return err
		}
	}
	if dir != nil {
		files, err := rendered([]document{{statement: st}}, renderings...)
		if err != nil {
			return err
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
		return writeIndented(o.stdout, doc)
	}
	return report.Text(o.stdout, st, report.TextOptions{
		Color: colored(o.stdout), Verbose: o.verbose, Hide: func(r certificate.Result) bool { return o.deselected(r.ID) },
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
func (o *certifyOptions) verdict(st *certificate.Statement, checks []suite.Check) error {
	switch st.Predicate.Verdict {
	case certificate.Fail:
		return &statusError{code: exitFail}
	case certificate.Error:
		return &statusError{code: exitNotDone}
	case certificate.Skip:
		return &statusError{exitNotDone, errors.New("every check was skipped: nothing was shown")}
	}
	if !o.noSkip {
		return nil
	}
	for _, r := range st.Predicate.Results {
		if r.Verdict == certificate.Skip && !o.deselected(r.ID) {
			return &statusError{exitFail, fmt.Errorf("--no-skip: %s was skipped: %s", r.ID, r.Reason)}
		}
	}
	return nil
}

func (o *certifyOptions) printList(checks []suite.Check) error {
	if o.format == "json" {
		type item struct {
			ID        string   `json:"id"`
			Component string   `json:"component,omitempty"`
			Title     string   `json:"title"`
			Needs     []string `json:"needs,omitempty"`
		}
		items := []item{}
		for _, c := range checks {
			items = append(items, item{c.ID, c.Component, c.Title, c.Needs})
		}
		enc := json.NewEncoder(o.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"version": 1, "suite": o.suite, "checks": items})
	}
	for _, c := range checks {
		if _, err := fmt.Fprintf(o.stdout, "%-32s %s\n", c.ID, c.Title); err != nil {
			return err
		}
	}
	return nil
}
