package perf

import (
	"context"
	"time"
)

// A walk steps through all of a buffer's memory: each operation starts where the buffers of the
// previous one ended, so that small buffers are not always in cache.
type walk struct {
	at, step int64
	wrap     int64 // where a step would leave the memory
}

func (w *worker) walk(o *operation) walk {
	s := walk{step: o.v.bytes()}
	if s.step > 0 {
		s.wrap = w.maxBytes() / s.step * s.step
	}
	return s
}

// next returns where the next operation's buffers begin.
func (s *walk) next() int64 {
	at := s.at
	if s.at += s.step; s.at >= s.wrap {
		s.at = 0
	}
	return at
}

// iteration returns a function that issues one iteration: agg operations, launched as one unless
// the ranks must wait after each (-z 1; on a device also -z 2). Operations that are recorded for
// a graph do not wait.
func (w *worker) iteration(o *operation, agg int, recorded bool) func() error {
	at := w.walk(o)
	each := w.cfg.Blocking == 1 || o.lane != nil && w.cfg.Blocking == 2
	each = each && !recorded
	issue := func() error {
		for range agg {
			if err := o.issue(at.next()); err != nil {
				return err
			}
			if each {
				if err := w.complete(o); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if agg > 1 && !each {
		return o.grouped(issue)
	}
	return issue
}

// complete waits as -z 1 and -z 2 require.
func (w *worker) complete(o *operation) error {
	if w.cfg.Blocking != 1 && w.cfg.Blocking != 2 {
		return nil
	}
	if err := o.wait(); err != nil || w.cfg.Blocking == 2 {
		return err
	}
	return w.barrier()
}

// timed runs all iterations back to back, and waits for the last.
func (w *worker) timed(o *operation, iters, agg int) (measure, error) {
	if o.graph > 0 {
		return w.timedGraph(o, iters, agg)
	}
	return w.measured(o, iters, w.iteration(o, agg, false))
}

// measured calls launch the given number of times, and waits for the last one.
func (w *worker) measured(o *operation, times int, launch func() error) (measure, error) {
	start := w.now()
	s, err := w.sampler(o, times, start)
	if err != nil {
		return measure{}, err
	}
	paused := time.Duration(0)
	for range times {
		if err := launch(); err != nil {
			return measure{}, err
		}
		if w.cfg.Blocking == 3 {
			if err := o.wait(); err != nil {
				return measure{}, err
			}
		}
		if err := s.lap(); err != nil {
			return measure{}, err
		}
		if w.cfg.Blocking == 3 {
			t := w.now()
			if err := w.barrier(); err != nil {
				return measure{}, err
			}
			s.last = w.now()
			paused += s.last - t
		}
	}
	m, err := w.ended(o, start)
	if err != nil {
		return m, err
	}
	m.elapsed -= paused
	m.samples, err = s.laps()
	return m, err
}

// ended waits for what was issued since start, and returns how long it took.
func (w *worker) ended(o *operation, start time.Duration) (measure, error) {
	m := measure{chosen: o.chosen}
	if o.lane != nil {
		m.issued = w.now() - start
		if err := o.wait(); err != nil {
			return m, err
		}
	}
	m.elapsed = w.now() - start
	return m, nil
}

// A sampler times every iteration: on the processor by the clock, on a device by marks in the
// stream, for which iterations need not wait.
type sampler struct {
	w     *worker
	o     *operation
	clock bool
	marks bool
	taken int
	last  time.Duration
	times []time.Duration
}

// sampler starts to sample, if iterations are to be timed individually. With -z 3 each iteration
// is complete before the next, so that the clock works for devices, too. Marks cost time, which
// the JSON document alone does not justify. For --slowest the clock times launches.
func (w *worker) sampler(o *operation, iters int, now time.Duration) (sampler, error) {
	s := sampler{w: w, o: o, last: now}
	switch {
	case o.lane == nil:
		s.clock = w.cfg.PerIter || w.cfg.Slowest > 0 || w.cfg.Output == "json" && w.cfg.Versus == ""
	case w.cfg.PerIter:
		s.clock = w.cfg.Blocking == 3
		s.marks = !s.clock
	default:
		s.clock = w.cfg.Slowest > 0
	}
	if s.clock || s.marks {
		s.times = make([]time.Duration, 0, iters)
	}
	return s, s.mark(0)
}

// lap ends an iteration.
func (s *sampler) lap() error {
	if s.clock {
		t := s.w.now()
		s.times = append(s.times, t-s.last)
		s.last = t
	}
	s.taken++
	return s.mark(s.taken)
}

func (s *sampler) mark(i int) error {
	if !s.marks {
		return nil
	}
	return s.w.failedBy(s.o.comm, s.o.lane.Mark(i))
}

// laps returns the times of all iterations; nil if they were not taken.
func (s *sampler) laps() ([]time.Duration, error) {
	if !s.marks {
		return s.times, nil
	}
	for i := range s.taken {
		d, err := s.o.lane.Between(i, i+1)
		if err != nil {
			return nil, s.w.failedBy(s.o.comm, err)
		}
		s.times = append(s.times, d)
	}
	return s.times, nil
}

// maxIters limits the number of iterations that --min-time can result in.
const maxIters = 2000

// iterations returns how many iterations are timed: -n, or as many as fill --min-time. All ranks
// get the same number. The operation has already run once.
func (w *worker) iterations(ctx context.Context, o *operation) (int, error) {
	if w.cfg.MinTime == 0 {
		return w.cfg.Iters, nil
	}
	for n := 1; ; n *= 8 {
		if err := w.barrier(); err != nil {
			return 0, err
		}
		start := w.now()
		launch := w.iteration(o, w.cfg.AggIters, false)
		for range n {
			if err := launch(); err != nil {
				return 0, err
			}
		}
		m, err := w.ended(o, start)
		if err != nil {
			return 0, err
		}
		slowest, err := w.slowest(ctx, m.elapsed)
		if err != nil {
			return 0, err
		}
		if slowest >= w.cfg.MinTime/4 || n > maxIters {
			return int(min(max(1, (int64(w.cfg.MinTime)*int64(n)+int64(slowest)-1)/max(1, int64(slowest))), maxIters)), nil
		}
	}
}

// slowest returns the longest time of all ranks.
func (w *worker) slowest(ctx context.Context, d time.Duration) (time.Duration, error) {
	ms, err := w.exchange(ctx, measure{elapsed: d}, true)
	for _, m := range ms {
		d = max(d, m.elapsed)
	}
	return d, err
}
