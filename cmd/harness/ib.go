package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/getopt"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/version"
	"github.com/assay-hpc/assay/internal/words"
	"github.com/assay-hpc/assay/perftest/gpumem"
	"github.com/assay-hpc/assay/perftest/mesh"
	"github.com/assay-hpc/assay/perftest/probe"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// ibCommand measures RDMA. Its flags are perftest's, which urfave/cli cannot parse:
// bundles such as -aF, values such as -s65536.
func ibCommand(out, errOut io.Writer) *cli.Command {
	return &cli.Command{
		Name: "ib", Usage: "measure RDMA bandwidth and latency (compatible with perftest)", ArgsUsage: "TOOL|mesh|devices [FLAG...] [HOST]",
		SkipFlagParsing: true,
		BashComplete:    func(c *cli.Context) { completeIB(out, c.Args().Slice()) },
		Action: func(c *cli.Context) error {
			return ib(c.Context, c.Args().Slice(), out, errOut)
		},
	}
}

// completeIB offers tools first, and then the tool's flags.
func completeIB(out io.Writer, args []string) {
	if len(args) > 0 && args[0] == "mesh" {
		fmt.Fprintln(out, strings.Join(mesh.FlagNames(), "\n"))
		return
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		if t, ok := probe.FindTool(args[0]); ok {
			fmt.Fprintln(out, strings.Join(t.FlagNames(), "\n"))
		}
		return
	}
	fmt.Fprintln(out, strings.Join(append(probe.ToolNames(), "mesh", "devices"), "\n"))
}

// ib runs "harness ib TOOL …".
func ib(ctx context.Context, args []string, out, errOut io.Writer) error {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
		_, err := fmt.Fprintf(out, "Usage: harness ib TOOL [FLAG...]        start a server and wait for a client\n       harness ib TOOL [FLAG...] HOST   connect to the server at HOST\n       harness ib devices               list RDMA devices, ports and GIDs\n       harness ib mesh [FLAG...]        measure between all ports of a job, or of this host\n\nTools: %s\nharness ib TOOL --help lists a tool's flags.\n", strings.Join(probe.ToolNames(), " "))
		return err
	}
	name := strings.TrimPrefix(args[0], "ib_")
	if name == "devices" {
		return ibDevices(args[1:], out, errOut)
	}
	if name == "mesh" {
		return ibMesh(ctx, args[1:], out, errOut)
	}
	t, ok := probe.FindTool(name)
	if !ok {
		return exit.Usagef("ib: there is no tool %q; did you mean %q?", args[0], words.Nearest(name, append(probe.ToolNames(), "mesh", "devices")))
	}
	if err := ibTest(ctx, t, "harness ib "+t.Name, args[1:], out, errOut); err != nil {
		return ibStatus(t, err)
	}
	return nil
}

// ibProgram reports whether a program's name is one of perftest's.
func ibProgram(argv0 string) (t probe.Tool, ok bool) {
	name, ok := strings.CutPrefix(filepath.Base(argv0), "ib_")
	if !ok {
		return t, false
	}
	return probe.FindTool(name)
}

// runIB is the program under one of perftest's names. Its exit statuses are the
// harness's: perftest's do not distinguish a wrong option from a lost peer.
func runIB(ctx context.Context, t probe.Tool, args []string, out, errOut io.Writer) int {
	name := filepath.Base(args[0])
	err := ibTest(ctx, t, name, args[1:], out, errOut)
	if err == nil {
		return exit.Pass
	}
	code := exit.Of(ibStatus(t, err))
	if code == exit.Usage {
		err = fmt.Errorf("%w (see %s --help)", err, name)
	}
	fmt.Fprintf(errOut, "%s: %v\n", name, err)
	return code
}

// ibStatus gives an error its exit status.
func ibStatus(t probe.Tool, err error) error {
	code := exit.NotDone
	var flag *probe.FlagError
	var usage *getopt.Error
	switch {
	case errors.As(err, &flag), errors.As(err, &usage), errors.Is(err, wire.ErrLocal):
		code = exit.Usage
		err = fmt.Errorf("%w (see harness ib %s --help)", err, t.Name)
	case errors.Is(err, probe.ErrFailed), errors.Is(err, wire.ErrMismatch):
		code = exit.Fail
	}
	return exit.With(code, fmt.Errorf("ib %s: %w", t.Name, err))
}

// ibTest runs one side of a test, as the program of the given name.
func ibTest(ctx context.Context, t probe.Tool, name string, args []string, out, errOut io.Writer) error {
	c, err := t.Parse(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		_, err = io.WriteString(out, t.Usage(name))
		return err
	case errors.Is(err, getopt.ErrVersion):
		_, err = fmt.Fprintf(out, "Version: %s (harness %s)\n", wire.Version, version.Get())
		return err
	case err != nil:
		return err
	}
	for _, r := range c.Remarks() {
		fmt.Fprintf(errOut, "%s: %s\n", name, r)
	}
	c.Allocate = gpumem.Allocate
	return ibMeasure(ctx, &c, name, out, errOut)
}

// ibMeasure runs the test and writes its results.
func ibMeasure(ctx context.Context, c *probe.Config, name string, out, errOut io.Writer) error {
	table := c.Table(out)
	bar := newStatusLine(errOut)
	bar.from = time.Now().Add(2 * time.Second) // short tests need no progress
	ev := probe.Events{
		Waiting:  table.Waiting,
		Note:     func(s string) { bar.clear(); fmt.Fprintf(errOut, "%s: %s\n", name, s) },
		Progress: func(s string) { bar.show("%s", s) },
	}
	if c.Format != "json" {
		ev.Header = table.Header
		ev.Row = func(r probe.Row) { bar.clear(); table.Row(r) }
	}
	o, err := ibRun(ctx, *c, ev)
	bar.clear()
	if err != nil {
		return err
	}
	return ibReport(c, table, o, out)
}

// ibRun is probe.Run; tests replace it.
var ibRun = probe.Run

// ibDevices is "harness ib devices": it lists the possible values of -d, -i and -x.
func ibDevices(args []string, out, errOut io.Writer) error {
	set := flag.NewFlagSet("harness ib devices", flag.ContinueOnError)
	root := set.String("root", "/", "read sys below `DIR`")
	form := set.String("format", "text", "`FORMAT`: text or json")
	set.StringVar(form, "output", "text", "the same as --format")
	if done, err := exit.ParseFlags(set, args, errOut); done || err != nil {
		return err
	}
	if *form != "text" && *form != "json" {
		return exit.Usagef("--format is text or json, not %q", *form)
	}
	tree, err := sysfs.Open(*root)
	if err != nil {
		return exit.Usagef("ib devices: --root: %w", err)
	}
	list, err := probe.Devices(tree, func(err error) { fmt.Fprintf(errOut, "harness: %v\n", err) })
	switch {
	case err != nil:
		return fmt.Errorf("ib devices: %w", err)
	case *form == "json":
		return writeJSON(out, list)
	}
	return probe.WriteDevices(out, list)
}

// ibReport writes the end of the output. It returns an error if the results are below a
// limit.
func ibReport(c *probe.Config, table *probe.Table, o *probe.Outcome, out io.Writer) error {
	limits := c.Limits(o.Rows)
	if c.JSONFile != "" {
		b, err := c.PerftestJSON(o)
		if err == nil {
			err = outfile.Write(c.JSONFile, b)
		}
		if err != nil {
			return fmt.Errorf("--out_json: %w", err)
		}
	}
	if c.Format != "json" {
		if err := table.Close(); err != nil {
			return err
		}
		return limits
	}
	b, err := c.DocumentJSON(o, limits)
	if err == nil {
		_, err = out.Write(b)
	}
	if err != nil {
		return err
	}
	return limits
}
