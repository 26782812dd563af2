package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/coll/perf/world"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/outfile"
)

// collTune is "harness coll tune": it measures which algorithm is the fastest
// for each collective and size with the ranks that it was started with, and
// adds that to a file for ASSAY_TUNING.
func collTune(ctx context.Context, args []string, out, errOut io.Writer) error {
	fs := flag.NewFlagSet("harness coll tune", flag.ContinueOnError)
	file := fs.String("out", "", "add the measurements to this `file` (made if it is not there)")
	threads := fs.Int("t", 1, "ranks in this process, on the processor")
	gpuRanks := fs.Int("g", 0, "GPUs in this process, each of which is a rank")
	from, to := fs.String("b", "8", "smallest size"), fs.String("e", "", "largest size (default 16M; of GPUs 1G)")
	factor := fs.Int("f", 0, "factor between sizes (default 8; of GPUs 2)")
	names := fs.String("collectives", "", "on GPUs, only these: all_reduce,all_gather,...")
	if done, err := exit.ParseFlags(fs, args, errOut); done || err != nil {
		return err
	}
	set := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	perProcess, onGPUs := *threads, set["g"]
	if onGPUs {
		perProcess = *gpuRanks
	}
	if !set["e"] {
		*to = map[bool]string{false: "16M", true: "1G"}[onGPUs]
	}
	if !set["f"] {
		*factor = map[bool]int{false: 8, true: 2}[onGPUs]
	}
	low, err1 := perf.ParseSize(*from)
	high, err2 := perf.ParseSize(*to)
	collectives, err := world.ParseCollectives(*names)
	switch {
	case *file == "":
		return exit.Usagef("coll tune needs --out FILE, where the measurements go")
	case onGPUs && set["t"]:
		return exit.Usagef("coll tune takes -t or -g: ranks are on the processor or on GPUs")
	case set["collectives"] && !onGPUs:
		return exit.Usagef("coll tune takes --collectives with -g only")
	case err != nil:
		return exit.Usagef("coll tune --collectives: %w", err)
	case err1 != nil || err2 != nil || low < 1 || high < low || *factor < 2 || perProcess < 1:
		return exit.Usagef("-b %s -e %s -f %d -t %d -g %d: no series of sizes, or no ranks", *from, *to, *factor, *threads, *gpuRanks)
	}
	m := &choose.Tables{Machine: perf.MachineName()}
	if b, err := infile.Read(*file, 16<<20); err == nil {
		if m, err = choose.ParseTables(b); err != nil {
			return exit.Usagef("%s: %w; measure again into another file, or remove this one", *file, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return exit.Usagef("%w", err)
	}
	bar := newStatusLine(errOut)
	defer bar.clear()
	t := world.Tuning{
		PerProcess: perProcess, OnGPUs: onGPUs, Sizes: series(low, high, *factor), Collectives: collectives, Tables: m,
		Save: func() error {
			b, err := m.Bytes()
			if err != nil {
				return err
			}
			return outfile.Write(*file, b)
		},
		Show: func(text string) { bar.show("%s", text) },
		Log:  func(text string) { bar.clear(); fmt.Fprintln(errOut, text) },
		Warn: errOut,
	}
	found, err := t.Run(ctx)
	if err != nil {
		return err
	}
	bar.clear()
	if found != "" {
		fmt.Fprintf(out, "%s are in %s; ASSAY_TUNING=%s makes use of them\n", found, *file, *file)
	}
	return nil
}

// series returns sizes from low to high, each factor times the previous one.
func series(low, high int64, factor int) (sizes []int) {
	for s := low; s <= high; s *= int64(factor) {
		sizes = append(sizes, int(s))
	}
	return sizes
}
