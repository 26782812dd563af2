package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/version"
	"github.com/assay-hpc/assay/internal/words"
	"github.com/assay-hpc/assay/perftest/membw"
)

// openMachine opens the GPUs of this machine; tests replace it.
var openMachine = func(anywhere bool) (membw.Machine, error) { return membw.Open(sysfs.FS{}, anywhere) }

type bandwidthOptions struct {
	format, size, versus    string
	file                    string
	samples, copies, warmup int
	accesses                int
	only                    cli.StringSlice
	noAffinity              bool
	stdout, stderr          io.Writer
}

func bandwidthCommand(out, errOut io.Writer) *cli.Command {
	o := bandwidthOptions{stdout: out, stderr: errOut}
	d := membw.Defaults()
	tool := func(name, usage, args string, run func(context.Context, []string, io.Writer, io.Writer) error) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: args, SkipFlagParsing: true,
			Action: func(c *cli.Context) error { return run(c.Context, c.Args().Slice(), out, errOut) },
		}
	}
	return &cli.Command{
		Name:  "bandwidth",
		Usage: "measure memory copies: host and GPU, GPU and GPU, within a GPU",
		Description: "Without a subcommand it measures every way through the node, verifies what was copied, and holds each\n" +
			"figure against what the hardware should reach. Exit status: 0 passed, with warnings or without; 1 a\n" +
			"figure failed or data was wrong; 3 there are no GPUs.",
		Flags: []cli.Flag{
			grammar.Format(&o.format, "text", "json"),
			&cli.StringFlag{Name: "out", Destination: &o.file, Usage: "also write the report to `FILE`, as JSON"},
			&cli.StringFlag{Name: "size", Value: "512M", Destination: &o.size, Usage: "each copy has `SIZE` bytes"},
			&cli.IntFlag{Name: "samples", Value: d.Samples, Destination: &o.samples, Usage: "take `N` samples, of which the median counts"},
			&cli.IntFlag{Name: "copies", Value: d.Copies, Destination: &o.copies, Usage: "each sample times `N` copies"},
			&cli.IntFlag{Name: "warmup", Value: d.Warmup, Destination: &o.warmup, Usage: "`N` copies before the first sample"},
			&cli.IntFlag{Name: "accesses", Value: d.Accesses, Destination: &o.accesses, Usage: "each sample of latency times `N` loads"},
			&cli.StringSliceFlag{Name: "only", Destination: &o.only, Usage: "measure only `FAMILY`; may be repeated: " + strings.Join(membw.FamilyNames(), " ")},
			&cli.StringFlag{Name: "versus", Destination: &o.versus, Usage: "compare with `WHAT`, in turns: memcpy is synchronous calls of cuMemcpy, as programs make them"},
			&cli.BoolFlag{Name: "no-affinity", Destination: &o.noAffinity, Usage: "allocate host memory wherever this thread runs, not next to the GPU"},
		},
		Subcommands: []*cli.Command{
			tool("test", "measure and print as NVIDIA's bandwidthTest does", "[FLAG...]", bandwidthTestTool),
			tool("p2p", "measure and print as NVIDIA's p2pBandwidthLatencyTest does", "[FLAG...]", bandwidthP2P),
			tool("table", "turn reports of --format json into Markdown", "FILE...", bandwidthTable),
		},
		OnUsageError: onUsageError,
		Before: func(c *cli.Context) error {
			if s := c.Args().First(); s != "" && c.Command.Name == "bandwidth" {
				return bandwidthSubcommand(c, s)
			}
			return nil
		},
		Action: func(c *cli.Context) error {
			options, err := o.parse()
			if err != nil {
				return err
			}
			if err := checkOut(o.file); err != nil {
				return err
			}
			return o.run(c.Context, options)
		},
	}
}

// bandwidthSubcommand refuses an unknown subcommand.
func bandwidthSubcommand(c *cli.Context, name string) error {
	var names []string
	for _, s := range c.Command.Subcommands {
		names = append(names, s.Name)
	}
	if name == "help" || name == "h" || slices.Contains(names, name) {
		return nil
	}
	return exit.Usagef("bandwidth has no subcommand %q; did you mean %q?", name, words.Nearest(name, names))
}

// parse checks the flags.
func (o *bandwidthOptions) parse() (membw.Options, error) {
	m := membw.Defaults()
	bytes, err := perf.ParseSize(o.size)
	m.Bytes, m.Samples, m.Copies, m.Warmup, m.Accesses = int(bytes), o.samples, o.copies, o.warmup, o.accesses
	m.Families, m.Versus = o.only.Value(), o.versus != ""
	switch {
	case err != nil || bytes < 1:
		return m, exit.Usagef("--size %q is not a size such as 512M", o.size)
	case o.samples < 1 || o.copies < 1 || o.warmup < 0 || o.accesses < 1:
		return m, exit.Usagef("--samples %d --copies %d --warmup %d --accesses %d: each must be 1 or more, except --warmup", o.samples, o.copies, o.warmup, o.accesses)
	case o.versus != "" && o.versus != "memcpy":
		return m, exit.Usagef("--versus is memcpy, not %q", o.versus)
	}
	for _, f := range m.Families {
		if n := words.Nearest(f, membw.FamilyNames()); n != f {
			return m, exit.Usagef("--only: there is no %q; did you mean %q?", f, n)
		}
	}
	return m, nil
}

func (o *bandwidthOptions) run(ctx context.Context, options membw.Options) (err error) {
	m, err := openMachine(o.noAffinity)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if options.DB, err = platform.Load(); err != nil {
		return err
	}
	driver := ""
	if lib, err := nvml.Open(); err == nil {
		defer lib.Close()
		if d, err := lib.Driver(); err == nil {
			driver = d.Version
		}
		options.Links = lib.Links
	}
	bar := newStatusLine(o.stderr)
	options.Progress = func(text string) { bar.show("%.78s", text) }
	r, err := options.Run(ctx, m)
	bar.clear()
	if err != nil {
		return err
	}
	r.Version = version.Get().String()
	r.Host, _ = os.Hostname()
	r.Driver = membw.DriverLine(driver, m.CUDA())
	return o.report(r)
}

// report writes the report and returns the exit status of its verdict.
func (o *bandwidthOptions) report(r *membw.Report) error {
	err := writeReport(r, o.stdout, o.format, o.file)
	if err == nil && r.Verdict == result.Fail {
		return exit.With(exit.Fail, nil)
	}
	return err
}

// bandwidthTable is "harness bandwidth table FILE...".
func bandwidthTable(_ context.Context, files []string, out, _ io.Writer) error {
	if len(files) == 0 {
		return exit.Usagef("bandwidth table needs files that harness bandwidth --format json wrote")
	}
	var reports []*membw.Report
	for _, name := range files {
		r, err := membw.ReadReport(name)
		if err != nil {
			return exit.Usagef("%w", err)
		}
		reports = append(reports, r)
	}
	return membw.WriteMarkdown(out, reports)
}
