//go:build cuda && cgo

package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

// A hostFallback does operations on device memory through the processor's: between
// hosts, and where there can be no windows. Lanes take pieces of an operation in
// turn. The stream waits meanwhile for a word that the last of them writes.
type hostFallback struct {
	cfg executor.Config
	order
	batch
	word   *loan
	number uint32
	lanes  []*lane

	mu      sync.Mutex
	free    []driver.Event
	closing bool

	released bool // guarded by mu: there is no word any more
	aborted  atomic.Bool
	ended    sync.WaitGroup // of lanes
}

// A lane is a goroutine that copies pieces of the input to the host, has coll's
// engine for host memory do the operation on them, and copies the results
// back, while the next piece is on its way. One processor moves some gigabytes
// a second through a socket: that is why there are several.
type lane struct {
	*hostFallback
	index     int
	host      executor.Lane
	transfers []op.Transfer // of the piece that is worked on

	in, out driver.Stream
	slots   [stageSlots]slot

	jobs []*job // guarded by mu
	now  *job   // guarded by mu: that it does
	more *sync.Cond
}

// A job is an operation that waits for its turn.
type job struct {
	op     op.Op
	start  driver.Event // the stream has come to the operation
	number uint32       // what the word is when it is done
	left   int          // guarded by mu: lanes that are not done with it
	held   bool         // guarded by mu: one of them has failed, and the stream is to wait
}

// stageSlots is how many pieces are on their way.
const stageSlots = 3

// A slot is memory of the host for one piece, which other ranks of the host can map
// where that is possible.
type slot struct {
	in, out   *loan
	came, won driver.Event // the input is there; the result is gone
}

// mostLanes are as many as there is a use for.
const mostLanes = 8

// lanesOf is how many lanes every rank has processors for. Each of a host's
// ranks keeps that many busy, and as many others again that bring the bytes.
func lanesOf(env *choose.Env) int {
	n := mostLanes
	for _, ranks := range env.Hosts {
		n = min(n, env.Cores/(2*len(ranks)))
	}
	if most := env.MaxChannels; most > 0 {
		n = min(n, most)
	}
	return max(n, env.MinChannels, 1)
}

// newStager is called with the context current.
func newStager(ctx context.Context, cfg executor.Config, dev *device) (_ *hostFallback, err error) {
	if !dev.info.CanStreamMemOps {
		return nil, &op.Error{Code: op.InvalidUsage, Rank: cfg.Rank, Op: "CommInitRank", Peer: op.NoPeer,
			Err: fmt.Errorf("staging operations in the processor's memory takes stream memory operations, which %s does not have with this driver: install one of branch 525 or later", dev.info.Name)}
	}
	s := &hostFallback{cfg: cfg, order: order{rank: cfg.Rank, dev: dev, eager: cfg.AsNCCL}}
	dev.arena.enter()
	defer func() {
		if err == nil {
			return
		}
		_ = errors.Join(s.closeLanes(), s.release())
	}()
	if s.word, err = dev.arena.word(); err != nil {
		return nil, err
	}
	if s.event, err = driver.NewEvent(0); err != nil {
		return nil, err
	}
	for i := range lanesOf(cfg.Env) {
		l := &lane{hostFallback: s, index: i, more: sync.NewCond(&s.mu)}
		s.lanes = append(s.lanes, l)
		if err := l.open(ctx); err != nil {
			return nil, err
		}
	}
	for _, l := range s.lanes {
		s.ended.Go(l.work)
	}
	return s, nil
}

func (l *lane) open(ctx context.Context) (err error) {
	if l.host, err = l.cfg.Host.Lane(ctx); err != nil {
		return err
	}
	for _, to := range []*driver.Stream{&l.in, &l.out} {
		if *to, err = driver.NewStream(0); err != nil {
			return err
		}
	}
	for i := range l.slots {
		for _, to := range []*driver.Event{&l.slots[i].came, &l.slots[i].won} {
			if *to, err = driver.NewEvent(0); err != nil {
				return err
			}
		}
		if err := l.reserve(&l.slots[i], stagePart, stagePart); err != nil { // enough for all but many Sends and Recvs at once
			return err
		}
	}
	return nil
}

// Enqueue implements executor.Executor.
func (s *hostFallback) Enqueue(o *executor.Op) error {
	return failure(s.cfg.Rank, o.Coll.String(), s.put(o))
}

// put hands an operation to the lanes and makes the stream wait for it.
func (s *hostFallback) put(d *executor.Op) error {
	o := &d.Op
	if err := checked(&s.cfg, s.dev, o); err != nil {
		return err
	}
	captured, err := driver.Stream(d.Stream).Capturing()
	if err != nil {
		return err
	}
	if captured {
		return &op.Error{Code: op.InvalidUsage, Rank: s.cfg.Rank, Op: o.Coll.String(), Peer: op.NoPeer, Err: errors.New("operations that are staged in the processor's memory cannot be captured")}
	}
	if err := s.begin(d); err != nil {
		return err
	}
	s.number++
	j := &job{op: *o, number: s.number, left: min(max(pieces(o, s.cfg.Size), 1), len(s.lanes))}
	j.op.Transfers = append([]op.Transfer(nil), o.Transfers...)
	err = s.dev.in(func() (err error) {
		if j.start, err = s.fresh(); err != nil {
			return err
		}
		err = j.start.Record(s.stream)
		s.mu.Lock()
		if err != nil {
			s.free = append(s.free, j.start)
			s.mu.Unlock()
			return err
		}
		for _, l := range s.lanes[:j.left] {
			l.jobs = append(l.jobs, j)
			l.more.Signal()
		}
		s.mu.Unlock()
		return s.stream.WaitValue32(s.word.ptr, j.number)
	})
	if err != nil {
		return err
	}
	return errors.Join(s.end(d), s.done())
}

// fresh is an event that is not used.
func (s *hostFallback) fresh() (driver.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		e := s.free[n-1]
		s.free = s.free[:n-1]
		return e, nil
	}
	return driver.NewEvent(0)
}

// work is the goroutine of a lane.
func (l *lane) work() {
	runtime.LockOSThread() // for good: the thread's context is the device's
	if err := l.dev.ctx.Bind(); err != nil {
		l.cfg.Host.Fail(failure(l.cfg.Rank, "asynchronous", err))
	}
	for {
		j := l.take()
		if j == nil {
			return
		}
		hold := false
		if !l.aborted.Load() {
			err := l.do(j)
			if err != nil && err != errAborted {
				l.cfg.Host.Fail(failure(l.cfg.Rank, j.op.Coll.String(), err))
			}
			hold = err != nil && l.cfg.AsNCCL
		}
		l.finish(j, hold)
	}
}

// Progress implements executor.Executor. The host's side knows for which rank a lane
// waits, and logs it.
func (s *hostFallback) Progress() (state executor.State) {
	_ = s.dev.in(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closing {
			return nil
		}
		for _, l := range s.lanes {
			if l.now == nil {
				continue
			}
			switch begun, err := l.now.start.Query(); {
			case err != nil:
			case begun:
				state.Does = executor.Begun
				return nil
			default:
				state.Does = executor.Behind
			}
		}
		return nil
	})
	return state
}

// take waits for a job; nil: there will be none.
func (l *lane) take() *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.jobs) == 0 {
		if l.closing {
			return nil
		}
		l.more.Wait()
	}
	l.now = l.jobs[0]
	l.jobs = l.jobs[1:]
	return l.now
}

// finish says that the lane is done with a job. A lane does its jobs in their
// order: the last one of a job is done with it before the next job is over.
// hold leaves the stream waiting, until Abort.
func (l *lane) finish(j *job, hold bool) {
	s := l.hostFallback
	s.mu.Lock()
	defer s.mu.Unlock()
	l.now = nil
	j.held = j.held || hold
	if j.left--; j.left > 0 {
		return
	}
	s.free = append(s.free, j.start)
	if !j.held && !s.aborted.Load() { // else the word is beyond that
		s.set(j.number)
	}
}

func (s *hostFallback) set(v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&s.word.bytes[0])), v)
}

// beyond is more than any operation waits for.
const beyond = 1 << 30

// Abort implements executor.Executor: what waits for the word goes on.
func (s *hostFallback) Abort(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released || !s.aborted.CompareAndSwap(false, true) {
		return
	}
	s.set(atomic.LoadUint32((*uint32)(unsafe.Pointer(&s.word.bytes[0]))) + beyond)
}

// Alloc implements executor.Executor.
func (s *hostFallback) Alloc(n int) (uintptr, error) { return s.dev.alloc(s.cfg.Rank, n) }

// Free implements executor.Executor.
func (s *hostFallback) Free(addr uintptr) error { return s.dev.free(s.cfg.Rank, addr) }

// Estimate implements executor.Executor: the processor's part, beside which bytes come
// and go.
func (s *hostFallback) Estimate(o *op.Op) time.Duration {
	if s.cfg.Size == 1 {
		return estimate(o, 1, false, nil)
	}
	t, err := s.cfg.Env.Tuner()
	if err != nil { // then the communicator had none either
		return 0
	}
	return t.Time(o.Coll, carried(o))
}

// Memory implements executor.Executor: stages are in the processor's memory.
func (s *hostFallback) Memory() executor.Memory { return executor.Memory{Shared: s.dev.arena.share()} }

// Chosen implements executor.Executor.
func (s *hostFallback) Chosen() string { return "staged" }

// Close implements executor.Executor.
func (s *hostFallback) Close(tell func(byte) ([]byte, error)) error {
	if tell == nil {
		s.Abort(nil)
	}
	s.mu.Lock()
	s.closing = true
	for _, l := range s.lanes {
		l.more.Signal()
	}
	s.mu.Unlock()
	s.ended.Wait()
	return errors.Join(s.closeLanes(), s.dev.in(s.release))
}

// closeLanes closes the lanes' connections: other ranks look at the stages until
// then. Each may wait for others' goodbyes, so that all do at once.
func (s *hostFallback) closeLanes() error {
	errs := make([]error, len(s.lanes))
	var closing sync.WaitGroup
	for i, l := range s.lanes {
		if l.host != nil {
			closing.Go(func() { errs[i] = l.host.Close() })
		}
	}
	closing.Wait()
	return errors.Join(errs...)
}

// release frees what the lanes used, unless a stream may still come to it.
func (s *hostFallback) release() error {
	settled := s.settle()
	s.mu.Lock()
	s.released = true
	s.mu.Unlock()
	if !settled {
		return nil
	}
	var errs []error
	for _, l := range s.lanes {
		for i := range l.slots {
			at := &l.slots[i]
			s.dev.arena.give(at.in, time.Time{}, false)
			s.dev.arena.give(at.out, time.Time{}, false)
			errs = append(errs, at.came.Destroy(), at.won.Destroy())
		}
		errs = append(errs, l.in.Destroy(), l.out.Destroy())
	}
	for _, e := range s.free {
		errs = append(errs, e.Destroy())
	}
	s.dev.arena.give(s.word, time.Time{}, false)
	s.dev.arena.leave()
	err := errors.Join(append(errs, s.event.Destroy())...)
	var lost *driver.Error
	if errors.As(err, &lost) && lost.Lost() {
		return nil // with the context all is gone
	}
	return err
}

// settle waits until the stream has seen the last word, and the lanes' streams
// what they wait for. It reports whether nothing is left: after an Abort there may
// be, behind work of the caller's that does not end.
func (s *hostFallback) settle() bool {
	end := time.Now().Add(drainTime)
	over := func() bool {
		for {
			if done, err := s.event.Query(); done || err != nil {
				return true
			}
			if time.Now().After(end) {
				return false
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	s.Leave()
	if s.busy && s.lost == nil && !over() { // else it is not there any more, or its context is lost
		return false
	}
	for _, l := range s.lanes {
		for _, on := range [...]driver.Stream{l.in, l.out} {
			if s.event.Record(on) == nil && !over() {
				return false
			}
		}
	}
	return true
}

// reserve makes a slot large enough.
func (l *lane) reserve(at *slot, in, out int) error {
	for _, s := range [...]struct {
		at **loan
		n  int
	}{{&at.in, in}, {&at.out, out}} {
		old := *s.at
		if old != nil {
			if s.n <= len(old.bytes) {
				continue
			}
			s.n = max(s.n, 2*len(old.bytes))
		}
		l.dev.arena.give(old, time.Time{}, false) // no piece is in it
		var err error
		if *s.at, err = l.dev.arena.take(shared, s.n, newHosted); err != nil {
			*s.at, err = l.dev.arena.take(pinned, s.n, newPinned)
		}
		if err != nil {
			return fmt.Errorf("memory to stage in: %w", err)
		}
	}
	return nil
}
