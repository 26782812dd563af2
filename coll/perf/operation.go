package perf

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/assay-hpc/assay/coll/op"
)

// An operation is a collective with a size, a placement and everything else that it needs, on one
// rank.
type operation struct {
	w       *worker
	comm    Comm
	lane    Lane // nil: an operation is complete when it returns
	graph   int  // launches of a graph; 0: no graph
	v       volume
	k       combination
	op      op.Op
	inPlace bool
	chosen  string // the engine's name for the algorithm; empty: unknown
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

// issue starts the operation, with its buffers offset by the given number of bytes. On the
// processor the operation is then complete.
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

// note asks the engine how it did the operation, right after it was issued or recorded: barriers
// and exchanges may be operations of the engine, too.
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
		m.wrong, m.flips, err = w.verify(ctx, o)
	}
	return m, err
}

// lead is how many operations run before those that are timed. After GPUs have been idle for some
// milliseconds, as while data is verified, the first operations of some sizes take 120 us each,
// with NCCL as well: one operation is not enough to make the GPUs ready (on H200s four are).
func (o *operation) lead() int {
	if o.lane != nil && o.v.bytes() <= shortMessage {
		return 5
	}
	return 1
}

// shortMessage is the size up to which a placement on GPUs takes so little time that the result
// shows when a processor stalls for a moment.
const shortMessage = 4 << 20

// batches times the iterations; for small messages on GPUs several times, and returns the median.
// A virtual machine's processors stall for 0.1 to 0.4 ms some ten times a second: 20 iterations
// of 4 us that are hit by one such stall take five times as long, with any engine.
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

// grouped launches what f issues as one. Most of the time is spent in the launch.
func (o *operation) grouped(f func() error) func() error {
	w := o.w
	queue := func() error {
		err := f()
		w.enter() // f only queued its operations: the launch starts now
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

// truth returns the expected data of a round of verification.
func (w *worker) truth(o *operation, round int) *truth {
	g := w.generator(o, round)
	p := period(w.maxBytes()/int64(o.k.t.Size()), g.n)
	return w.source.truth(w.c, g, w.comm.Rank(), o.k.root, p)
}

func (w *worker) generator(o *operation, round int) generator {
	return generator{t: o.k.t, red: o.k.red, n: w.comm.Size(), seed: uint64(round) + 1, rounded: w.cfg.SameBits}
}

// verify runs the rounds of -c until one fails, and counts this rank's wrong
// elements in the last one. flips are the first of them.
func (w *worker) verify(ctx context.Context, o *operation) (bad int64, flips []flipped, err error) {
	for round := range w.cfg.Check {
		t := w.truth(o, round)
		if err := t.prepare(o.v, o.inPlace, &w.buffers, &w.medium); err != nil {
			return 0, nil, w.failed(EngineError, err)
		}
		// With the barrier, a rank that waits for one that still prepares does not count as stuck
		// (-T).
		if err := w.barrier(); err != nil {
			return 0, nil, err
		}
		if err := o.launchOnce(); err != nil {
			return 0, nil, err
		}
		if err := w.inject(); err != nil {
			return 0, nil, err
		}
		if bad, err = t.wrong(o.v, o.inPlace, &w.buffers, &w.medium); err != nil {
			return 0, nil, w.failed(EngineError, err)
		}
		if bad > 0 {
			if flips, err = w.flips(o, t, w.generator(o, round)); err != nil {
				return 0, nil, w.failed(EngineError, err)
			}
		}
		if round == w.cfg.Check-1 {
			break
		}
		if all, err := w.sum(ctx, bad); err != nil || all > 0 {
			return bad, flips, err
		}
	}
	return bad, flips, nil
}

// inject changes a byte of this rank's result, if it is the one of --inject-error: verification
// must find that.
func (w *worker) inject() error {
	if w.cfg.Inject == "" {
		return nil
	}
	mine := strconv.Itoa(w.world.Rank()) == w.cfg.Inject
	if d := w.session.world.Device; d != nil && !mine {
		mine = d(w.i).Address() == w.cfg.Inject
	}
	first := w.recv.data()
	if !mine || len(first) == 0 {
		return nil
	}
	if l := w.medium.lane; l != nil {
		return w.failed(EngineError, l.Fill(first[:1], []byte{0xa5}, 0))
	}
	first[0] ^= 1
	return nil
}
