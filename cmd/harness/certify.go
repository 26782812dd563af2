package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/certify"
	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/registry"
	"github.com/assay-hpc/assay/harness/site"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
)

type certifyOptions struct {
	certify.Options
	format         string
	out, inventory string
	verbose, show  bool
	gpus, ports    int
	baseline       baselineOptions
	sign           signOptions
	push           pushOptions
	site           siteOptions
	as             asOptions
	after          string
	history        cli.StringSlice
	fabric         fabricOptions
	stdout, stderr io.Writer
}

func certifyCommand(out, errOut io.Writer) *cli.Command {
	o := certifyOptions{stdout: out, stderr: errOut, site: siteOptions{stderr: errOut}}
	return &cli.Command{
		Name:  "certify",
		Usage: "run a suite of checks and write a certificate",
		Description: "The suite image is about the image that this runs in; quick (half a minute), node (five minutes) and full (half an hour)\n" +
			"are about the machine: health, diagnostics under load, copies, collectives, RDMA, each in a process of its own.\n" +
			"Exits 0 if all checks passed (some may be skipped, with a reason), 1 if one failed,\n" +
			"2 on wrong usage, 3 if checks could not run or nothing was shown.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "suite", EnvVars: []string{"ASSAY_SUITE"}, Destination: &o.Suite, Usage: "run the suite `NAME`, or a suite file FILE.yaml (default: node where there is a GPU or an RDMA device, else image)"},
			&cli.IntFlag{Name: "gpus", Destination: &o.gpus, Usage: "require `N` GPUs, 0 if the node has none; the result gpus says whether it has them"},
			&cli.IntFlag{Name: "ports", Destination: &o.ports, Usage: "require `N` RDMA ports that are up"},
			&cli.StringFlag{Name: "hardware", Destination: &o.Hardware, Usage: "require the hardware profile `PROFILE`, such as hgx-h200 or a file of your own"},
			&cli.StringFlag{Name: "thresholds", Destination: &o.Thresholds, Usage: "judge checks without load by the site's limits in `FILE`, as health does; the certificate has its SHA-256 and the limits"},
			&cli.StringFlag{Name: "spec", Destination: &o.Spec, Usage: "the image's declaration is in `FILE`, not in " + certificate.SpecPath + "; \"" + certificate.NoSpec + "\" believes no declaration"},
			&cli.StringSliceFlag{Name: "subject", Usage: "set the image `NAME@sha256:…` as the certificate's subject; repeat it for images that differ only in their entry point"},
			&cli.StringFlag{Name: "root", Value: "/", Destination: &o.Root, Usage: "check the image below `DIR`; its programs run only for /"},
			&cli.StringSliceFlag{Name: "env", Usage: "with --root: set `NAME=VALUE` in the image's environment; may be repeated"},
			grammar.Format(&o.format, "text", "json"),
			&cli.StringFlag{Name: "out", Destination: &o.out, Usage: "also write to `PATH`: a file gets the certificate, with --sign-key its envelope; a directory DIR/ gets certificate.json, report.txt, report.html, junit.xml and metrics.prom, too"},
			&cli.StringFlag{Name: "inventory", Destination: &o.inventory, Usage: "also write the list of packages to `FILE`"},
			&cli.StringSliceFlag{Name: "only", Usage: "run checks whose id matches `GLOB`, and what they need; may be repeated"},
			&cli.StringSliceFlag{Name: "skip", Usage: "leave out checks whose id matches `GLOB`; may be repeated"},
			&cli.StringFlag{Name: "after", Destination: &o.after, Usage: "also run the checks by which the machine failed before, three times each, of which none may fail or be skipped: those of `CERTIFICATE`, or of a reason that begins with \"" + site.Prefix + "\""},
			&cli.StringSliceFlag{Name: "history", Destination: &o.history, Usage: "if a check fails, say how often and when it failed before, by the certificates in `DIR|REPO`; may be repeated"},
			&cli.BoolFlag{Name: "resume", Destination: &o.Resume, Usage: "with --out DIR/: continue an interrupted run; do not repeat finished checks"},
			&cli.BoolFlag{Name: "no-skip", Destination: &o.NoSkip, Usage: "count a skipped check as a failure (except those that --only and --skip leave out)"},
			&cli.BoolFlag{Name: "list", Destination: &o.List, Usage: "list the suite's checks for this image, and exit"},
			&cli.IntFlag{Name: "machines", Destination: &o.Machines, Usage: "with --list: of a job of `N` machines, for how long it takes"},
			&cli.BoolFlag{Name: "show", Destination: &o.show, Usage: "print the suite's file as a template, and exit"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Destination: &o.verbose, Usage: "also show the output of checks that passed"},
			&cli.IntFlag{Name: "jobs", Value: runtime.GOMAXPROCS(0), DefaultText: "the number of processors", Destination: &o.Jobs, Usage: "run at most `N` checks at once"},
			&cli.DurationFlag{Name: "timeout", Value: suite.DefaultTimeout, Destination: &o.Timeout, Usage: "limit each check to `TIME`, unless it sets its own limit"},
		}, o.baseline.flags(), o.sign.flags(), o.push.flags(), o.site.flags(), o.as.flags(), o.fabric.flags()),
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			o.Only, o.Skip, o.Env, o.Subjects = c.StringSlice("only"), c.StringSlice("skip"), c.StringSlice("env"), c.StringSlice("subject")
			o.GPUs, o.Ports = given(c, "gpus", &o.gpus), given(c, "ports", &o.ports)
			if err := o.validate(); err != nil {
				return err
			}
			return o.as.end(o.run(c.Context))
		},
	}
}

func (o *certifyOptions) validate() error {
	if isDir(o.out) {
		o.Dir, o.out = o.out, ""
	}
	if err := o.fabric.check(); err != nil {
		return err
	}
	if o.Machines != 0 && (!o.List || o.Machines < 1) {
		return exit.Usagef("--machines N goes with --list: a launcher says how many machines run")
	}
	if o.gpus < 0 || o.ports < 0 {
		return exit.Usagef("--gpus %d --ports %d: there cannot be fewer than none", o.gpus, o.ports)
	}
	if err := o.site.needGPUs(o.GPUs); err != nil {
		return err
	}
	if err := o.as.check(); err != nil {
		return err
	}
	if o.as.given() && (o.format != "text" || o.NoSkip) {
		return exit.Usagef("--as %s says what is printed, and what a skipped check means: leave out --format and --no-skip", o.as.name)
	}
	if o.Resume && o.Dir == "" {
		return exit.Usagef("--resume goes with --out DIR/, the directory of the run that was cut off")
	}
	if o.sign.key != "" && o.Dir == "" && o.out == "" && o.push.to == "" {
		return exit.Usagef("--sign-key: say with --out or --push where the signed certificate is to go")
	}
	if file := suite.FileSuite(o.Suite); file != o.Suite && slices.Contains(append(node.Names(), image.Name), file) && (o.sign.key != "" || o.push.to != "" || o.site.named()) {
		return exit.Usagef("--suite %s: a suite that decides about this machine may not be called %q, as one that comes with the harness: give the file another name", o.Suite, file)
	}
	for _, where := range o.history.Value() {
		o.Recall = o.recall
		if _, err := os.Stat(where); err != nil && (filepath.IsAbs(where) || strings.HasPrefix(where, ".")) {
			return exit.Usagef("--history: %w", err)
		}
	}
	o.Join = func(ctx context.Context, name string) (*fabric.Fabric, error) {
		return o.fabric.join(ctx, name, o.stderr)
	}
	var err error
	if _, o.Hardware, err = hardware(o.Hardware); err != nil {
		return err
	}
	return o.Validate()
}

// failedBefore returns the checks that --after names.
func (o *certifyOptions) failedBefore(ctx context.Context) ([]string, error) {
	if o.after == "" {
		return nil, nil
	}
	if strings.HasPrefix(o.after, site.Prefix) {
		checks, others := site.Read(o.after)
		if len(checks) == 0 {
			return nil, exit.Usagef("--after %q: the reason names no check", o.after)
		}
		if others {
			fmt.Fprintln(o.stderr, "harness: --after: the reason does not name all checks that failed; the certificate of the failure does")
		}
		return checks, nil
	}
	d, err := new(sourceOptions).document(ctx, o.after, nil)
	if err != nil {
		return nil, fmt.Errorf("--after: %w (a reason begins with %q)", err, site.Prefix)
	}
	checks := site.Failed(d.Statement)
	if len(checks) == 0 {
		fmt.Fprintf(o.stderr, "harness: --after: no check of %s failed: none is measured harder\n", o.after)
	}
	return checks, nil
}

// recall reads the earlier certificates. What cannot be read keeps no certificate from being written.
func (o *certifyOptions) recall(ctx context.Context, known *history.Recall) {
	r := registry.Reader{To: known, Options: registryOptions(o.push.insecure)}
	for _, where := range o.history.Value() {
		if err := r.Read(ctx, where); err != nil {
			fmt.Fprintf(o.stderr, "harness: --history %s: %v\n", where, err)
		}
	}
	r.Summary(o.stderr)
}

// given returns the value of a flag that was given, else nil.
func given(c *cli.Context, flag string, value *int) *int {
	if !c.IsSet(flag) {
		return nil
	}
	return value
}

// baselineOptions are the options for comparing figures with an earlier certificate's.
type baselineOptions struct {
	file      string
	tolerance float64 // %
	fail      bool
}

func (o *baselineOptions) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "baseline", Destination: &o.file, Usage: "compare with the machine's earlier certificate in `FILE`, and warn of regressions beyond spread and tolerance"},
		&cli.Float64Flag{Name: "tolerance", Value: 5, Destination: &o.tolerance, Usage: "with --baseline: ignore changes up to `PERCENT`"},
		&cli.BoolFlag{Name: "fail-on-drift", Destination: &o.fail, Usage: "with --baseline: count regressions as failures"},
	}
}

// read reads the earlier certificate.
func (o *baselineOptions) read(ctx context.Context) (b certify.Baseline, err error) {
	switch {
	case o.file == "" && o.fail:
		return b, exit.Usagef("--fail-on-drift goes with --baseline")
	case o.file == "":
		return b, nil
	case !(o.tolerance >= 0 && o.tolerance <= 100):
		return b, exit.Usagef("--tolerance %v is no percentage", o.tolerance)
	}
	d, err := new(sourceOptions).document(ctx, o.file, nil)
	if err != nil {
		return b, fmt.Errorf("--baseline: %w", err)
	}
	return certify.Baseline{Earlier: d.Statement, Tolerance: o.tolerance / 100, Fail: o.fail}, nil
}
