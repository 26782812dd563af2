package membw

import (
	"flag"
	"io"
	"strconv"

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
