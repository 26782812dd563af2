package perf

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A ShapeResult is the mean of one large operation over a number of trials, in place.
type ShapeResult struct {
	Collective string  `json:"collective"`
	Bytes      int64   `json:"bytes"`
	Trials     int     `json:"trials"`
	Ranks      int     `json:"ranks"`
	Time       float64 `json:"time_us"`
	AlgBW      float64 `json:"algbw_gbs"`
	BusBW      float64 `json:"busbw_gbs"`
}

// String is the summary in the form that people compare: GB is 1e9 bytes, GBps 1e9 bytes per
// second and Gbps 1e9 bits per second.
func (s *ShapeResult) String() string {
	return fmt.Sprintf("The average bandwidth of %s with a %sGB payload (%d trials, %d ranks):\n algbw: %s\n busbw: %s\n",
		s.Collective, gigabytes(float64(s.Bytes)), s.Trials, s.Ranks, both(s.AlgBW), both(s.BusBW))
}

func both(gbs float64) string { return fmt.Sprintf("%.3f GBps (%.1f Gbps)", gbs, gbs*8) }

// gigabytes prints bytes in units of 1e9 with three digits, at least one of
// them after the point: 4.0, 0.004.
func gigabytes(n float64) string {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(n/1e9, 'g', 3, 64), 64)
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// A SplitResult compares one large operation with Parts small ones that move the same amount in
// total.
type SplitResult struct {
	Parts int     `json:"parts"`
	Whole int64   `json:"whole_bytes"`
	Part  int64   `json:"part_bytes"`
	One   float64 `json:"whole_busbw_gbs"`
	Many  float64 `json:"parts_busbw_gbs"`
}

// Ratio is how many times faster the large operation is.
func (s *SplitResult) Ratio() float64 { return s.One / s.Many }

func (s *SplitResult) String() string {
	return fmt.Sprintf("----- 1x %sGB -----\nbusbw: %.3f Gbps\n\n----- %dx %sGB -----\nbusbw: %.3f Gbps\n\nratio: %.2f\n",
		gigabytes(float64(s.Whole)), s.One*8, s.Parts, gigabytes(float64(s.Part)), s.Many*8, s.Ratio())
}

// defaultPayload is what --split compares when no size is given.
const defaultPayload = 4_000_000_000

// payload is the largest size of an operation in bytes, without regard to memory: the shape's, or
// -e.
func (c *Config) payload() int64 {
	switch {
	case len(c.Shape) > 0:
		n := int64(c.Types[0].Size())
		for _, d := range c.Shape {
			n *= d
		}
		return n
	case c.sweeps(), slices.Contains(c.given, "maxbytes"):
		return c.MaxBytes
	}
	return defaultPayload
}

// shape measures one operation of the whole payload, in place.
func (w *worker) shape(ctx context.Context) error {
	if need := w.cfg.payload(); w.maxBytes() < need {
		return w.failed(DeviceError, fmt.Errorf("--shape needs %d bytes for each buffer, and memory allows %d: use a smaller shape or fewer ranks", need, w.maxBytes()))
	}
	p, bytes, err := w.average(ctx, w.cfg.payload(), w.cfg.Trials)
	if err != nil || w.report == nil {
		return err
	}
	s := &ShapeResult{Collective: w.c.Test(), Bytes: bytes, Trials: w.cfg.Trials, Ranks: w.comm.Size(), Time: p.Time, AlgBW: p.AlgBW, BusBW: p.BusBW}
	w.report.res.Shape = s
	return w.report.summary(s)
}

// splitCompare measures one operation of the whole payload, and then Split small ones that add up
// to it. If memory is too small the payload shrinks.
func (w *worker) splitCompare(ctx context.Context) error {
	n := int64(w.cfg.Split)
	whole := min(w.cfg.payload(), w.maxBytes())
	one, wholeBytes, err := w.average(ctx, whole, 1)
	if err != nil {
		return err
	}
	many, partBytes, err := w.average(ctx, whole/n, w.cfg.Split)
	if err != nil || w.report == nil {
		return err
	}
	s := &SplitResult{Parts: w.cfg.Split, Whole: wholeBytes, Part: partBytes, One: one.BusBW, Many: many.BusBW}
	w.report.res.Split = s
	return w.report.summary(s)
}

// average runs an operation the given number of times, in place where that has a meaning, and
// returns the average time of the ranks, and the bytes that were moved. The -w warm-up operations
// run first.
func (w *worker) average(ctx context.Context, size int64, times int) (p Placement, bytes int64, err error) {
	k := combination{t: w.cfg.Types[0], red: w.cfg.Ops[0], root: max(0, w.cfg.Root)}
	if k.red.Mulsum {
		return p, 0, w.failed(InvalidUsage, fmt.Errorf("--shape and --split take no -o mulsum"))
	}
	k.op = k.red.Op
	if err := w.touch(k.t); err != nil {
		return p, 0, err
	}
	cfg := &w.cfg
	o := w.operation(w.c.volume(size, w.comm.Size(), k.t), k, !w.c.aliased())
	for range max(1, cfg.Warmup) {
		if err := o.once(); err != nil {
			return p, 0, err
		}
	}
	if err := w.barrier(); err != nil {
		return p, 0, err
	}
	m, err := w.timed(o, times, 1)
	if err != nil {
		return p, 0, err
	}
	ms, err := w.collect(ctx, m)
	if err != nil || w.report == nil {
		return p, 0, err
	}
	us := make([]float64, len(ms))
	for i, m := range ms {
		us[i] = float64(m.elapsed) / 1e3 / float64(times)
	}
	p.Time = cfg.Average.of(us)
	p.AlgBW, p.BusBW = w.c.bandwidth(o.v, p.Time, w.comm.Size())
	return p, o.v.total, nil
}

// summary prints the result of --shape or --split, unless JSON is wanted.
func (r *reporter) summary(s fmt.Stringer) error {
	if r.cfg.Output == "json" {
		return nil
	}
	out := r.std.Out
	if r.cfg.Bench {
		out = r.std.Err
	}
	_, err := io.WriteString(out, s.String())
	return err
}
