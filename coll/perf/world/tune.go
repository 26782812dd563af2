package world

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/words"
)

// A Tuning measures which algorithm is the fastest for each collective and size.
type Tuning struct {
	PerProcess  int             // ranks of this process
	OnGPUs      bool            // each rank is on a GPU
	Sizes       []int           // bytes, ascending
	Collectives []op.Collective // on GPUs

	// Tables get the measurements, in the process of rank 0. Save is called there after each table
	// of GPUs, so that an interrupted run has some results, and at the end.
	Tables *choose.Tables
	Save   func() error

	// Show replaces the line that says what is being measured, Log writes a line that stays. The
	// process of rank 0 calls them.
	Show, Log func(text string)
	Warn      io.Writer // for warnings about variables
}

// Run measures. found says, in the process of rank 0, what has been measured; it is empty in
// others.
func (t *Tuning) Run(ctx context.Context) (found string, err error) {
	var all []perf.Device
	if t.OnGPUs {
		if all, err = GPUs(); err != nil {
			return "", fmt.Errorf("-g %d: %w", t.PerProcess, err)
		}
	}
	j, err := joinJob(ctx, t.PerProcess, t.Warn)
	if err != nil {
		return "", err
	}
	if t.OnGPUs {
		found, err = j.tuneOnGPUs(ctx, t, all)
	} else {
		found, err = j.tune(ctx, t)
	}
	if err != nil || j.where.Rank != 0 {
		return "", err
	}
	return found, t.Save()
}

func (j *job) tuneOnGPUs(ctx context.Context, t *Tuning, all []perf.Device) (found string, err error) {
	t.Sizes = wholeFloats(t.Sizes)
	rules := 0
	err = j.tuneGPUs(ctx, t, all, func(p choose.Place, rows []choose.Row) error {
		rules += len(rows)
		t.Tables.At(p).Rows = rows
		return t.Save()
	})
	return fmt.Sprintf("%d rules for %d GPUs", rules, j.where.Size*t.PerProcess), err
}

// wholeFloats rounds sizes up to whole floats and removes duplicates.
func wholeFloats(sizes []int) (out []int) {
	for _, s := range sizes {
		out = append(out, (s+3)/4*4)
	}
	return slices.Compact(out)
}

// tune measures with ranks on the processor.
func (j *job) tune(ctx context.Context, t *Tuning) (found string, err error) {
	w, err := j.hostWorld(ctx)
	if err != nil {
		return "", err
	}
	count, last := 0, time.Now()
	err = each(len(w.Comms), func(i int) error {
		return w.Comms[i].(*rankComm).Tune(ctx, t.Sizes, func(p choose.Place, k choose.Choice, bytes int, d time.Duration) {
			if i > 0 {
				return
			}
			t.Tables.At(p).Put(k, int64(bytes), d.Nanoseconds())
			if count++; w.Process == 0 && time.Since(last) > time.Second/5 {
				last = time.Now()
				t.Show(fmt.Sprintf("%-14s %-20s %10d bytes %12.2f us ", p.Collective, k.Algorithm, bytes, d.Seconds()*1e6))
			}
		})
	})
	if closed := w.Close(); err == nil {
		err = closed
	}
	return fmt.Sprintf("%d measurements with %d ranks", count, w.Comms[0].Size()), err
}

// gpuCollectives are the collectives that can be tuned. A size is that of the whole
// vector, or of one rank's part.
var gpuCollectives = []op.Collective{op.AllReduce, op.AllGather, op.ReduceScatter, op.Broadcast, op.Reduce, op.AllToAll, op.SendRecv, op.Gather, op.Scatter}

// usual is how many of gpuCollectives are tuned by default: the rules of gather and
// scatter are already good enough.
const usual = 7

// ParseCollectives parses a list of collectives to tune. An empty list means the usual ones.
func ParseCollectives(list string) ([]op.Collective, error) {
	if list == "" {
		return gpuCollectives[:usual], nil
	}
	var out []op.Collective
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(gpuCollectives, func(o op.Collective) bool { return o.Test() == name })
		switch {
		case i < 0:
			return nil, fmt.Errorf("there is no collective %q; did you mean %q?", name, words.Nearest(name, perf.Collectives()))
		case slices.ContainsFunc(out, func(o op.Collective) bool { return o.Test() == name }):
			return nil, fmt.Errorf("%s is there twice", name)
		}
		out = append(out, gpuCollectives[i])
	}
	return out, nil
}
