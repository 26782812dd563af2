package perf

import (
	"context"
	"errors"
	"time"
)

// An operation is a collective with a size, a placement and all else that it
// needs, on one rank.
type operation struct {
	w       *worker
	v       volume
	k       combination
	a       args
	inPlace bool
}

func (w *worker) operation(v volume, k combination, inPlace bool) *operation {
	return &operation{w: w, v: v, k: k, inPlace: inPlace, a: args{count: int(v.count), t: k.t, op: k.op, root: k.root}}
}

// once runs the operation, its buffers so many bytes further on.
func (o *operation) once(offset int64) error {
	w := o.w
	s, r := w.c.buffers(w.send.data()[offset:], w.recv.data()[offset:], o.v, w.comm.Rank(), o.inPlace)
	w.enter()
	err := w.c.run(w.comm, s, r, o.a)
	w.leave()
	if err != nil {
		return w.failed(EngineError, err)
	}
	return nil
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
func (w *worker) placement(ctx context.Context, o *operation) (measure, error) {
	verify := w.cfg.Check > 0 && w.c.verifiable(o.inPlace)
	if verify {
		w.truth(o, 0).prepare(o.v, o.inPlace, &w.send, &w.recv)
	}
	if err := o.once(0); err != nil {
		return measure{}, err
	}
	if err := w.barrier(); err != nil {
		return measure{}, err
	}
	m, err := w.timed(o, w.cfg.Iters, w.cfg.AggIters)
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

// timed runs all iterations back to back. Each begins where the last one's
// buffers ended, so that small sizes walk through all of the memory.
func (w *worker) timed(o *operation, iters, agg int) (measure, error) {
	cfg := &w.cfg
	step := o.v.bytes()
	wrap := int64(0) // where a step would leave the memory
	if step > 0 {
		wrap = w.maxBytes() / step * step
	}
	offset := int64(0)
	issue := func() error {
		for range agg {
			if err := o.once(offset); err != nil {
				return err
			}
			if offset += step; offset >= wrap {
				offset = 0
			}
			if cfg.Blocking == 1 {
				if err := w.barrier(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	launch := issue
	if agg > 1 && cfg.Blocking != 1 {
		launch = w.grouped(issue)
	}
	m := measure{waited: -1}
	if w.sampling() {
		m.samples = make([]time.Duration, 0, iters)
	}
	waited := w.waited()
	start := w.now()
	last, paused := start, time.Duration(0)
	for range iters {
		if err := launch(); err != nil {
			return m, err
		}
		if m.samples != nil {
			t := w.now()
			m.samples = append(m.samples, t-last)
			last = t
		}
		if cfg.Blocking == 3 {
			t := w.now()
			if err := w.barrier(); err != nil {
				return m, err
			}
			last = w.now()
			paused += last - t
		}
	}
	m.elapsed = w.now() - start - paused
	if after := w.waited(); after >= 0 {
		m.waited = after - waited
	}
	if c, ok := w.comm.(Chooser); ok {
		m.chosen = c.Chosen()
	}
	return m, nil
}

// grouped launches what f issues as one. The launch is where the time goes.
func (w *worker) grouped(f func() error) func() error {
	queue := func() error {
		err := f()
		w.enter() // f's operations only queued: the launch begins
		return err
	}
	return func() error {
		w.enter()
		err := w.comm.Group(queue)
		w.leave()
		if err == nil {
			return nil
		}
		var f *Failure
		if errors.As(err, &f) {
			return f
		}
		return w.failed(EngineError, err)
	}
}

// sampling reports whether every iteration is timed by itself.
func (w *worker) sampling() bool { return w.cfg.PerIter || w.cfg.Output == "json" }

// waited is for how long this rank has waited for others; -1 when the engine
// does not know.
func (w *worker) waited() time.Duration {
	if e, ok := w.comm.(Waiter); ok {
		return e.Waited()
	}
	return -1
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
		t.prepare(o.v, o.inPlace, &w.send, &w.recv)
		// A rank that waits for one that still prepares is not stuck (-T).
		if err := w.barrier(); err != nil {
			return 0, err
		}
		if err := o.once(0); err != nil {
			return 0, err
		}
		bad = t.wrong(o.v, o.inPlace, &w.send, &w.recv)
		if round == w.cfg.Check-1 {
			break
		}
		if all, err := w.sum(ctx, bad); err != nil || all > 0 {
			return bad, err
		}
	}
	return bad, nil
}
