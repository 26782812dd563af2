package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/harness/nvml"
	"github.com/assay-hpc/assay/harness/version"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/perftest/membw"
)

// bandwidthPrograms maps names of NVIDIA's programs to the tools that do the same. The
// harness acts as such a program if it is started under that name.
var bandwidthPrograms = map[string]func(context.Context, []string, io.Writer, io.Writer) error{
	"bandwidthTest": bandwidthTestTool, "p2pBandwidthLatencyTest": bandwidthP2P, "nvbandwidth": bandwidthNV,
}

// runBandwidth runs the tool for one of those names; ok is false for other names.
func runBandwidth(ctx context.Context, args []string, out, errOut io.Writer) (code int, ok bool) {
	name := filepath.Base(args[0])
	tool, ok := bandwidthPrograms[name]
	if !ok {
		return 0, false
	}
	err := tool(ctx, args[1:], out, errOut)
	if err != nil && err.Error() != "" {
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
	}
	return exitCode(err), true
}

// parseTool parses a tool's flags. done: help was requested.
func parseTool(fs *flag.FlagSet, args []string, errOut io.Writer) (done bool, err error) {
	fs.SetOutput(errOut)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return true, nil
	case err != nil:
		return false, exit.With(exit.Usage, nil) // already printed
	case fs.NArg() > 0:
		return false, exit.Usagef("%s takes no argument %q", strings.TrimPrefix(fs.Name(), "harness "), fs.Arg(0))
	}
	return false, nil
}

// onMachine runs a tool on the GPUs. A wrong or failed measurement is a failed check.
func onMachine(ctx context.Context, anywhere bool, f func(membw.Machine) error) error {
	m, err := openMachine(anywhere)
	if err != nil {
		return err
	}
	err = f(m)
	closed := m.Close()
	if err != nil && ctx.Err() == nil {
		return exit.With(exit.Fail, err)
	}
	return errors.Join(err, closed)
}

// bandwidthTestTool is "harness bandwidth test".
func bandwidthTestTool(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, done, err := parseBandwidthTest(args, errOut)
	if done || err != nil {
		return err
	}
	return onMachine(ctx, false, func(m membw.Machine) error { return o.Run(ctx, m, out) })
}

func parseBandwidthTest(args []string, errOut io.Writer) (o membw.TestOptions, done bool, err error) {
	fs := flag.NewFlagSet("harness bandwidth test", flag.ContinueOnError)
	fs.StringVar(&o.Mode, "mode", "quick", "quick, range or shmoo")
	memory := fs.String("memory", "pinned", "of the host: pinned or pageable")
	device := fs.String("device", "0", "a GPU's `number`, or all: their bandwidths are added")
	for name, d := range map[string]*bool{"htod": &o.HtoD, "dtoh": &o.DtoH, "dtod": &o.DtoD} {
		fs.BoolVar(d, name, false, "measure this direction (without any: all)")
	}
	fs.IntVar(&o.Start, "start", 0, "smallest size in bytes, in range mode")
	fs.IntVar(&o.End, "end", 0, "largest size in bytes, in range mode")
	fs.IntVar(&o.Increment, "increment", 0, "bytes between sizes, in range mode")
	fs.BoolVar(&o.WriteCombined, "wc", false, "pinned memory is write-combined")
	fs.BoolVar(&o.CSV, "csv", false, "print lines of CSV")
	fs.BoolVar(&o.CPUTiming, "cputiming", false, "time by the host's clock")
	if done, err := parseTool(fs, args, errOut); done || err != nil {
		return o, done, err
	}
	o.Pageable, o.All = *memory == "pageable", *device == "all"
	if o.Device, err = strconv.Atoi(*device); o.All {
		err = nil
	}
	switch {
	case !o.Pageable && *memory != "pinned":
		err = exit.Usagef("--memory is pinned or pageable, not %q", *memory)
	case err != nil:
		err = exit.Usagef("--device is a GPU's number or all, not %q", *device)
	case o.Mode == "range" && (o.Start < 1 || o.End < o.Start || o.Increment < 1):
		err = exit.Usagef("--mode=range takes --start, --end and --increment, in bytes: %d to %d by %d are no sizes", o.Start, o.End, o.Increment)
	case o.Mode != "quick" && o.Mode != "range" && o.Mode != "shmoo":
		err = exit.Usagef("--mode is quick, range or shmoo, not %q", o.Mode)
	}
	return o, false, err
}

// bandwidthP2P is "harness bandwidth p2p".
func bandwidthP2P(ctx context.Context, args []string, out, errOut io.Writer) error {
	var o membw.P2POptions
	fs := flag.NewFlagSet("harness bandwidth p2p", flag.ContinueOnError)
	fs.BoolVar(&o.Read, "p2p_read", false, "also measure copies that the receiving GPU makes")
	fs.BoolVar(&o.SM, "sm_copy", false, "copy by a kernel, not by copy engines")
	fs.IntVar(&o.Elements, "numElems", 40_000_000, "integers of 4 bytes of a copy")
	if done, err := parseTool(fs, args, errOut); done || err != nil {
		return err
	}
	if o.Elements < 1 {
		return exit.Usagef("--numElems=%d: there must be one", o.Elements)
	}
	return onMachine(ctx, false, func(m membw.Machine) error { return o.Run(ctx, m, out) })
}

// bandwidthNV is "harness bandwidth nv".
func bandwidthNV(ctx context.Context, args []string, out, errOut io.Writer) error {
	var o membw.NVOptions
	var noAffinity, list bool
	fs := flag.NewFlagSet("harness bandwidth nv", flag.ContinueOnError)
	both(fs.IntVar, &o.MiB, "b", "bufferSize", 512, "MiB of a buffer")
	both(fs.IntVar, &o.Samples, "i", "testSamples", 3, "samples of a testcase")
	both(fs.BoolVar, &o.Mean, "m", "useMean", false, "report the mean of the samples, not the median")
	both(fs.BoolVar, &list, "l", "list", false, "list the testcases")
	both(fs.BoolVar, &o.Verbose, "v", "verbose", false, "print all samples, and least, most and average")
	both(fs.BoolVar, &o.NoVerify, "s", "skipVerification", false, "do not check what was copied")
	both(fs.BoolVar, &noAffinity, "d", "disableAffinity", false, "allocate host memory wherever this thread runs")
	both(fs.BoolVar, &o.JSON, "j", "json", false, "print JSON")
	for name, to := range map[string]*[]string{"t": &o.Testcases, "testcase": &o.Testcases, "p": &o.Prefixes, "testcasePrefixes": &o.Prefixes} {
		usage := "testcase by `name` or index; several may follow"
		if to == &o.Prefixes {
			usage = "testcases whose names begin with this `prefix`; several may follow"
		}
		fs.Func(name, usage, func(s string) error { *to = append(*to, s); return nil })
	}
	if done, err := parseTool(fs, repeated(args), errOut); done || err != nil {
		return err
	}
	if list {
		return membw.ListNV(out)
	}
	if o.MiB < 1 || o.Samples < 1 {
		return exit.Usagef("-b %d -i %d: there must be one of each", o.MiB, o.Samples)
	}
	o.Version, o.Driver = "assay "+version.Get().Version, "not known"
	o.Host, _ = os.Hostname()
	if lib, err := nvml.Open(); err == nil {
		defer lib.Close()
		if d, err := lib.Driver(); err == nil {
			o.Driver = d.Version
		}
	}
	return onMachine(ctx, noAffinity, func(m membw.Machine) error { return o.Run(ctx, m, out) })
}

// both defines a flag by two names.
func both[T any](define func(*T, string, T, string), to *T, short, long string, value T, usage string) {
	define(to, short, value, usage)
	define(to, long, value, "the same as -"+short)
}

// repeated expands a list after -t or -p into one flag per value: nvbandwidth accepts
// "-t A B".
func repeated(args []string) (out []string) {
	list := ""
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "-"):
			list = ""
			if slices.Contains([]string{"t", "testcase", "p", "testcasePrefixes"}, strings.TrimLeft(a, "-")) {
				list = a
				continue
			}
			out = append(out, a)
		case list != "":
			out = append(out, list, a)
		default:
			out = append(out, a)
		}
	}
	if n := len(args); list != "" && n > 0 && args[n-1] == list {
		out = append(out, list) // so that the parser reports the missing value
	}
	return out
}
