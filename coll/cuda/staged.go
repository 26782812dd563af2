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
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A hostFallback does operations on device memory through host memory: between hosts, and
// where windows are not possible. Lanes take pieces of an operation in turn. Meanwhile the
// stream waits for a word that the last lane writes.
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

	released bool // guarded by mu: the word has been given back
	aborted  atomic.Bool
	ended    sync.WaitGroup // of lanes
}

// A lane is a goroutine that copies pieces of the input to the host, runs the operation on
// them with coll's engine for host memory, and copies the results back while the next piece is
// in flight. There are several lanes because one core moves only some gigabytes a second
// through a socket.
type lane struct {
	*hostFallback
	index     int
	host      executor.Lane
	transfers []op.Transfer // of the current piece

	in, out driver.Stream
	slots   [stageSlots]slot

	jobs []*job // guarded by mu
	now  *job   // guarded by mu: current job
	more *sync.Cond
}

// A job is an enqueued operation.
type job struct {
	op     op.Op
	start  driver.Event // recorded when the stream reaches the operation
	number uint32       // the word's value when the job is done
	left   int          // guarded by mu: number of lanes that are not done with it
	held   bool         // guarded by mu: a lane has failed, and the stream must keep waiting
}

// stageSlots is how many pieces a lane has in flight.
const stageSlots = 3

// A slot is host memory for one piece. Where possible, other ranks of the host can map it.
type slot struct {
	in, out   *loan
	came, won driver.Event // the input has arrived; the result has left
}

// lanePriority is the priority of the streams of lanes: the highest, of which programs seldom have streams. While
// the program's stream waits for a lane's copies, nothing that is enqueued later in the same hardware queue is
// done, and a process has only CUDA_DEVICE_MAX_CONNECTIONS queues. For the same reason the lanes' streams wait for
// nothing on the device.
const lanePriority = -5

// mostLanes is the largest useful number of lanes.
const mostLanes = 8

// lanesOf returns how many lanes every rank has cores for. Each rank of a host keeps one core
// per lane busy, and another one per lane that transports the bytes.
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

// newStager creates a hostFallback. It is called with the context current.
func newStager(ctx context.Context, cfg executor.Config, dev *device) (_ *hostFallback, err error) {
	if !dev.info.CanStreamMemOps {
		return nil, &op.Error{Code: op.InvalidUsage, Rank: cfg.Rank, Op: "CommInitRank", Peer: op.NoPeer,
			Err: fmt.Errorf("staging operations in the processor's memory takes stream memory operations, which %s does not have with this driver: install one of branch 525 or later", dev.info.Name)}
	}
	s := &hostFallback{cfg: cfg, order: newOrder(&cfg, dev)}
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
		if *to, err = driver.NewStream(lanePriority); err != nil {
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

// Enqueue implements executor.Executor. It hands an operation to the lanes and makes the stream wait
// for it.
func (s *hostFallback) Enqueue(d *executor.Op) error {
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

// fresh returns an unused event.
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
		l.cfg.Host.Fail(err)
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
				l.cfg.Host.Fail(err)
			}
			hold = err != nil && l.cfg.AsNCCL
		}
		l.finish(j, hold)
	}
}

// Progress implements executor.Executor. It does not name the ranks that lanes wait for:
// coll's engine for host memory knows and logs them.
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
			state.Call = s.trail.oldest()
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

// take waits for the next job. It returns nil if there will be none.
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

// finish records that the lane is done with a job; the last lane sets the word. Each lane does
// its jobs in order, so a job's last lane is done with it before the next job is over. hold
// leaves the stream waiting until Abort.
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
	if !j.held && !s.aborted.Load() { // else the stream keeps waiting, or Abort has moved the word beyond that
		s.set(j.number)
	}
}

func (s *hostFallback) set(v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&s.word.bytes[0])), v)
}

// beyond is how far Abort advances the word: further than any operation waits for.
const beyond = 1 << 30

// Abort implements executor.Executor: streams that wait for the word continue.
func (s *hostFallback) Abort(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released || !s.aborted.CompareAndSwap(false, true) {
		return
	}
	s.set(atomic.LoadUint32((*uint32)(unsafe.Pointer(&s.word.bytes[0]))) + beyond)
}

// Alloc implements executor.Executor.
func (s *hostFallback) Alloc(n int) (uintptr, error) { return s.dev.alloc(n) }

// Free implements executor.Executor.
func (s *hostFallback) Free(addr uintptr) error { return s.dev.free(addr) }

// Estimate implements executor.Executor: the time of the operation in host memory, with which
// the copies from and to the device overlap.
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

// Memory implements executor.Executor: stages are in host memory.
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

// closeLanes closes the lanes' connections: until then other ranks may read the stages. Each
// close may wait for the other ranks' goodbyes, so all lanes close at the same time.
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

// release frees what the lanes used, unless a stream may still use it.
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
			s.dev.arena.give(at.in, nil, false)
			s.dev.arena.give(at.out, nil, false)
			errs = append(errs, at.came.Destroy(), at.won.Destroy())
		}
		errs = append(errs, l.in.Destroy(), l.out.Destroy())
	}
	for _, e := range s.free {
		errs = append(errs, e.Destroy())
	}
	s.dev.arena.give(s.word, nil, false)
	s.dev.arena.leave()
	err := errors.Join(append(errs, s.order.destroy())...)
	var lost *driver.Error
	if errors.As(err, &lost) && lost.Lost() {
		return nil // everything is lost with the context
	}
	return err
}

// settle waits until the caller's stream has passed the last word and the lanes' streams are
// done. It reports whether no work is left: after an Abort some may be, behind work of the
// caller that does not end.
func (s *hostFallback) settle() bool {
	until := time.Now().Add(drainTime)
	s.Leave()
	if s.busy && s.lost == nil && !over(s.final().Query, until) { // otherwise the stream no longer exists, or its context is lost
		return false
	}
	for _, l := range s.lanes {
		if !idle(l.in, until) || !idle(l.out, until) {
			return false
		}
	}
	return true
}

// idle waits until a stream of this package has no work left, and reports whether that was so in time. 0 is none.
func idle(s driver.Stream, until time.Time) bool { return s == 0 || over(s.Query, until) }

// over waits until query says that something is done, or fails, and reports whether it did in time.
func over(query func() (bool, error), until time.Time) bool {
	for {
		if done, err := query(); done || err != nil {
			return true
		}
		if time.Now().After(until) {
			return false
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// reserve makes a slot's buffers large enough.
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
		l.dev.arena.give(old, nil, false) // no piece is in it
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
