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
// where windows are not possible. Lanes take pieces of an operation in turn. A kernel in the
// operation's stream does their copies, and ends when they say so: other streams could share
// a hardware queue with that stream, behind what waits in it.
type hostFallback struct {
	cfg executor.Config
	order
	batch
	lists  *loan // of all lanes
	launch *driver.Launch
	number uint32
	lanes  []*lane

	mu      sync.Mutex
	closing bool

	released bool // guarded by mu: the lists have been given back
	aborted  atomic.Bool
	ended    sync.WaitGroup // of lanes
}

// A lane is a goroutine that has pieces of the input copied to the host, runs the operation on
// them with coll's engine for host memory, and has the results copied back while the next piece is
// in flight. There are several lanes because one core moves only some gigabytes a second
// through a socket.
type lane struct {
	*hostFallback
	index     int
	host      executor.Lane
	transfers []op.Transfer // of the current piece

	in, out copyLists
	slots   [stageSlots]slot
	lost    driver.Event // whose query fails once the device's context is lost

	jobs []*job // guarded by mu
	now  *job   // guarded by mu: current job
	more *sync.Cond
}

// A job is an enqueued operation.
type job struct {
	op     op.Op
	number uint32
	shares int // lists of each lane that have a block
}

// stageSlots is how many pieces a lane has in flight.
const stageSlots = 3

// A slot is host memory for one piece. Where possible, other ranks of the host can map it.
type slot struct {
	in, out   *loan
	n         int      // bytes of the piece's input
	came, won copyMark // of the input to the host; of the result to the device
}

// stageThreads is how many threads a block has. A copy is shared only among so many blocks that each has leastShare.
const (
	stageThreads = 512
	leastShare   = 128 << 10 // bytes
)

// sharesOf returns how many blocks copy for each lane, in each direction, while so many lanes take part.
func (s *hostFallback) sharesOf(o *op.Op, lanes int) int {
	longest := 0
	for _, r := range runs(o, s.cfg.Rank, s.cfg.Size, 0, nil) {
		longest = max(longest, r.n)
	}
	return max(1, min(mostShares, lanesWith(s.cfg.Env)/lanes, longest/leastShare))
}

// lanesWith returns how many lanes may have blocks, one for each direction.
func lanesWith(env *choose.Env) int {
	if most := env.MaxChannels; most > 0 {
		return min(mostLanes, most/kernelTable[stage].roles)
	}
	return mostLanes
}

// mostLanes is the largest useful number of lanes.
const mostLanes = 8

// lanesOf returns how many lanes every rank has cores for. Each rank of a host keeps one core
// per lane busy, and another one per lane that transports the bytes.
func lanesOf(env *choose.Env) int {
	n := lanesWith(env)
	for _, ranks := range env.Hosts {
		n = min(n, env.Cores/(2*len(ranks)))
	}
	return max(n, env.MinChannels, 1)
}

// newStager creates a hostFallback. It is called with the context current.
func newStager(ctx context.Context, cfg executor.Config, dev *device, copies driver.Func) (_ *hostFallback, err error) {
	s := &hostFallback{cfg: cfg, order: newOrder(&cfg, dev)}
	dev.arena.enter()
	defer func() {
		if err == nil {
			return
		}
		_ = errors.Join(s.closeLanes(), s.release())
	}()
	lanes := lanesOf(cfg.Env)
	const listBytes = int(unsafe.Sizeof(stageListABI{}))
	if s.lists, err = dev.arena.take(pinned, 2*mostShares*lanes*listBytes, newPinned); err != nil {
		return nil, err
	}
	clear(s.lists.bytes)
	s.launch = driver.NewLaunch(copies, int(unsafe.Sizeof(stageABI{})))
	s.launch.SetBlock(stageThreads, 1, 1)
	(*stageABI)(s.launch.Param(0)).lists = uint64(s.lists.ptr)
	if s.event, err = driver.NewEvent(0); err != nil {
		return nil, err
	}
	for i := range lanes {
		l := &lane{hostFallback: s, index: i, more: sync.NewCond(&s.mu)}
		for k := range mostShares {
			at := (*[2]stageListABI)(unsafe.Pointer(&s.lists.bytes[2*(i*mostShares+k)*listBytes]))
			l.in[k].at, l.out[k].at = &at[0], &at[1]
		}
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
	if l.lost, err = driver.NewEvent(0); err != nil {
		return err
	}
	for i := range l.slots {
		if err := l.reserve(&l.slots[i], stagePart+mostFactor, stagePart); err != nil { // enough for all but many Sends and Recvs at once
			return err
		}
	}
	return nil
}

// Enqueue implements executor.Executor. It launches the kernel that copies for an operation, and hands
// the operation to the lanes.
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
	if n := min(pieces(o, s.cfg.Size), len(s.lanes)); n > 0 {
		s.number++
		j := &job{op: *o, number: s.number, shares: s.sharesOf(o, n)}
		j.op.Transfers = append([]op.Transfer(nil), o.Transfers...)
		args := (*stageABI)(s.launch.Param(0))
		args.number, args.shares = j.number, uint32(j.shares)
		s.launch.SetGrid(n*kernelTable[stage].roles*j.shares, 1, 1)
		s.launch.SetStream(s.stream)
		s.give(j, n) // before the launch: with CUDA_LAUNCH_BLOCKING=1 that returns when the kernel has ended
		if err := s.dev.in(s.launch.Run); err != nil {
			s.cfg.Host.Fail(err)
			s.Abort(err)
			return err
		}
	}
	return errors.Join(s.end(d), s.done())
}

// give hands a job to the first n lanes.
func (s *hostFallback) give(j *job, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes[:n] {
		l.jobs = append(l.jobs, j)
		l.more.Signal()
	}
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
		if l.aborted.Load() {
			continue
		}
		err := l.do(j)
		if err != nil && err != errAborted {
			l.cfg.Host.Fail(err)
		}
		if err == nil || !l.cfg.AsNCCL { // else the stream waits until Abort
			l.end(j)
		}
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
			if l.in[0].begun(l.now.number) {
				state.Does = executor.Begun
				return nil
			}
			state.Does = executor.Behind
		}
		return nil
	})
	return state
}

// take waits for the next job. It returns nil if there will be none.
func (l *lane) take() *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = nil
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

// Abort implements executor.Executor: kernels end, and streams continue.
func (s *hostFallback) Abort(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released || !s.aborted.CompareAndSwap(false, true) {
		return
	}
	for _, l := range s.lanes {
		for k := range mostShares {
			atomic.StoreUint32(&l.in[k].at.stop, 1)
			atomic.StoreUint32(&l.out[k].at.stop, 1)
		}
	}
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
		}
		errs = append(errs, l.lost.Destroy())
	}
	s.dev.arena.give(s.lists, nil, false)
	s.dev.arena.leave()
	err := errors.Join(append(errs, s.order.destroy())...)
	var lost *driver.Error
	if errors.As(err, &lost) && lost.Lost() {
		return nil // everything is lost with the context
	}
	return err
}

// settle waits until the last kernel has ended. It reports whether that was so in time: after an
// Abort it may be behind work of the caller that does not end.
func (s *hostFallback) settle() bool {
	until := time.Now().Add(drainTime)
	s.Leave()
	return !s.busy || s.lost != nil || over(s.final().Query, until) // lost: the stream no longer exists, or its context is lost
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
