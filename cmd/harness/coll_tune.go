package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/perf"
)

// collTune is "harness coll tune": it measures which algorithm is the fastest
// for each collective and size with the ranks that it was started with, and
// adds that to a file for ASSAY_TUNING.
func collTune(ctx context.Context, args []string, out, errOut io.Writer) error {
	fs := flag.NewFlagSet("harness coll tune", flag.ContinueOnError)
	fs.SetOutput(errOut)
	file := fs.String("out", "", "add the measurements to this `file` (made if it is not there)")
	threads := fs.Int("t", 1, "ranks in this process, on the processor")
	gpuRanks := fs.Int("g", 0, "GPUs in this process, each of which is a rank")
	from, to := fs.String("b", "8", "smallest size"), fs.String("e", "", "largest size (default 16M; of GPUs 1G)")
	factor := fs.Int("f", 0, "factor between sizes (default 8; of GPUs 2)")
	names := fs.String("collectives", "", "on GPUs, only these: all_reduce,all_gather,...")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return &statusError{exitUsage, nil} // already printed
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
	collectives, err := parseCollectives(*names)
	switch {
	case fs.NArg() > 0:
		return usagef("coll tune takes no argument %q", fs.Arg(0))
	case *file == "":
		return usagef("coll tune needs --out FILE, where the measurements go")
	case onGPUs && set["t"]:
		return usagef("coll tune takes -t or -g: ranks are on the processor or on GPUs")
	case set["collectives"] && !onGPUs:
		return usagef("coll tune takes --collectives with -g only")
	case err != nil:
		return usagef("coll tune --collectives: %w", err)
	case err1 != nil || err2 != nil || low < 1 || high < low || *factor < 2 || perProcess < 1:
		return usagef("-b %s -e %s -f %d -t %d -g %d: no series of sizes, or no ranks", *from, *to, *factor, *threads, *gpuRanks)
	}
	sizes := series(low, high, *factor)
	m := &choose.Tables{Machine: perf.MachineName()}
	if b, err := os.ReadFile(*file); err == nil {
		if m, err = choose.ParseTables(b); err != nil {
			return usagef("%s: %w; measure anew into another file, or remove this one", *file, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return usagef("%w", err)
	}
	save := func() error {
		b, err := m.Bytes()
		if err != nil {
			return err
		}
		return writeFile(*file, b)
	}
	var all []perf.Device
	if onGPUs {
		if all, err = gpus(); err != nil {
			return &statusError{exitNotDone, fmt.Errorf("-g %d: %w", *gpuRanks, err)}
		}
	}
	j, err := joinJob(ctx, perProcess)
	if err != nil {
		return err
	}
	var found string
	if onGPUs {
		rules := 0
		err = j.tuneGPUs(ctx, gpuTuning{wholeFloats(sizes), collectives}, all, func(p choose.Place, rows []choose.Row) error {
			rules += len(rows)
			m.At(p).Rows = rows
			return save()
		}, errOut)
		found = fmt.Sprintf("%d rules for %d GPUs", rules, j.where.Size*perProcess)
	} else {
		found, err = j.tune(ctx, sizes, m, errOut)
	}
	if err != nil || j.where.Rank != 0 {
		return err
	}
	if err := save(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s are in %s; ASSAY_TUNING=%s makes use of them\n", found, *file, *file)
	return nil
}

// series returns sizes from low to high, each factor times the previous one.
func series(low, high int64, factor int) (sizes []int) {
	for s := low; s <= high; s *= int64(factor) {
		sizes = append(sizes, int(s))
	}
	return sizes
}

// wholeFloats rounds sizes up to whole floats and removes duplicates.
func wholeFloats(sizes []int) (out []int) {
	for _, s := range sizes {
		out = append(out, (s+3)/4*4)
	}
	return slices.Compact(out)
}

// tune measures with ranks on the processor.
func (j *job) tune(ctx context.Context, sizes []int, m *choose.Tables, errOut io.Writer) (found string, err error) {
	w, err := j.hostWorld(ctx)
	if err != nil {
		return "", err
	}
	count, err := tune(ctx, w, sizes, m, errOut)
	if closed := w.close(); err == nil {
		err = closed
	}
	return fmt.Sprintf("%d measurements with %d ranks", count, w.Comms[0].Size()), err
}

// tune measures with all ranks of the process.
func tune(ctx context.Context, w *world, sizes []int, m *choose.Tables, errOut io.Writer) (count int, err error) {
	errs := make([]error, len(w.Comms))
	var wg sync.WaitGroup
	last := time.Now()
	for i, c := range w.Comms {
		wg.Go(func() {
			errs[i] = c.(*rankComm).Tune(ctx, sizes, func(p choose.Place, k choose.Choice, bytes int, d time.Duration) {
				if i > 0 {
					return
				}
				m.At(p).Put(k, int64(bytes), d.Nanoseconds())
				if count++; w.Process == 0 && isTerminal(errOut) && time.Since(last) > time.Second/5 {
					last = time.Now()
					fmt.Fprintf(errOut, overwrite+"%-14s %-20s %10d bytes %12.2f us ", p.Collective, k.Algorithm, bytes, d.Seconds()*1e6)
				}
			})
		})
	}
	wg.Wait()
	return count, errors.Join(errs...)
}
