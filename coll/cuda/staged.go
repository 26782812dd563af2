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

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda/driver"
)

// A stager does operations on device memory through the processor's: between
// hosts, and where devices do not reach one another. A goroutine of its own
// copies pieces of the input to the host, has coll's engine for host memory do
// the operation on them, and copies the results back, while the next piece is
// on its way. The stream waits meanwhile for a word that the goroutine writes.
type stager struct {
	cfg    coll.AcceleratorConfig
	dev    *device
	host   *coll.Comm
	group  coll.Group
	word   *driver.Pinned
	event  driver.Event // between streams
	stream driver.Stream
	busy   bool
	memops bool // the stream can wait for a word
	number uint32

	in, out  driver.Stream
	slots    [stageSlots]slot
	replaced []stage

	mu      sync.Mutex
	more    *sync.Cond
	jobs    []job
	free    []driver.Event
	closing bool

	released bool // guarded by mu: there is no word any more
	aborted  atomic.Bool
	ended    chan struct{} // closed when the goroutine has ended
}

// A job is an operation that waits for its turn.
type job struct {
	op     coll.DeviceOp
	start  driver.Event // the stream has come to the operation
	number uint32       // what the word is when it is done
	done   chan struct{}
}

// stageSlots is how many pieces are on their way.
const stageSlots = 3

// A slot is memory of the host for one piece.
type slot struct {
	in, out   stage
	came, won driver.Event // the input is there; the result is gone
}

// A stage is memory of the host that devices can use, and other ranks of the
// host where that is possible.
type stage struct {
	b      []byte
	ptr    driver.Ptr
	pinned *driver.Pinned // nil: it is coll's and registered
}

func newStage(n int) (s stage, err error) {
	if s.b, err = coll.Alloc(n); err == nil {
		if s.ptr, err = driver.HostRegister(s.b); err == nil {
			return s, nil
		}
		_ = coll.Free(s.b)
	}
	if s.pinned, err = driver.HostAlloc(n); err != nil {
		return stage{}, err
	}
	s.b, s.ptr = s.pinned.Bytes, s.pinned.Ptr
	return s, nil
}

// grow replaces memory that is too small. What is replaced stays until nothing
// waits for anything: giving it back waits for the device's streams, and those
// wait for the goroutine that asks for more.
func (s *stage) grow(n int, replaced *[]stage) error {
	if n <= len(s.b) {
		return nil
	}
	t, err := newStage(max(n, 2*len(s.b)))
	if err != nil {
		return err
	}
	if s.b != nil {
		*replaced = append(*replaced, *s)
	}
	*s = t
	return nil
}

func (s *stage) release() error {
	b, p := s.b, s.pinned
	*s = stage{}
	switch {
	case b == nil:
		return nil
	case p != nil:
		return p.Free()
	}
	return errors.Join(driver.HostUnregister(b), coll.Free(b))
}

// newStager is called with the context current.
func newStager(ctx context.Context, cfg coll.AcceleratorConfig, dev *device) (*stager, error) {
	s := &stager{cfg: cfg, dev: dev, memops: dev.info.CanStreamMemOps, ended: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	var err error
	if s.host, err = cfg.Host.Comm(ctx); err != nil {
		return nil, err
	}
	if s.word, err = driver.HostAlloc(64); err != nil {
		return nil, err
	}
	for _, to := range []*driver.Stream{&s.in, &s.out} {
		if *to, err = driver.NewStream(0); err != nil {
			return nil, err
		}
	}
	if s.event, err = driver.NewEvent(0); err != nil {
		return nil, err
	}
	for i := range s.slots {
		for _, to := range []*driver.Event{&s.slots[i].came, &s.slots[i].won} {
			if *to, err = driver.NewEvent(0); err != nil {
				return nil, err
			}
		}
		if err := s.room(&s.slots[i], stagePart, stagePart); err != nil { // enough for all but many Sends and Recvs at once
			return nil, err
		}
	}
	go s.work()
	return s, nil
}

// Enqueue implements coll.Accelerator.
func (s *stager) Enqueue(op *coll.DeviceOp) error {
	j, err := s.put(op)
	if err != nil {
		return failure(s.cfg.Rank, op.Coll.String(), err)
	}
	if j.done != nil {
		<-j.done
	}
	return nil
}

// EnqueueAll implements coll.Accelerator. All operations are handed over
// before the first is waited for.
func (s *stager) EnqueueAll(ops []*coll.DeviceOp) (int, error) {
	var waits []chan struct{}
	for i, op := range ops {
		o, ok := op.On.(*stager)
		if !ok {
			if err := op.On.Enqueue(op); err != nil {
				return i, err
			}
			continue
		}
		j, err := o.put(op)
		if err != nil {
			return i, failure(o.cfg.Rank, op.Coll.String(), err)
		}
		if j.done != nil {
			waits = append(waits, j.done)
		}
	}
	for _, w := range waits {
		<-w
	}
	return -1, nil
}

// put hands an operation to the goroutine and makes the stream wait for it, or
// else gives back what to wait for.
func (s *stager) put(op *coll.DeviceOp) (j job, err error) {
	if s.cfg.Knobs.CheckPointers {
		if err := checkPointers(s.cfg.Rank, s.cfg.Size, s.dev, op); err != nil {
			return j, err
		}
	}
	captured, err := s.stream.Capturing()
	if err != nil {
		return j, err
	}
	if captured {
		return j, &coll.Error{Code: coll.InvalidUsage, Rank: s.cfg.Rank, Op: op.Coll.String(), Peer: coll.NoPeer, Err: errors.New("operations that are staged in the processor's memory cannot be captured")}
	}
	s.busy = true
	s.number++
	j = job{op: *op, number: s.number}
	j.op.Transfers = append([]coll.Transfer(nil), op.Transfers...)
	if !s.memops {
		j.done = make(chan struct{})
	}
	err = s.dev.in(func() error {
		if j.start, err = s.fresh(); err != nil {
			return err
		}
		if err := j.start.Record(s.stream); err != nil {
			return err
		}
		s.mu.Lock()
		s.jobs = append(s.jobs, j)
		s.mu.Unlock()
		s.more.Broadcast()
		if s.memops {
			return s.stream.WaitValue32(s.word.Ptr, j.number)
		}
		return nil
	})
	return j, err
}

// fresh is an event that nobody uses.
func (s *stager) fresh() (driver.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		e := s.free[n-1]
		s.free = s.free[:n-1]
		return e, nil
	}
	return driver.NewEvent(0)
}

// work is the goroutine.
func (s *stager) work() {
	defer close(s.ended)
	runtime.LockOSThread() // for good: the thread's context is the device's
	if err := s.dev.ctx.Bind(); err != nil {
		s.cfg.Host.Fail(failure(s.cfg.Rank, "asynchronous", err))
	}
	for {
		j, ok := s.take()
		if !ok {
			return
		}
		if !s.aborted.Load() {
			if err := s.do(&j); err != nil {
				s.cfg.Host.Fail(failure(s.cfg.Rank, j.op.Coll.String(), err))
			}
		}
		s.finish(&j)
	}
}

// take waits for a job; false: there will be none.
func (s *stager) take() (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.jobs) == 0 {
		if s.closing {
			return job{}, false
		}
		s.more.Wait()
	}
	j := s.jobs[0]
	s.jobs = s.jobs[1:]
	return j, true
}

func (s *stager) finish(j *job) {
	s.mu.Lock()
	s.free = append(s.free, j.start)
	if !s.aborted.Load() { // else the word is beyond that
		s.set(j.number)
	}
	s.mu.Unlock()
	if j.done != nil {
		close(j.done)
	}
}

func (s *stager) set(v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&s.word.Bytes[0])), v)
}

// beyond is more than any operation waits for.
const beyond = 1 << 30

// Abort implements coll.Accelerator: what waits for the word goes on.
func (s *stager) Abort(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released || !s.aborted.CompareAndSwap(false, true) {
		return
	}
	s.set(atomic.LoadUint32((*uint32)(unsafe.Pointer(&s.word.Bytes[0]))) + beyond)
	go func() { _ = s.host.Abort() }()
}

// Stream implements coll.Accelerator.
func (s *stager) Stream(stream uintptr) error {
	to := driver.Stream(stream)
	if to == s.stream {
		return nil
	}
	err := s.dev.in(func() error { return follow(s.event, s.stream, to, s.busy) })
	if err != nil {
		return failure(s.cfg.Rank, "SetStream", err)
	}
	s.stream, s.busy = to, false
	return nil
}

// Alloc implements coll.Accelerator.
func (s *stager) Alloc(n int) (uintptr, error) { return s.dev.alloc(s.cfg.Rank, n) }

// Free implements coll.Accelerator.
func (s *stager) Free(addr uintptr) error { return s.dev.free(s.cfg.Rank, addr) }

// Chosen implements coll.Accelerator.
func (s *stager) Chosen() string { return "staged" }

// Close implements coll.Accelerator.
func (s *stager) Close(barrier func() error) error {
	if barrier == nil {
		s.Abort(nil)
	}
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.more.Broadcast()
	<-s.ended
	var errs []error
	if !s.aborted.Load() {
		errs = append(errs, s.host.Destroy())
	}
	return errors.Join(append(errs, s.dev.in(s.release))...)
}

// release frees what the goroutine used.
func (s *stager) release() error {
	s.settle()
	s.mu.Lock()
	s.released = true
	s.mu.Unlock()
	var errs []error
	for i := range s.slots {
		l := &s.slots[i]
		errs = append(errs, l.in.release(), l.out.release(), l.came.Destroy(), l.won.Destroy())
	}
	for i := range s.replaced {
		errs = append(errs, s.replaced[i].release())
	}
	for _, e := range s.free {
		errs = append(errs, e.Destroy())
	}
	errs = append(errs, s.in.Destroy(), s.out.Destroy(), s.event.Destroy(), s.word.Free())
	err := errors.Join(errs...)
	var lost *driver.Error
	if errors.As(err, &lost) && lost.Lost() {
		return nil // with the context all is gone
	}
	return err
}

// settle waits until the stream has seen the last word.
func (s *stager) settle() {
	if !s.busy || s.event.Record(s.stream) != nil {
		return
	}
	for end := time.Now().Add(drainTime); time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		if done, err := s.event.Query(); done || err != nil {
			return
		}
	}
}

// room makes a slot large enough.
func (s *stager) room(l *slot, in, out int) error {
	if err := l.in.grow(in, &s.replaced); err != nil {
		return fmt.Errorf("memory to stage in: %w", err)
	}
	if err := l.out.grow(out, &s.replaced); err != nil {
		return fmt.Errorf("memory to stage in: %w", err)
	}
	return nil
}
