//go:build cuda && cgo

package main

// #include <string.h>
// #include "front/engine.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A comm is a communicator, from the request for it on.
type comm struct {
	handle              uintptr
	number              uint64 // in the order of the requests
	ranks, rank, device int    // of a child ranks and rank are known after ready
	parent              *comm
	nonblocking         bool
	give                context.CancelFunc // cancels the creation
	ready               chan struct{}      // closed: the creation succeeded or failed
	made                *coll.Comm         // after ready
	failed              error              // after ready
	broken              atomic.Pointer[error]
	children            atomic.Int32 // nonblocking ones that are being made
	over                atomic.Int32 // destroyed, or aborted

	// calls is held during an operation, which only one goroutine may call at a time.
	calls sync.Mutex

	mu       sync.Mutex
	create   func() (*coll.Comm, error) // nil: the creation has begun, or never will
	factors  map[int32]factor           // by the number of the reduction
	last     int32
	windows  map[uintptr]*coll.Window // by the caller's key
	next     *coll.UniqueID           // of CommGetUniqueId, for the next CommGrow
	revoked  bool
	finished chan struct{} // Finalize was called; closed when it is done
	ended    error         // after finished
}

func newComm() *comm {
	return &comm{ready: make(chan struct{}), factors: map[int32]factor{}, windows: map[uintptr]*coll.Window{}, last: int32(elem.Avg)}
}

// usable returns an error unless the creation of the communicator has succeeded.
func (c *comm) usable(call string) error {
	select {
	case <-c.ready:
	default:
		return wrong(op.InvalidArgument, call, "the communicator is still being made: wait until ncclCommGetAsyncError says ncclSuccess, or for the group's end")
	}
	if broken := c.broken.Load(); broken != nil {
		return *broken
	}
	if c.failed == nil && c.made == nil { // a rank that a Split left out has no handle
		return wrong(op.InvalidArgument, call, "the communicator was left out of its Split")
	}
	return c.failed
}

// release ends what began with calls.Lock. After a panic the communicator's state is not known.
func (c *comm) release(done *bool) {
	if !*done {
		err := wrong(op.InternalError, "an operation", "an internal error has left the communicator in an unknown state: abort it")
		c.broken.Store(&err)
	}
	c.calls.Unlock()
}

// settle ends the creation.
func (c *comm) settle(made *coll.Comm, err error) {
	if c.made, c.failed = made, err; made != nil && c.parent != nil {
		c.ranks, c.rank = made.Size(), made.Rank()
	}
	if made == nil && err == nil { // left out
		c.remove()
	}
	close(c.ready)
	if c.nonblocking && c.parent != nil {
		c.parent.children.Add(-1) // later: then the child can be used
	}
}

// begin returns the creation, to whoever asks first.
func (c *comm) begin() func() (*coll.Comm, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	create := c.create
	c.create = nil
	return create
}

// start begins the creation, unless the communicator was ended before.
func (c *comm) start() {
	create := c.begin()
	if create == nil {
		return
	}
	go func() {
		defer c.give()
		var made *coll.Comm
		err := guarded("CommInitRank", func() (err error) {
			made, err = create()
			return err
		})
		c.settle(made, err)
	}()
}

// cancel has a creation that has not begun fail.
func (c *comm) cancel(err error) {
	if c.begin() != nil {
		c.give()
		c.settle(nil, err)
	}
}

// assay_make enters a communicator, which assay_start creates.
//
//export assay_make
func assay_make(environ **C.char, w *C.struct_assay_new, text *C.char) (code C.int) {
	defer guard("CommInitRank", text, &code)
	c, create, err := prepare(w, environment(environ))
	if err == nil {
		var ctx context.Context
		ctx, c.give = context.WithCancel(context.Background())
		c.create = func() (*coll.Comm, error) { return create(ctx) }
		err = c.enter()
	}
	if err != nil {
		return result(err, text)
	}
	if c.nonblocking && c.parent != nil {
		c.parent.children.Add(1)
	}
	w.comm = C.uintptr_t(c.handle)
	return C.int(op.Success)
}

// assay_start creates communicators, all at the same time, or none: if one has been ended since it
// was requested, or the group failed and has to give them up.
//
//export assay_start
func assay_start(list *C.uintptr_t, n C.size_t, give C.int, text *C.char) (code C.int) {
	const call = "CommInitRank"
	defer guard(call, text, &code)
	var first error
	var all []*comm
	for _, handle := range unsafe.Slice(list, int(n)) {
		c, err := commOf(call, handle)
		if err != nil {
			first = errors.Join(first, err)
			continue
		}
		all = append(all, c)
	}
	if first != nil || give != 0 {
		for _, c := range all {
			c.cancel(wrong(op.InvalidUsage, call, "the group that was to make the communicator failed"))
		}
		return result(first, text)
	}
	for _, c := range all {
		c.start()
	}
	later := false
	var own, heard error // heard: another rank's, which may be among these
	for _, c := range all {
		if c.nonblocking {
			later = true
			continue
		}
		<-c.ready
		if op.CodeOf(c.failed) == op.RemoteError {
			heard = errors.Join(heard, c.failed)
		} else {
			own = errors.Join(own, c.failed)
		}
	}
	first = errors.Join(own, heard)
	if first == nil && later {
		return C.int(op.InProgress)
	}
	return result(first, text)
}

// prepare reads a request. run creates the communicator.
func prepare(w *C.struct_assay_new, env []string) (_ *comm, run func(context.Context) (*coll.Comm, error), err error) {
	c := newComm()
	c.nonblocking = w.config.blocking == 0
	if w.how != C.ASSAY_NEW {
		run, err = of(c, w, env)
		return c, run, err
	}
	c.ranks, c.rank, c.device = int(w.ranks), int(w.rank), int(w.device)
	if c.ranks < 1 || c.rank < 0 || c.rank >= c.ranks {
		return nil, nil, wrong(op.InvalidArgument, "CommInitRank", "there is no rank %d of %d", c.rank, c.ranks)
	}
	if err := driver.Init(); err != nil { // before another rank reports the same
		return nil, nil, err
	}
	id := idOf(w)
	name := ""
	if w.config.name != nil {
		name = C.GoString(w.config.name)
	}
	cfg := coll.Config{
		Environ: slices.Concat(env, settings(&w.config)), Device: &c.device, GPUs: cuda.Factory, AsNCCL: true,
		Name: name, Fallback: fallback, OnHang: func(v hang.Verdict) { fmt.Fprintf(os.Stderr, "libnccl (assay): %v\n", v) },
	}
	return c, func(ctx context.Context) (*coll.Comm, error) {
		return coll.CommInitRank(ctx, c.ranks, *id, c.rank, cfg)
	}, nil
}

func idOf(w *C.struct_assay_new) *coll.UniqueID {
	return (*coll.UniqueID)(C.GoBytes(unsafe.Pointer(&w.id[0]), C.ASSAY_ID))
}
