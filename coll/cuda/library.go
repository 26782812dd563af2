//go:build cuda && cgo

package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/nccl"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A library is NVIDIA's libnccl.so.2 with a communicator of the same ranks. It does the
// operations that the engine cannot do, and those that measured rules assign to it. The
// library does them in its own way: they do not carry this engine's signs, and its kernels
// cannot be asked which rank they wait for.
type library struct {
	cfg  executor.Config
	dev  *device
	lib  *nccl.Library
	comm *nccl.Comm
	stop chan struct{} // closed: errors are no longer polled
	over sync.Once
}

// libraries are the opened libraries by file name. They are never closed.
var libraries struct {
	mu  sync.Mutex
	all map[string]*nccl.Library
}

func libraryOf(file string) (*nccl.Library, error) {
	libraries.mu.Lock()
	defer libraries.mu.Unlock()
	if l := libraries.all[file]; l != nil {
		return l, nil
	}
	l, err := nccl.OpenFile(file)
	if err != nil {
		return nil, err
	}
	if libraries.all == nil {
		libraries.all = map[string]*nccl.Library{}
	}
	libraries.all[file] = l
	return l, nil
}

// A libraryOffer is what ranks tell one another about their library.
type libraryOffer struct{ Version int64 } // 0: none

// openLibrary creates the library's communicator. It returns nil if not all ranks have the
// same version, and logs which rank differs. All ranks call it with the device's context
// current. does is what the library is used for, for the log.
func openLibrary(ctx context.Context, cfg executor.Config, dev *device, does string) (*library, error) {
	var mine libraryOffer
	var lib *nccl.Library
	if file := cfg.Fallback(); file != "" && !cfg.Env.SameBits { // it reduces in its own order
		var err error
		if lib, err = libraryOf(file); err != nil {
			cfg.Log.Warnf("rank %d: ASSAY_NCCL_FALLBACK: %v", cfg.Rank, err)
		} else {
			mine.Version = int64(lib.Version())
		}
	}
	all, err := exchangeAll(ctx, cfg.Host, mine)
	if err != nil {
		return nil, err
	}
	if r := slices.IndexFunc(all, func(o libraryOffer) bool { return o != all[0] || o.Version == 0 }); r >= 0 {
		if lib != nil {
			cfg.Log.Infof(debug.Init, "rank %d: NVIDIA's library is not used: rank %d has %v, rank %d has %v", cfg.Rank, r, all[r], cfg.Rank, mine)
		}
		return nil, nil
	}
	var id nccl.UniqueID
	if cfg.Rank == 0 {
		if id, err = lib.UniqueID(); err != nil { // the other ranks learn of it when the communicator fails
			return nil, libraryError(cfg.Rank, "CommInitRank", err)
		}
	}
	ids, err := exchangeAll(ctx, cfg.Host, id)
	if err != nil {
		return nil, err
	}
	l := &library{cfg: cfg, dev: dev, lib: lib, stop: make(chan struct{})}
	if l.comm, err = l.join(ctx, ids[0]); err != nil {
		return nil, err
	}
	cfg.Log.Infof(debug.Init, "rank %d: NVIDIA's NCCL %v (%s) does %s", cfg.Rank, lib.Version(), lib.Path(), does)
	go l.watch()
	return l, nil
}

func (o libraryOffer) String() string {
	if o.Version == 0 {
		return "none"
	}
	return nccl.Version(o.Version).String()
}

// join joins the library's communicator. If another rank has given up, the library would wait
// for it forever. Then join returns, and the communicator is aborted if it is still created.
func (l *library) join(ctx context.Context, id nccl.UniqueID) (*nccl.Comm, error) {
	type made struct {
		comm *nccl.Comm
		err  error
	}
	done := make(chan made, 1)
	go func() {
		var m made
		err := l.dev.in(func() error {
			m.comm, m.err = l.lib.InitRank(l.cfg.Size, id, l.cfg.Rank)
			return nil
		})
		m.err = errors.Join(m.err, err)
		done <- m
	}()
	fault := time.NewTicker(libraryLook)
	defer fault.Stop()
	giveUp := func(err error) (*nccl.Comm, error) {
		go func() {
			if m := <-done; m.comm != nil {
				_ = l.dev.in(m.comm.Abort)
			}
		}()
		return nil, err
	}
	for {
		select {
		case m := <-done:
			return m.comm, libraryError(l.cfg.Rank, "CommInitRank", m.err)
		case <-ctx.Done():
			return giveUp(context.Cause(ctx))
		case <-fault.C:
			if err := l.cfg.Host.Err(); err != nil {
				return giveUp(err)
			}
		}
	}
}

// libraryLook is the interval at which the library is polled for errors.
const libraryLook = 250 * time.Millisecond

// watch fails the communicator when the library's communicator has failed.
func (l *library) watch() {
	tick := time.NewTicker(libraryLook)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		if err := l.comm.AsyncError(); err != nil && !errors.Is(err, nccl.ErrAborted) {
			l.cfg.Host.Fail(libraryError(l.cfg.Rank, "asynchronous", err))
			return
		}
	}
}

// do enqueues an operation. The device's context is current.
func (l *library) do(o *op.Op, s driver.Stream) error {
	what := o.Coll.String()
	if o.Coll == op.SendRecv {
		return libraryError(l.cfg.Rank, what, l.comm.Exchange(o.Transfers, uintptr(s)))
	}
	if o.Coll == op.AllToAll && op.Addr(o.Send) == op.Addr(o.Recv) {
		// The engine cannot do it instead: other ranks may not do it in place.
		return l.refuse(what, "NVIDIA's library, which does this operation, has no AllToAll in place")
	}
	red := nccl.Reduction(o.Red)
	switch {
	case o.Average || o.Divisor > 0:
		red = nccl.Reduction(elem.Avg)
	case o.Scaled:
		var err error
		if red, err = l.scale(o); err != nil {
			return libraryError(l.cfg.Rank, what, err)
		}
		defer l.comm.FreeOp(red)
	}
	return libraryError(l.cfg.Rank, what, l.comm.Do(o, red, uintptr(s)))
}

// scale creates the reduction of an operation that multiplies its input.
func (l *library) scale(o *op.Op) (nccl.RedOp, error) {
	if o.FactorAt {
		return l.comm.PreMulSumAt(uintptr(o.Factor), o.Type)
	}
	var scalar [8]byte
	binary.LittleEndian.PutUint64(scalar[:], o.Factor)
	return l.comm.PreMulSum(scalar[:o.Type.Size()], o.Type)
}

func (l *library) refuse(what, format string, args ...any) error {
	return &op.Error{Code: op.InvalidUsage, Rank: l.cfg.Rank, Op: what, Peer: op.NoPeer, Err: fmt.Errorf(format, args...)}
}

// libraryError converts an error of the library to an op.Error. Both have the same codes. It leaves
// other errors, such as the driver's, for coll to convert.
func libraryError(rank int, what string, err error) error {
	e, ok := errors.AsType[*nccl.Error](err)
	if !ok {
		return err
	}
	code := op.InternalError
	if e.Result > nccl.Success && e.Result != nccl.InProgress {
		code = op.Code(e.Result)
	}
	return &op.Error{Code: code, Rank: rank, Op: what, Peer: op.NoPeer, Err: fmt.Errorf("NVIDIA's library: %w", err)}
}

// abort makes enqueued work end soon. Calls after the first, and calls on a nil library, do
// nothing.
func (l *library) abort() {
	if l != nil {
		l.over.Do(func() { close(l.stop) })
		_ = l.dev.in(l.comm.Abort)
	}
}

// close frees the communicator when the enqueued work has ended.
func (l *library) close() error {
	if l == nil {
		return nil
	}
	l.over.Do(func() { close(l.stop) })
	return libraryError(l.cfg.Rank, "CommDestroy", l.dev.in(l.comm.Destroy))
}

// An outsideOp is an operation of a group that the library does.
type outsideOp struct {
	lib   *library
	order *order
	d     *executor.Op
	do    op.Op // d's operation, perhaps with only a part of its Transfers
	index int   // in the batch
}

// outside enqueues the group's operations for libraries, after all its other operations. It
// enqueues them in one library group, since one goroutine may drive several ranks that wait
// for one another.
func (b *batch) outside() (failed int, err error) {
	if len(b.out) == 0 {
		return -1, nil
	}
	defer func() {
		clear(b.out)
		b.out = b.out[:0]
	}()
	first := b.out[0]
	failed = first.index
	err = first.lib.dev.in(func() error {
		if err := first.lib.lib.GroupStart(); err != nil {
			return libraryError(first.lib.cfg.Rank, "GroupStart", err)
		}
		var wrong error
		for i := range b.out {
			if o := &b.out[i]; wrong == nil {
				if wrong = o.lib.do(&o.do, driver.Stream(o.d.Stream)); wrong != nil {
					failed = o.index
				}
			}
		}
		end := libraryError(first.lib.cfg.Rank, "GroupEnd", first.lib.lib.GroupEnd()) // called in any case
		if wrong != nil {
			return wrong
		}
		return end
	})
	for i := 0; i < len(b.out) && err == nil; i++ {
		o := &b.out[i]
		if err = o.order.end(o.d); err == nil {
			err = o.order.done()
		}
		failed = o.index
	}
	if err != nil {
		return failed, err
	}
	return -1, nil
}

// An outsider is the executor of a communicator that leaves all operations to the library:
// this engine would stage the data in host memory, or has no kernels for a GPU.
type outsider struct {
	cfg executor.Config
	order
	batch
	lib   *library
	times choose.Times

	mu     sync.Mutex
	closed bool
}

func newOutsider(cfg executor.Config, dev *device, lib *library) (*outsider, error) {
	x := &outsider{cfg: cfg, order: newOrder(&cfg, dev), lib: lib}
	x.times = choose.GPUTimes(cfg.Env.Tuning.Tables, dev.info.Name, cfg.Size)
	var err error
	if x.event, err = driver.NewEvent(0); err != nil {
		lib.abort()
		return nil, err
	}
	return x, nil
}

// Enqueue implements executor.Executor.
func (x *outsider) Enqueue(d *executor.Op) error {
	err := checked(&x.cfg, x.dev, &d.Op)
	if err == nil {
		err = x.begin(d)
	}
	if err == nil {
		err = x.dev.in(func() error { return x.lib.do(&d.Op, x.stream) })
	}
	if err == nil {
		err = x.end(d)
	}
	if err == nil {
		err = x.done()
	}
	return err
}

// Alloc implements executor.Executor.
func (x *outsider) Alloc(n int) (uintptr, error) { return x.dev.alloc(n) }

// Free implements executor.Executor.
func (x *outsider) Free(addr uintptr) error { return x.dev.free(addr) }

// Estimate implements executor.Executor. The library's times are not known: it returns what
// this engine would take between GPUs that reach one another.
func (x *outsider) Estimate(o *op.Op) time.Duration { return estimate(o, x.cfg.Size, false, &x.times) }

// Memory implements executor.Executor. The library's own memory is not known.
func (x *outsider) Memory() executor.Memory { return executor.Memory{Shared: x.dev.arena.share()} }

// Register implements executor.Executor: the library would have to register it.
func (x *outsider) Register(_ context.Context, addr uintptr, _ int) (executor.Registration, error) {
	return unreached(x.cfg, addr, byLibrary)
}

// LSA implements executor.Executor.
func (x *outsider) LSA(bool) (executor.LSATeam, error) { return executor.LSATeam{Why: byLibrary}, nil }

const byLibrary = "NVIDIA's library does the communicator's operations: the ranks do not reach one another's devices, or settings want it"

// Deregister implements executor.Executor.
func (x *outsider) Deregister(int) error { return nil }

// Suspend implements executor.Executor: the library keeps its memory.
func (x *outsider) Suspend(ctx context.Context) error { return x.together(ctx, x.cfg.Host) }

// Resume implements executor.Executor.
func (x *outsider) Resume(ctx context.Context) error { return x.together(ctx, x.cfg.Host) }

// Chosen implements executor.Executor.
func (x *outsider) Chosen() string { return nvidia.String() }

// Progress implements executor.Executor: the library's progress is not known.
func (x *outsider) Progress() executor.State { return executor.State{} }

// Abort implements executor.Executor.
func (x *outsider) Abort(error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		go x.lib.abort()
	}
}

// Close implements executor.Executor.
func (x *outsider) Close(tell func(byte) ([]byte, error)) error {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	if tell == nil {
		x.lib.abort()
	}
	return x.dev.in(func() error {
		if !x.drain(func() bool { return tell == nil }) {
			return nil
		}
		err := errors.Join(x.lib.close(), x.order.destroy())
		x.dev.arena.leave()
		return err
	})
}

// purposes lists, for the log, the operations for which rules choose the library.
func purposes(force choice, rules choose.Rules[choice]) string {
	if force.kernel == nvidia {
		return "all operations: ASSAY_GPU_ALGO"
	}
	var each []string
	for c, of := range rules {
		from := 0
		for _, r := range of {
			if r.C.kernel == nvidia {
				each = append(each, fmt.Sprintf("%v of %s", op.Collective(c), span(from, r.UpTo)))
			}
			from = r.UpTo + 1
		}
	}
	return strings.Join(each, ", ") + ": measured rules"
}

// span describes a range of sizes.
func span(from, to int) string {
	switch {
	case to == math.MaxInt64 && from == 0:
		return "any size"
	case to == math.MaxInt64:
		return fmt.Sprintf("%d bytes and more", from)
	}
	return fmt.Sprintf("%d to %d bytes", from, to)
}
