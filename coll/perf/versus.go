package perf

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/coll/elem"
)

// Best is the value of --versus that selects each engine's fastest kind of memory.
const Best = "best"

// graphLength is the largest number of operations in a graph when engines are compared: enough to
// hide the launch of the graph.
const graphLength = 100

// comparable reports whether the world has what --versus needs.
func (r *session) comparable() error {
	if r.cfg.Versus == "" {
		return nil
	}
	refuse := func(s Status, text string) error {
		return &Failure{Status: s, Rank: -1, Where: where(2), Err: errors.New("--versus: " + text)}
	}
	switch {
	case len(r.world.Against) == 0:
		return refuse(NotImplemented, "there is no other engine")
	case r.set.split.op != 0:
		return refuse(InvalidUsage, "groups of ranks (NCCL_TESTS_SPLIT) are not compared")
	case r.cfg.Launch == "on" && !r.graphs():
		return refuse(InvalidUsage, "--graph on: only GPUs have graphs")
	}
	for _, rival := range r.world.Against {
		if len(rival.Comms) != len(r.world.Comms) {
			return refuse(InternalError, fmt.Sprintf("%s has %d ranks here, not %d", rival.Engine, len(rival.Comms), len(r.world.Comms)))
		}
	}
	return nil
}

// graphs reports whether all engines can record graphs.
func (r *session) graphs() bool {
	return !slices.ContainsFunc(r.contenders(0), func(c Comm) bool { return laneOf(c) == nil })
}

// An entrant is one engine of a comparison, on this rank.
type entrant struct {
	comm Comm
	op   elem.Op // the combination's, for this communicator
}

// A variant is a way to run an operation: as a graph or not, on a kind of
// memory.
type variant struct {
	graph bool
	kind  int
}

// variants returns all variants that this run compares, the same ones on every rank.
func (w *worker) variants() []variant {
	var out []variant
	for kind := range w.kinds {
		if w.cfg.Launch != "on" {
			out = append(out, variant{false, kind})
		}
		if w.cfg.Launch != "off" && w.graphs() {
			out = append(out, variant{true, kind})
		}
	}
	return out
}

// versus runs a sweep on all engines, interleaved.
func (w *worker) versus(ctx context.Context, k combination) (err error) {
	w.entrants = nil
	for _, c := range w.contenders(w.i) {
		e := entrant{comm: c, op: k.red.Op}
		if k.red.Mulsum && w.c.Reduces() {
			p, ok := c.(PreMulSummer)
			if !ok {
				return w.withoutMulsum()
			}
			if e.op, err = w.preMulSum(p, k.t); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, w.failed(EngineError, p.FreeOp(e.op))) }()
		}
		w.entrants = append(w.entrants, e)
	}
	for _, size := range w.sizes() {
		for _, inPlace := range []bool{false, true} {
			if err := w.compare(ctx, w.c.volume(size, w.comm.Size(), k.t), k, inPlace); err != nil {
				return err
			}
		}
	}
	return nil
}

// A trial is one engine's part of a variant.
type trial struct {
	o        *operation
	kind     int
	graph    Graph // nil: eager
	launches int   // of the graph
	measure  measure
}

// compare measures all engines in all variants of one operation: one repetition of each trial
// after the other, then the next repetition of each, so that a change on the machine affects all
// of them.
func (w *worker) compare(ctx context.Context, v volume, k combination, inPlace bool) (err error) {
	if w.report != nil {
		w.report.progress(v, k)
	}
	trials := w.trials(v, k, inPlace)
	iters, err := w.enough(ctx, trials)
	if err != nil {
		return err
	}
	defer func() {
		for _, t := range trials {
			if t.graph != nil {
				err = w.closeGraph(t.o, t.graph, err)
			}
		}
	}()
	for _, t := range trials {
		if err := w.warm(t, iters); err != nil {
			return err
		}
	}
	for range w.cfg.Repeat {
		for _, t := range trials {
			if err := w.repetition(t, iters); err != nil {
				return err
			}
		}
	}
	return w.conclude(ctx, trials, iters)
}

// trials returns the trials of all variants, and in each variant of all engines, ours first.
func (w *worker) trials(v volume, k combination, inPlace bool) []*trial {
	var out []*trial
	for _, x := range w.variants() {
		for _, e := range w.entrants {
			k.op = e.op
			t := &trial{o: w.operationOf(e.comm, v, k, inPlace), kind: x.kind}
			if x.graph {
				t.o.graph = 1
			}
			out = append(out, t)
		}
	}
	return out
}

// enough returns the number of iterations for all trials: as many as the fastest engine needs to
// fill --min-time. It also runs each engine once on each kind of memory.
func (w *worker) enough(ctx context.Context, trials []*trial) (int, error) {
	most := 0
	for i, t := range trials {
		w.buffers = w.kinds[t.kind]
		if err := t.o.once(); err != nil {
			return 0, err
		}
		if i >= len(w.entrants) {
			continue
		}
		n, err := w.iterations(ctx, t.o)
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}
	if most > graphLength { // whole graphs, so that all trials run the same number
		most = (most + graphLength - 1) / graphLength * graphLength
	}
	return most, nil
}

// warm runs the warm-up of a trial. A graph is captured, and its first launch puts it onto the
// device.
func (w *worker) warm(t *trial, iters int) (err error) {
	w.buffers = w.kinds[t.kind]
	t.measure = measure{wrong: -1}
	for range w.cfg.Warmup {
		if err := t.o.once(); err != nil {
			return err
		}
	}
	if t.o.graph == 0 {
		return nil
	}
	length := min(iters, graphLength)
	t.launches = iters / length
	if t.graph, err = w.capture(t.o, length, w.cfg.AggIters); err != nil {
		return err
	}
	_, err = w.launches(t.o, t.graph, 1)
	return err
}

// repetition measures a trial once more.
func (w *worker) repetition(t *trial, iters int) (err error) {
	w.buffers = w.kinds[t.kind]
	if err := w.barrier(); err != nil {
		return err
	}
	var m measure
	if t.graph != nil {
		m, err = w.launches(t.o, t.graph, t.launches)
	} else {
		m, err = w.timed(t.o, iters, w.cfg.AggIters)
	}
	if err != nil {
		return err
	}
	t.measure.chosen = m.chosen
	t.measure.samples = append(t.measure.samples, m.elapsed)
	return nil
}

// conclude verifies every trial, and reports what all ranks measured.
func (w *worker) conclude(ctx context.Context, trials []*trial, iters int) error {
	if err := w.barrier(); err != nil {
		return err
	}
	var all [][]measure
	for _, t := range trials {
		w.buffers = w.kinds[t.kind]
		if w.cfg.Check > 0 && w.c.verifiable(t.o.inPlace) {
			var err error
			if t.measure.wrong, t.measure.flips, err = w.verify(ctx, t.o); err != nil {
				return err
			}
		}
		ms, err := w.collect(ctx, t.measure)
		if err != nil {
			return err
		}
		all = append(all, ms)
	}
	if w.report == nil {
		return nil
	}
	var rows []VersusRow
	n := len(w.entrants)
	for i := 0; i < len(trials); i += n {
		t := trials[i]
		row := VersusRow{
			Bytes: t.o.v.bytes(), Count: t.o.v.count, Type: t.o.k.t.String(), Redop: w.redop(t.o.k), Root: w.shownRoot(t.o.k),
			InPlace: t.o.inPlace, Graph: t.graph != nil, Memory: w.kinds[t.kind].kind, Iterations: iters * w.cfg.AggIters,
		}
		for _, ms := range all[i : i+n] {
			row.Engines = append(row.Engines, w.report.engineTime(t.o.v, ms, row.Iterations))
		}
		rows = append(rows, row)
	}
	return w.report.versus(rows)
}
