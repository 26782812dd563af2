package perf

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// An operation is a collective with a size, a placement and all else that it
// needs, on one rank.
type operation struct {
	w       *worker
	comm    Comm
	lane    Lane // nil: an operation is complete when it returns
	graph   int  // launches of a graph; 0: no graph
	v       volume
	k       combination
	op      op.Op
	inPlace bool
	chosen  string // the engine's name for how it is done; empty: it does not know
}

func (w *worker) operation(v volume, k combination, inPlace bool) *operation {
	o := w.operationOf(w.comm, v, k, inPlace)
	if o.lane != nil {
		o.graph = w.cfg.Graph
	}
	return o
}

func (w *worker) operationOf(c Comm, v volume, k combination, inPlace bool) *operation {
	return &operation{
		w: w, comm: c, lane: laneOf(c), v: v, k: k, inPlace: inPlace,
		op: op.Op{Coll: w.c.Collective, Count: int(v.count), Type: k.t, Red: k.op, Root: k.root},
	}
}

// issue begins the operation, its buffers so many bytes further on. On the
// processor it is complete then.
func (o *operation) issue(offset int64) error {
	w := o.w
	o.op.Send, o.op.Recv = w.c.buffers(w.send.data()[offset:], w.recv.data()[offset:], o.v, o.comm.Rank(), o.inPlace)
	w.enter()
	err := o.comm.Do(&o.op)
	if o.lane == nil {
		w.leave()
	}
	return w.failedBy(o.comm, err)
}

// wait returns when all that was issued is complete.
func (o *operation) wait() error {
	if o.lane == nil {
		return nil
	}
	w := o.w
	w.enter()
	err := o.lane.Wait()
	w.leave()
	return w.failedBy(o.comm, err)
}

// once runs the operation, and waits for it.
func (o *operation) once() error {
	if err := o.issue(0); err != nil {
		return err
	}
	o.note()
	return o.wait()
}

// note asks the engine how the operation is done, right after it was issued or
// recorded: barriers and exchanges may be operations of the engine, too.
func (o *operation) note() {
	if c, ok := o.comm.(Chooser); ok {
		o.chosen = c.Chosen()
	}
}

// enter and leave tell the watchdog, if there is one, that an operation is
// under way.
func (w *worker) enter() {
	if w.cfg.Timeout > 0 {
		w.pulse.busy.Store(true)
	}
}

func (w *worker) leave() {
	if w.cfg.Timeout > 0 {
		w.pulse.ops.Add(1)
		w.pulse.busy.Store(false)
	}
}

// placement measures the operation, and verifies it on fresh data.
func (w *worker) placement(ctx context.Context, o *operation, iters int) (measure, error) {
	verify := w.cfg.Check > 0 && w.c.verifiable(o.inPlace)
	if verify {
		if err := w.truth(o, 0).prepare(o.v, o.inPlace, &w.buffers, &w.medium); err != nil {
			return measure{}, w.failed(EngineError, err)
		}
	}
	for range o.lead() {
		if err := o.once(); err != nil {
			return measure{}, err
		}
	}
	if err := w.barrier(); err != nil {
		return measure{}, err
	}
	m, err := w.batches(o, iters)
	if err != nil {
		return m, err
	}
	if err := w.barrier(); err != nil {
		return m, err
	}
	m.wrong = -1
	if verify {
		m.wrong, err = w.verify(ctx, o)
	}
	return m, err
}

// lead is how many operations go before those that are timed. When GPUs have had
// nothing to do for some milliseconds, as while data is verified, the first
// operations of some sizes take 120 us each, NCCL's too: one is not enough to have
// them ready (on H200s four are).
func (o *operation) lead() int {
	if o.lane != nil && o.v.bytes() <= shortMessage {
		return 5
	}
	return 1
}

// shortMessage is up to which size a placement on GPUs takes so little time that
// a processor which stands still for a moment shows in it.
const shortMessage = 4 << 20

// batches times the iterations; for small messages on GPUs several times, of which
// the median counts. A virtual machine's processors stand still for 0.1 to 0.4 ms
// some ten times a second: 20 iterations of 4 us that one of these hits take five
// times as long, with any engine.
func (w *worker) batches(o *operation, iters int) (measure, error) {
	n := 1
	if o.lane != nil && o.v.bytes() <= shortMessage {
		n = max(1, w.cfg.Batches)
	}
	all := make([]measure, n)
	for i := range all {
		if i > 0 {
			if err := w.barrier(); err != nil {
				return measure{}, err
			}
		}
		var err error
		if all[i], err = w.timed(o, iters, w.cfg.AggIters); err != nil {
			return all[i], err
		}
	}
	slices.SortStableFunc(all, func(a, b measure) int { return cmp.Compare(a.elapsed, b.elapsed) })
	return all[n/2], nil
}

// grouped launches what f issues as one. The launch is where the time goes.
func (o *operation) grouped(f func() error) func() error {
	w := o.w
	queue := func() error {
		err := f()
		w.enter() // f's operations only queued: the launch begins
		return err
	}
	return func() error {
		w.enter()
		err := o.comm.Group(queue)
		if o.lane == nil {
			w.leave()
		}
		if f, ok := errors.AsType[*Failure](err); ok {
			return f
		}
		return w.failedBy(o.comm, err)
	}
}

// truth is that of a round of verification.
func (w *worker) truth(o *operation, round int) *truth {
	n := w.comm.Size()
	g := generator{t: o.k.t, red: o.k.red, n: n, seed: uint64(round) + 1}
	p := period(w.maxBytes()/int64(o.k.t.Size()), n)
	return w.source.truth(w.c, g, w.comm.Rank(), o.k.root, p)
}

// verify runs the rounds of -c until one fails, and counts this rank's wrong
// elements in the last one.
func (w *worker) verify(ctx context.Context, o *operation) (int64, error) {
	bad := int64(0)
	for round := range w.cfg.Check {
		t := w.truth(o, round)
		if err := t.prepare(o.v, o.inPlace, &w.buffers, &w.medium); err != nil {
			return 0, w.failed(EngineError, err)
		}
		// A rank that waits for one that still prepares is not stuck (-T).
		if err := w.barrier(); err != nil {
			return 0, err
		}
		if err := o.launchOnce(); err != nil {
			return 0, err
		}
		var err error
		if bad, err = t.wrong(o.v, o.inPlace, &w.buffers, &w.medium); err != nil {
			return 0, w.failed(EngineError, err)
		}
		if round == w.cfg.Check-1 {
			break
		}
		if all, err := w.sum(ctx, bad); err != nil || all > 0 {
			return bad, err
		}
	}
	return bad, nil
}
