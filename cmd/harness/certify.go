package main

import (
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/rootfs"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
)

type certifyOptions struct {
	suite, spec, root     string
	subjects              cli.StringSlice
	format, output        string
	out, inventory        string
	only, skip, env       []string
	noSkip, list, verbose bool
	resume, show          bool
	jobs, gpus, ports     int
	counted, countedPorts bool // --gpus, --ports were given
	platform              string
	timeout               time.Duration
	baseline              baselineOptions
	sign                  signOptions
	push                  pushOptions
	site                  siteOptions
	fabric                fabricOptions
	stdout, stderr        io.Writer
}

func certifyCommand(out, errOut io.Writer) *cli.Command {
	o := certifyOptions{stdout: out, stderr: errOut, site: siteOptions{stderr: errOut}}
	return &cli.Command{
		Name:  "certify",
		Usage: "run a suite of checks and write a certificate",
		Description: "The suite image is about the image that this runs in; quick (half a minute), node (five minutes) and full (half an hour)\n" +
			"are about the machine: health, diagnostics under load, copies, collectives, RDMA, each in a process of its own.\n" +
			"Exits 0 if all checks passed (some may be skipped, with a reason), 1 if one failed,\n" +
			"2 on wrong usage, 3 if checks could not be carried out or nothing was shown.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "suite", EnvVars: []string{"ASSAY_SUITE"}, Destination: &o.suite, Usage: "run the suite `NAME`, or a suite file FILE.yaml (default: node where there is a GPU or an RDMA device, else image)"},
			&cli.IntFlag{Name: "gpus", Destination: &o.gpus, Usage: "require `N` GPUs"},
			&cli.IntFlag{Name: "ports", Destination: &o.ports, Usage: "require `N` RDMA ports that are up"},
			&cli.StringFlag{Name: "hardware", Destination: &o.platform, Usage: "require the hardware profile `PROFILE`, such as hgx-h200"},
			&cli.StringFlag{Name: "spec", Destination: &o.spec, Usage: "the image's declaration is in `FILE`, not in " + certificate.SpecPath + "; \"" + certificate.NoSpec + "\" believes no declaration"},
			&cli.StringSliceFlag{Name: "subject", Destination: &o.subjects, Usage: "set the image `NAME@sha256:…` as the certificate's subject; repeat it for images that differ only in their entry point"},
			&cli.StringFlag{Name: "root", Value: "/", Destination: &o.root, Usage: "check the image below `DIR`; its programs run only for /"},
			&cli.StringSliceFlag{Name: "env", Usage: "with --root: set `NAME=VALUE` in the image's environment; may be repeated"},
			grammar.Format(&o.format, "text", "json"),
			&cli.StringFlag{Name: "out", Destination: &o.out, Usage: "also write to `PATH`: a file gets the certificate, with --sign-key its envelope; a directory DIR/ gets certificate.json, report.txt, report.html, junit.xml and metrics.prom, too"},
			&cli.StringFlag{Name: "output", Destination: &o.output, Hidden: true}, // the directory, in an earlier version
			&cli.StringFlag{Name: "inventory", Destination: &o.inventory, Usage: "also write the list of packages to `FILE`"},
			&cli.StringSliceFlag{Name: "only", Usage: "run checks whose id matches `GLOB`, and what they need; may be repeated"},
			&cli.StringSliceFlag{Name: "skip", Usage: "leave out checks whose id matches `GLOB`; may be repeated"},
			&cli.BoolFlag{Name: "resume", Destination: &o.resume, Usage: "with --out DIR/: continue an interrupted run; do not repeat finished checks"},
			&cli.BoolFlag{Name: "no-skip", Destination: &o.noSkip, Usage: "count a skipped check as a failure (except those that --only and --skip leave out)"},
			&cli.BoolFlag{Name: "list", Destination: &o.list, Usage: "list the suite's checks for this image, and exit"},
			&cli.BoolFlag{Name: "show", Destination: &o.show, Usage: "print the suite's file as a template, and exit"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Destination: &o.verbose, Usage: "also show the output of checks that passed"},
			&cli.IntFlag{Name: "jobs", Value: runtime.GOMAXPROCS(0), DefaultText: "the number of processors", Destination: &o.jobs, Usage: "run at most `N` checks at once"},
			&cli.DurationFlag{Name: "timeout", Value: suite.DefaultTimeout, Destination: &o.timeout, Usage: "limit each check to `TIME`, unless it sets its own limit"},
		}, o.baseline.flags(), o.sign.flags(), o.push.flags(), o.site.flags(), o.fabric.flags()),
		Before: noArgs,
		Action: func(c *cli.Context) error {
			o.only, o.skip, o.env = c.StringSlice("only"), c.StringSlice("skip"), c.StringSlice("env")
			o.counted, o.countedPorts = c.IsSet("gpus"), c.IsSet("ports")
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(c.Context)
		},
	}
}

func (o *certifyOptions) validate() error {
	if o.output == "text" || o.output == "json" {
		return exit.Usagef("--output names a directory: say --format %s for stdout, or --out %s/", o.output, o.output)
	}
	if isDir(o.out) {
		o.output, o.out = o.out, ""
	}
	if o.jobs < 1 || o.timeout <= 0 {
		return exit.Usagef("--jobs and --timeout must be more than nothing")
	}
	if err := o.fabric.check(); err != nil {
		return err
	}
	if o.gpus < 0 || o.ports < 0 {
		return exit.Usagef("--gpus %d --ports %d: there cannot be fewer than none", o.gpus, o.ports)
	}
	if o.resume && o.output == "" {
		return exit.Usagef("--resume goes with --out DIR/, the directory of the run that was cut off")
	}
	if o.sign.key != "" && o.output == "" && o.out == "" && o.push.to == "" {
		return exit.Usagef("--sign-key: say with --output, --out or --push where the signed certificate is to go")
	}
	for _, subject := range o.subjects.Value() {
		if _, _, err := splitSubject(subject); err != nil {
			return err
		}
	}
	for _, kv := range o.env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			return exit.Usagef("--env %q is not NAME=VALUE", kv)
		}
	}
	return checkGlobs(slices.Concat(o.only, o.skip))
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

// defaultPath is the PATH of a container that does not set it.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (o *certifyOptions) environment() (*suite.Env, error) {
	root, err := rootfs.Open(o.root)
	if err != nil {
		return nil, exit.Usagef("--root: %w", err)
	}
	env := &suite.Env{
		Root: root, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Environ: append([]string{defaultPath}, o.env...),
	}
	if root.Native() {
		if len(o.env) > 0 {
			return nil, exit.Usagef("--env goes with --root: here the environment is the harness's own")
		}
		env.Environ = os.Environ()
	}
	return env, nil
}
