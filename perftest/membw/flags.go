package membw

import (
	"flag"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/exit"
)

// ParseTest reads the arguments of bandwidthTest. done says that help was asked for, and has been
// written to errOut. Errors carry an exit status.
func ParseTest(args []string, errOut io.Writer) (o TestOptions, done bool, err error) {
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
	if done, err := exit.ParseFlags(fs, args, errOut); done || err != nil {
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

// ParseP2P reads the arguments of p2pBandwidthLatencyTest, as ParseTest does.
func ParseP2P(args []string, errOut io.Writer) (o P2POptions, done bool, err error) {
	fs := flag.NewFlagSet("harness bandwidth p2p", flag.ContinueOnError)
	fs.BoolVar(&o.Read, "p2p_read", false, "also measure copies that the receiving GPU makes")
	fs.BoolVar(&o.SM, "sm_copy", false, "copy by a kernel, not by copy engines")
	fs.IntVar(&o.Elements, "numElems", 40_000_000, "integers of 4 bytes of a copy")
	if done, err = exit.ParseFlags(fs, args, errOut); done || err != nil {
		return o, done, err
	}
	if o.Elements < 1 {
		return o, false, exit.Usagef("--numElems=%d: there must be one", o.Elements)
	}
	return o, false, nil
}

// ParseNV reads the arguments of nvbandwidth, as ParseTest does.
func ParseNV(args []string, errOut io.Writer) (o NVOptions, done bool, err error) {
	fs := flag.NewFlagSet("harness bandwidth nv", flag.ContinueOnError)
	both(fs.IntVar, &o.MiB, "b", "bufferSize", 512, "MiB of a buffer")
	both(fs.IntVar, &o.Samples, "i", "testSamples", 3, "samples of a testcase")
	both(fs.BoolVar, &o.Mean, "m", "useMean", false, "report the mean of the samples, not the median")
	both(fs.BoolVar, &o.List, "l", "list", false, "list the testcases")
	both(fs.BoolVar, &o.Verbose, "v", "verbose", false, "print all samples, and least, most and average")
	both(fs.BoolVar, &o.NoVerify, "s", "skipVerification", false, "do not check what was copied")
	both(fs.BoolVar, &o.NoAffinity, "d", "disableAffinity", false, "allocate host memory wherever this thread runs")
	both(fs.BoolVar, &o.JSON, "j", "json", false, "print JSON")
	for name, to := range map[string]*[]string{"t": &o.Testcases, "testcase": &o.Testcases, "p": &o.Prefixes, "testcasePrefixes": &o.Prefixes} {
		usage := "testcase by `name` or index; several may follow"
		if to == &o.Prefixes {
			usage = "testcases whose names begin with this `prefix`; several may follow"
		}
		fs.Func(name, usage, func(s string) error { *to = append(*to, s); return nil })
	}
	if done, err = exit.ParseFlags(fs, repeated(args), errOut); done || err != nil {
		return o, done, err
	}
	if !o.List && (o.MiB < 1 || o.Samples < 1) {
		return o, false, exit.Usagef("-b %d -i %d: there must be one of each", o.MiB, o.Samples)
	}
	return o, false, nil
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
