package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/coll/tuning"
)

// collTune is "harness coll tune": it measures which algorithm is the fastest
// for each collective and size with the ranks that it was started with, and
// adds that to a file for ASSAY_TUNING.
func collTune(ctx context.Context, args []string, out, errOut io.Writer) error {
	fs := flag.NewFlagSet("harness coll tune", flag.ContinueOnError)
	fs.SetOutput(errOut)
	file := fs.String("out", "", "add the measurements to this `file` (made if it is not there)")
	threads := fs.Int("t", 1, "ranks in this process")
	from, to := fs.String("b", "8", "smallest size"), fs.String("e", "16M", "largest size")
	factor := fs.Int("f", 8, "factor between sizes")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return &statusError{exitUsage, nil} // said already
	}
	low, err1 := perf.ParseSize(*from)
	high, err2 := perf.ParseSize(*to)
	switch {
	case fs.NArg() > 0:
		return usagef("coll tune takes no argument %q", fs.Arg(0))
	case *file == "":
		return usagef("coll tune needs --out FILE, where the measurements go")
	case err1 != nil || err2 != nil || low < 1 || high < low || *factor < 2 || *threads < 1:
		return usagef("-b %s -e %s -f %d -t %d: no series of sizes, or no ranks", *from, *to, *factor, *threads)
	}
	var sizes []int
	for s := low; s <= high; s *= int64(*factor) {
		sizes = append(sizes, int(s))
	}
	m, err := tuning.LoadMeasurements(*file)
	if errors.Is(err, os.ErrNotExist) {
		m, err = &tuning.Measurements{Schema: 1, Machine: perf.MachineName()}, nil
	}
	if err != nil {
		return usagef("%w", err)
	}
	j, err := joinJob(ctx, *threads)
	if err != nil {
		return err
	}
	w, err := j.hostWorld(ctx)
	if err != nil {
		return err
	}
	count, err := tune(ctx, w, sizes, m, errOut)
	if closed := w.close(); err == nil {
		err = closed
	}
	if err != nil || w.Process != 0 {
		return err
	}
	if err := m.Save(*file); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d measurements with %d ranks are in %s; ASSAY_TUNING=%s makes use of them\n", count, w.Comms[0].Size(), *file, *file)
	return nil
}

// tune measures with all ranks of the process.
func tune(ctx context.Context, w *world, sizes []int, m *tuning.Measurements, errOut io.Writer) (count int, err error) {
	errs := make([]error, len(w.Comms))
	var wg sync.WaitGroup
	last := time.Now()
	for i, c := range w.Comms {
		wg.Go(func() {
			errs[i] = c.(*rankComm).Tune(ctx, sizes, func(p tuning.Point) {
				if i > 0 {
					return
				}
				m.Add(p)
				if count++; w.Process == 0 && isTerminal(errOut) && time.Since(last) > time.Second/5 {
					last = time.Now()
					fmt.Fprintf(errOut, "\r%-14s %-20s %10d bytes %12.2f us ", p.Collective, p.Algorithm, p.Bytes, p.Micros)
				}
			})
		})
	}
	wg.Wait()
	return count, errors.Join(errs...)
}
