package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/dcgm/diag"
	"github.com/assay-hpc/assay/dcgm/hostengine"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/version"
)

type diagOptions struct {
	format, run, file string
	gpus, child       string
	engine            string
	params            cli.StringSlice
	only, skip        cli.StringSlice
	duration, timeout time.Duration
	dcgmTimeout       time.Duration
	limits            string // result.Rules by figure, as JSON, from a suite
	stdout, stderr    io.Writer
}

func diagCommand(out, errOut io.Writer) *cli.Command {
	o := diagOptions{stdout: out, stderr: errOut}
	return &cli.Command{
		Name:  "diag",
		Usage: "test GPUs under load, in the levels of dcgmi diag",
		Description: "Level 1 looks at the software; 2 adds memory and copies (about a minute); 3 adds products, streams and power\n" +
			"(about ten minutes); 4 adds memory over and over, and pulses (about 25 minutes). Each test runs in a process\n" +
			"of its own. Exit status: 0 passed, with warnings or without; 1 a test failed or broke; 3 there are no GPUs, or all\n" +
			"tests were skipped, or there is no dcgmi for --engine dcgm.",
		Flags: []cli.Flag{
			grammar.Format(&o.format, "text", "json"),
			&cli.StringFlag{Name: "run", Aliases: []string{"r"}, Value: "1", Destination: &o.run, Usage: "`LEVEL`, 1 to 4 or quick, medium, long, xlong; or names of tests with commas between"},
			&cli.StringFlag{Name: "gpus", Aliases: []string{"i"}, Destination: &o.gpus, Usage: "test only these GPUs, `0,1`, numbered as CUDA does"},
			&cli.StringSliceFlag{Name: "parameters", Aliases: []string{"p"}, Destination: &o.params, Usage: "`TEST.PARAMETER=VALUE`, several with ; between; docs/diag.md lists them"},
			&cli.DurationFlag{Name: "duration", Destination: &o.duration, Usage: "load GPUs for `TIME` in each test that has test_duration, such as 10s"},
			&cli.DurationFlag{Name: "timeout", Destination: &o.timeout, Usage: "stop a test after `TIME` (default: by its duration)"},
			&cli.StringFlag{Name: "engine", Value: hostengine.Assay, Destination: &o.engine, Usage: "`ENGINE` that tests: assay, dcgm (NVIDIA's, by dcgmi diag), or both one after the other"},
			&cli.DurationFlag{Name: "dcgm-timeout", Destination: &o.dcgmTimeout, Usage: "stop dcgmi diag after `TIME` (default: by its level)"},
			&cli.StringSliceFlag{Name: "only", Destination: &o.only, Usage: "run only `TEST`; may be repeated: " + strings.Join(diag.Names(), " ")},
			&cli.StringSliceFlag{Name: "skip", Destination: &o.skip, Usage: "leave out `TEST`; may be repeated"},
			&cli.StringFlag{Name: "out", Destination: &o.file, Usage: "also write the report to `FILE`, as JSON"},
			&cli.StringFlag{Name: "limits", Destination: &o.limits, Hidden: true},
			&cli.StringFlag{Name: "child", Destination: &o.child, Hidden: true},
		},
		OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			if err := grammar.NoArgs(c); err != nil {
				return err
			}
			if o.child != "" {
				return diagChild(c.Context, o.child, out)
			}
			plan, err := o.plan()
			if err != nil {
				return err
			}
			if err := checkOut(o.file); err != nil {
				return err
			}
			return o.report(c.Context, plan)
		},
	}
}

// plan checks the flags.
func (o *diagOptions) plan() (diag.Plan, error) {
	p, err := diag.Select(o.run, o.only.Value(), o.skip.Value())
	if err != nil {
		return p, exit.Usagef("%w", err)
	}
	if p.Params, err = diag.ParseParams(o.params.Value()...); err != nil {
		return p, exit.Usagef("-p: %w", err)
	}
	p.Duration, p.Timeout = o.duration, o.timeout
	switch {
	case o.duration < 0 || o.timeout < 0 || o.dcgmTimeout < 0:
		return p, exit.Usagef("--duration %v --timeout %v --dcgm-timeout %v: they are from 0 up", o.duration, o.timeout, o.dcgmTimeout)
	}
	if err := o.checkEngine(p); err != nil {
		return p, err
	}
	if o.gpus == "" {
		return p, nil
	}
	for text := range strings.SplitSeq(o.gpus, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 0 {
			return p, exit.Usagef("--gpus %q is not a list of numbers such as 0,1", o.gpus)
		}
		p.GPUs = append(p.GPUs, n)
	}
	return p, nil
}

// checkEngine refuses what an engine cannot do.
func (o *diagOptions) checkEngine(p diag.Plan) error {
	switch o.engine {
	case hostengine.Assay:
		return nil
	case hostengine.Name, hostengine.Both:
	default:
		return exit.Usagef("--engine is assay, dcgm or both, not %q", o.engine)
	}
	switch {
	case o.gpus != "":
		return exit.Usagef("--gpus numbers GPUs as CUDA does, and DCGM does otherwise: leave it out, or use --engine assay")
	case o.engine == hostengine.Name && (len(p.Params) > 0 || o.duration > 0):
		return exit.Usagef("-p and --duration are assay's: leave them out, or use --engine assay or both")
	case o.engine == hostengine.Name && hostengine.Tests(p) == "":
		return exit.Usagef("-r %s: DCGM has none of these tests; use --engine assay", o.run)
	}
	return nil
}

// diagChild runs one test in a child process. Only the parent uses its input and output
// format.
func diagChild(ctx context.Context, name string, out io.Writer) error {
	db, err := platform.Load()
	if err != nil {
		return err
	}
	return diag.Child(ctx, name, diag.Environment{
		Open:    func() (diag.Machine, error) { return diag.Open(sysfs.FS{}) },
		Sensors: func() (diag.Sensors, error) { return nvml.Open() }, Links: nvml.New().Links, DB: db, Root: "/", Environ: os.Environ(),
	}, os.Stdin, out)
}

// diagCommandLine returns the command of a child; tests replace it.
var diagCommandLine = func(ctx context.Context, name string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "diag", "--child", name)
	cmd.Args[0] = "harness" // whatever name this process was started under
	return cmd
}

// report runs the plan, and returns the exit status of its report.
func (o *diagOptions) report(ctx context.Context, plan diag.Plan) error {
	if o.limits != "" {
		if err := json.Unmarshal([]byte(o.limits), &plan.Limits); err != nil {
			return exit.Usagef("--limits: %w", err)
		}
	}
	begun := time.Now()
	bar := newStatusLine(o.stderr)
	runner := diag.Runner{Command: diagCommandLine, Observe: func(e diag.Event) {
		bar.show("%.78s", fmt.Sprintf("%d/%d %s %s", e.Done+1, e.Total, e.Test.Name, e.Text))
		if bar.w == nil && e.Verdict != "" { // the log of a run of some minutes shows how far it is
			fmt.Fprintf(o.stderr, "%d/%d %s: %s\n", e.Done, e.Total, e.Test.Name, e.Verdict)
		}
	}}
	r, gpus, err := hostengine.RunAll(ctx, o.engine, plan, runner, o.dcgmTimeout)
	bar.clear()
	switch {
	case errors.Is(err, hostengine.ErrMissing):
		return exit.With(exit.NotDone, err)
	case errors.Is(err, diag.ErrGPUs):
		return exit.Usagef("--gpus %s: %w", o.gpus, err)
	case r == nil:
		if errors.Is(err, driver.ErrNoDriver) {
			return err
		}
		return exit.With(exit.NotDone, err)
	}
	r.Kind, r.Version, r.Time, r.Seconds = "diag", version.Get().String(), begun.UTC().Truncate(time.Second), time.Since(begun).Seconds()
	r.Host, _ = os.Hostname()
	var head []string
	for _, g := range gpus {
		head = append(head, g.String())
	}
	if werr := writeFound(r, o.stdout, o.format, o.file, report.TextOptions{Head: head}); werr != nil || err != nil {
		return errors.Join(err, werr)
	}
	switch {
	case r.Verdict == result.Fail || r.Verdict == result.Error:
		return exit.With(exit.Fail, nil)
	case r.Verdict == result.Skip:
		return exit.With(exit.NotDone, errors.New("all tests were skipped: nothing is known of these GPUs"))
	}
	return nil
}
