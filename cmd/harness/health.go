package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/version"
	"github.com/assay-hpc/assay/internal/words"
)

// openGPUs returns the source of data about GPUs; tests replace it.
var openGPUs = func() health.Source { return nvml.New() }

type healthOptions struct {
	format, platform, thresholds, root string
	limits                             string // the text of thresholds that certify read
	suite.Selection
	gpus, ports            int
	quiet, verbose, list   bool
	since, window, timeout time.Duration
	stdout, stderr         io.Writer
}

func healthCommand(out, errOut io.Writer) *cli.Command {
	o := healthOptions{stdout: out, stderr: errOut}
	return &cli.Command{
		Name:  "health",
		Usage: "check the node and its GPUs, without load",
		Description: "Asks NVIDIA's driver, /sys, /proc and the kernel's log. Exits 0 if nothing failed (there may be warnings,\n" +
			"and skipped checks, with a reason), 1 if a check failed, 2 on wrong usage, 3 if one could not be made.",
		Flags: []cli.Flag{
			grammar.Format(&o.format, "text", "json"),
			&cli.IntFlag{Name: "gpus", Destination: &o.gpus, Usage: "require `N` GPUs"},
			&cli.IntFlag{Name: "ports", Destination: &o.ports, Usage: "require `N` RDMA ports that are up"},
			&cli.StringFlag{Name: "hardware", Destination: &o.platform, Usage: "require the hardware profile `PROFILE`, such as hgx-h100-ndr400 or a file of your own"},
			&cli.StringSliceFlag{Name: "only", Usage: "run checks whose id matches `GLOB`; may be repeated"},
			&cli.StringSliceFlag{Name: "skip", Usage: "leave out checks whose id matches `GLOB`; may be repeated"},
			&cli.DurationFlag{Name: "since", Value: 2 * time.Hour, Destination: &o.since, Usage: "ignore kernel messages older than `TIME`; 0: none"},
			&cli.DurationFlag{Name: "window", Value: 500 * time.Millisecond, Destination: &o.window, Usage: "watch error counters for `TIME`; 0: read them once"},
			&cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Destination: &o.timeout, Usage: "wait at most `TIME` for the driver, each GPU, and the kernel's files"},
			&cli.StringFlag{Name: "thresholds", Destination: &o.thresholds, Usage: "read limits and severities from `FILE`"},
			&cli.StringFlag{Name: "limits", Destination: &o.limits, Hidden: true}, // by certify
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Destination: &o.quiet, Usage: "show only what is wrong, and the summary"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Destination: &o.verbose, Usage: "show each check that was skipped"},
			&cli.BoolFlag{Name: "list", Destination: &o.list, Usage: "list the checks with limits and sources, and exit"},
			&cli.StringFlag{Name: "root", Value: "/", Destination: &o.root, Usage: "read sys, proc, dev and var/log below `DIR`, without asking the driver"},
		},
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			o.Only, o.Skip = c.StringSlice("only"), c.StringSlice("skip")
			x, err := o.expect(given(c, "gpus", &o.gpus), given(c, "ports", &o.ports))
			if err != nil {
				return err
			}
			if o.list {
				if o.format == "json" {
					return exit.Usagef("--list is text")
				}
				return x.Rules.Write(o.stdout, o.Wants)
			}
			return o.run(c.Context, x)
		},
	}
}

// expect checks the flags, and reads the files and profiles that they name.
func (o *healthOptions) expect(gpus, ports *int) (x health.Expect, err error) {
	switch {
	case o.since < 0 || o.window < 0 || o.timeout <= 0:
		return x, exit.Usagef("--since %v --window %v --timeout %v: none may be below 0, and --timeout must be more", o.since, o.window, o.timeout)
	case o.gpus < 0 || o.ports < 0:
		return x, exit.Usagef("--gpus %d --ports %d: there cannot be fewer than none", o.gpus, o.ports)
	case o.quiet && o.format == "json":
		return x, exit.Usagef("--quiet is for text; JSON always has everything")
	}
	if err := o.Match(health.IDs()); err != nil {
		return x, exit.Usagef("%w (see health --list)", err)
	}
	if !slices.ContainsFunc(health.IDs(), o.Wants) {
		return x, exit.Usagef("--only and --skip leave no check")
	}
	x.Since, x.Count, x.Ports = o.since, gpus, ports
	key := ""
	if x.DB, key, err = hardware(o.platform); err != nil {
		return x, err
	}
	x.Platform = x.DB.Platforms[key]
	if x.Rules, err = health.LoadRules(); err != nil {
		return x, err
	}
	if o.limits != "" {
		if err := x.Rules.Override("--limits", strings.NewReader(o.limits)); err != nil {
			return x, exit.Usagef("%w", err)
		}
	}
	if o.thresholds != "" {
		f, err := health.ReadSiteFile(o.thresholds)
		if err != nil {
			return x, exit.Usagef("--thresholds: %w", err)
		}
		maps.Copy(x.Rules, f.Rules)
	}
	return x, nil
}

// elsewhere is the source for --root: GPUs of another machine cannot be queried.
type elsewhere struct{ health.Source }

func (elsewhere) Driver() (nvml.Driver, error) {
	return nvml.Driver{}, fmt.Errorf("%w (--root)", health.ErrElsewhere)
}

func (o *healthOptions) run(ctx context.Context, x health.Expect) error {
	f, err := sysfs.Open(o.root)
	if err != nil {
		return exit.Usagef("--root: %w", err)
	}
	src, getenv := openGPUs(), os.Getenv
	if o.root != "/" {
		src, getenv = elsewhere{}, func(string) string { return "" }
	}
	s := health.Read(ctx, src, f, health.ReadOptions{Timeout: o.timeout, Window: o.window, Now: time.Now(), Getenv: getenv})
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &result.Report{Kind: "health", Version: version.Get().String(), Host: s.Host(), Time: s.Time.UTC().Truncate(time.Second), Seconds: s.Took.Seconds(), Results: health.Run(s, x, o.Wants)}
	if err := writeFound(r, o.stdout, o.format, "", report.TextOptions{Quiet: o.quiet, Verbose: o.verbose}); err != nil {
		return err
	}
	// Failures are on stdout. One line reports them on stderr, in case only that is stored.
	switch r.Verdict {
	case result.Fail:
		return exit.With(exit.Fail, fmt.Errorf("health: %s failed", words.Count(r.Count[result.Fail], "check")))
	case result.Error:
		return exit.With(exit.NotDone, fmt.Errorf("health: %s could not be made", words.Count(r.Count[result.Error], "check")))
	}
	return nil
}
