//go:build cuda && cgo

// Libassay-coll.so is the engine behind libnccl.so.2: package coll on GPUs, with the
// functions of front/engine.h. The C side of it is in front. Build it with
// make libnccl.
package main

// #cgo CFLAGS: -D_GNU_SOURCE
// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <limits.h>
// #include <string.h>
// #include "front/engine.h"
//
// // The device that CUDA's runtime has chosen for the thread, if the program has it as
// // a library: with drivers before 12 cudaSetDevice makes no context current. -1:
// // nobody knows.
// static int runtime_device(void) {
// 	int (*get)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cudaGetDevice");
// 	int device;
// 	return get && get(&device) == 0 ? device : -1;
// }
//
// // An address in this library.
// static void *here(void) { return (void *)runtime_device; }
import "C"

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/libnccl"
)

func main() {}

//export assay_abi
func assay_abi() C.int { return C.ASSAY_ABI }

// result converts an error for C: it returns a code, and writes the message to text.
func result(err error, text *C.char) C.int {
	if err == nil {
		return C.int(op.Success)
	}
	code := op.CodeOf(err)
	if _, ok := errors.AsType[*driver.Error](err); ok && code == op.InternalError {
		code = op.UnhandledCudaError
	}
	put(text, err.Error())
	return C.int(code)
}

// put writes a string to a buffer of C, truncated to its size.
func put(at *C.char, s string) {
	to := unsafe.Slice((*byte)(unsafe.Pointer(at)), int(C.ASSAY_TEXT))
	to[copy(to[:len(to)-1], s)] = 0
}

// wrong returns the error of an invalid call.
func wrong(code op.Code, call, format string, args ...any) error {
	return &op.Error{Code: code, Rank: op.NoPeer, Op: call, Peer: op.NoPeer, Err: fmt.Errorf(format, args...)}
}

// environment converts an environment of C.
func environment(of **C.char) []string {
	var all []string
	for p := of; *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		all = append(all, C.GoString(*p))
	}
	return all
}

//export assay_unique_id
func assay_unique_id(environ **C.char, parent C.uintptr_t, id *C.uint8_t, text *C.char) (code C.int) {
	const call = "GetUniqueId"
	defer guard(call, text, &code)
	var grows *comm
	if parent != 0 {
		c, err := using("CommGetUniqueId", parent)
		if err != nil {
			return result(err, text)
		}
		grows = c
	}
	u, err := coll.GetUniqueID(coll.Config{Environ: environment(environ)})
	if err != nil {
		return result(err, text)
	}
	if grows != nil {
		grows.mu.Lock()
		grows.next = &u
		grows.mu.Unlock()
	}
	copy(unsafe.Slice((*byte)(id), int(C.ASSAY_ID)), u[:])
	return C.int(op.Success)
}

//export assay_device
func assay_device(device *C.int32_t, text *C.char) (code C.int) {
	defer guard("CommInitRank", text, &code)
	if err := driver.Init(); err != nil {
		return result(err, text)
	}
	n, ok := driver.Current()
	if !ok {
		n = max(0, int(C.runtime_device()))
	}
	*device = C.int32_t(n)
	return C.int(op.Success)
}

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
	for _, c := range all {
		if c.nonblocking {
			later = true
			continue
		}
		<-c.ready
		first = errors.Join(first, c.failed)
	}
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

// nvidias returns the path of NVIDIA's library that the loader would find if the program
// did not have this one; "": there is none. LD_LIBRARY_PATH is the process's, as for the
// loader.
var nvidias = sync.OnceValue(func() string {
	dir, _ := libnccl.FindNVIDIA(os.Getenv("LD_LIBRARY_PATH"))
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, libnccl.Name)
})

// fallback returns the library for what the engine does not support. It never returns
// this library, even if a variable names it: each communicator would create another one
// of this library.
func fallback(named string) string {
	if named == "" {
		return nvidias()
	}
	if st, err := os.Stat(named); err == nil && st.IsDir() {
		named = filepath.Join(named, libnccl.Name)
	}
	its, err := os.Stat(named)
	if err != nil {
		return named // so that an error names it
	}
	var info C.Dl_info
	if C.dladdr(C.here(), &info) != 0 {
		self, err := os.Stat(filepath.Join(filepath.Dir(C.GoString(info.dli_fname)), libnccl.Name))
		if err == nil && os.SameFile(its, self) {
			return ""
		}
	}
	return named
}

func idOf(w *C.struct_assay_new) *coll.UniqueID {
	return (*coll.UniqueID)(C.GoBytes(unsafe.Pointer(&w.id[0]), C.ASSAY_ID))
}

// A batch is what runGroup uses, kept for the next call.
type batch struct {
	group coll.Group
	comms []*comm // of the operations
	held  []*comm // each once, in the order of their numbers
}

var batches = sync.Pool{New: func() any { return new(batch) }}

//export assay_run
func assay_run(ops *C.struct_assay_op, n C.size_t, text *C.char) (code C.int) {
	defer guard("an operation", text, &code)
	if n == 1 && ops.kind != C.ASSAY_SEND && ops.kind != C.ASSAY_RECV {
		return result(runOne(ops), text)
	}
	return result(runGroup(unsafe.Slice(ops, int(n)), (*coll.Group).End), text)
}

func runOne(o *C.struct_assay_op) error {
	c, err := using("an operation", o.comm)
	if err != nil {
		return err
	}
	defer driver.Save().Restore()
	done := false
	c.calls.Lock()
	defer c.release(&done)
	err = c.do(o)
	done = true
	return err
}

// runGroup collects operations in a group, and calls end on it.
func runGroup(ops []C.struct_assay_op, end func(*coll.Group) error) (err error) {
	b := batches.Get().(*batch)
	done := false
	defer func() {
		if !done { // a panic, or an error before the end
			b.group.Cancel()
		}
		for _, c := range b.held {
			c.release(&done)
		}
		clear(b.comms)
		clear(b.held)
		b.comms, b.held = b.comms[:0], b.held[:0]
		batches.Put(b)
	}()
	for i := range ops {
		c, err := using("an operation", ops[i].comm)
		if err != nil {
			done = true
			return err
		}
		b.comms = append(b.comms, c)
	}
	b.hold()
	defer driver.Save().Restore()
	b.group.Start()
	for i, c := range b.comms {
		b.group.Add(c.made)
		if err = c.do(&ops[i]); err != nil {
			b.group.Cancel()
			done = true
			return err
		}
	}
	err = end(&b.group)
	done = true
	return err
}

// hold locks the communicators. Groups of several threads may have the same ones, so they do it in
// the same order.
func (b *batch) hold() {
	b.held = append(b.held, b.comms...)
	slices.SortFunc(b.held, func(x, y *comm) int { return cmp.Compare(x.number, y.number) })
	b.held = slices.Compact(b.held)
	for _, c := range b.held {
		c.calls.Lock()
	}
}

// do calls an operation on its stream.
func (c *comm) do(o *C.struct_assay_op) error {
	made := c.made
	if err := made.SetStream(uintptr(o.stream)); err != nil {
		return err
	}
	t, err := typeOf("an operation", C.int(o._type))
	if err != nil {
		return err
	}
	count := int(o.count)
	memory := func(p unsafe.Pointer, parts int) []byte { return op.Memory(uintptr(p), parts*count*t.Size()) }
	switch o.kind {
	case C.ASSAY_SEND:
		return made.Send(coll.Device(uintptr(o.send), count*t.Size()), count, t, int(o.root))
	case C.ASSAY_RECV:
		return made.Recv(coll.Device(uintptr(o.recv), count*t.Size()), count, t, int(o.root))
	}
	d := op.Op{Coll: collectives[o.kind], Device: true, Count: count, Type: t, Root: int(o.root)}
	if d.Coll.Reduces() {
		reduce(&d, o)
	}
	send, recv := d.Coll.Parts(c.rank, d.Root, c.ranks)
	d.Send, d.Recv = memory(o.send, send), memory(o.recv, recv)
	return made.Do(&d)
}

// typeOf returns the element type of a data type of nccl.h, which may be any number.
func typeOf(call string, n C.int) (elem.Type, error) {
	if n < 0 || n > C.int(elem.Float8E5M2) {
		return 0, wrong(op.InvalidArgument, call, "there is no data type %d", n)
	}
	return elem.Type(n), nil
}

var collectives = [...]op.Collective{
	C.ASSAY_ALL_REDUCE: op.AllReduce, C.ASSAY_BROADCAST: op.Broadcast, C.ASSAY_REDUCE: op.Reduce,
	C.ASSAY_ALL_GATHER: op.AllGather, C.ASSAY_REDUCE_SCATTER: op.ReduceScatter, C.ASSAY_ALL_TO_ALL: op.AllToAll,
	C.ASSAY_GATHER: op.Gather, C.ASSAY_SCATTER: op.Scatter,
}

// A factor is a reduction that ncclRedOpCreatePreMulSum created.
type factor struct {
	t    elem.Type
	bits uint64 // of an element, or its address on the device
	at   bool   // bits is the address
}

// reduce sets the reduction of an operation: one of NCCL's own, or the one that
// assay_check found.
func reduce(d *op.Op, o *C.struct_assay_op) {
	if o.red <= C.int32_t(elem.Avg) {
		d.Red = elem.Op(o.red)
		return
	}
	d.Red, d.Scaled, d.Factor, d.FactorAt = elem.Sum, true, uint64(o.factor), o.residence == scalarOnDevice
	if !d.FactorAt {
		d.Scale = elem.Float(d.Type, binary.LittleEndian.AppendUint64(nil, d.Factor)[:d.Type.Size()])
	}
}

// check finds what is wrong with an operation before it is called, and the factor of its
// reduction.
//
//export assay_check
func assay_check(o *C.struct_assay_op, text *C.char) (code C.int) {
	defer guard("an operation", text, &code)
	return result(check(o), text)
}

func check(o *C.struct_assay_op) error {
	call := "Send or Recv"
	if int(o.kind) < len(collectives) {
		call = collectives[o.kind].String()
	}
	c, err := using(call, o.comm)
	if err != nil {
		return err
	}
	t, err := typeOf(call, C.int(o._type))
	if err != nil || o.red >= 0 && o.red <= C.int32_t(elem.Avg) {
		return err
	}
	c.mu.Lock()
	f, ok := c.factors[int32(o.red)]
	c.mu.Unlock()
	switch {
	case !ok:
		return wrong(op.InvalidArgument, call, "there is no reduction %d: it was not made by ncclRedOpCreatePreMulSum, or that failed", o.red)
	case f.t != t:
		return wrong(op.InvalidArgument, call, "reduction %d was made for %v, and this is of %v", o.red, f.t, t)
	}
	if o.factor, o.residence = C.uint64_t(f.bits), scalarHere; f.at {
		o.residence = scalarOnDevice
	}
	return nil
}

// Residences of a scalar, with the values of nccl.h.
const (
	scalarOnDevice = iota
	scalarHere
)

//export assay_scale_new
func assay_scale_new(handle C.uintptr_t, scalar unsafe.Pointer, typ, residence C.int, red *C.int32_t, text *C.char) (code C.int) {
	const call = "RedOpCreatePreMulSum"
	defer guard(call, text, &code)
	c, err := using(call, handle)
	if err != nil {
		return result(err, text)
	}
	t, err := typeOf(call, typ)
	if err != nil {
		return result(err, text)
	}
	f := factor{t: t, at: residence == scalarOnDevice}
	switch {
	case f.at: // it is read when the operation runs
		f.bits = uint64(uintptr(scalar))
		if f.bits%uint64(f.t.Size()) != 0 {
			return result(wrong(op.InvalidArgument, call, "the address of a %v is a multiple of %d", f.t, f.t.Size()), text)
		}
	case residence == scalarHere:
		var b [8]byte
		copy(b[:], unsafe.Slice((*byte)(scalar), f.t.Size()))
		f.bits = binary.LittleEndian.Uint64(b[:])
	default:
		return result(wrong(op.InvalidArgument, call, "there is no residence %d", residence), text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	c.factors[c.last] = f
	*red = C.int32_t(c.last)
	return C.int(op.Success)
}

//export assay_scale_drop
func assay_scale_drop(handle C.uintptr_t, red C.int32_t, text *C.char) (code C.int) {
	const call = "RedOpDestroy"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err != nil {
		return result(err, text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.factors[int32(red)]; !ok {
		return result(wrong(op.InvalidArgument, call, "there is no reduction %d that was made", red), text)
	}
	delete(c.factors, int32(red))
	return C.int(op.Success)
}

// assay_state returns the state of a communicator; its code is an error of the call.
//
//export assay_state
func assay_state(handle C.uintptr_t, state *C.int32_t, text *C.char) (code C.int) {
	const call = "CommGetAsyncError"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err != nil {
		return result(err, text)
	}
	done, err := c.state()
	if *state = C.int32_t(op.InProgress); done {
		*state = C.int32_t(result(err, text))
	}
	return C.int(op.Success)
}

// state returns what has gone wrong, if nothing is still to be done.
func (c *comm) state() (done bool, err error) {
	select {
	case <-c.ready:
	default:
		return false, nil
	}
	if broken := c.broken.Load(); broken != nil {
		return true, *broken
	}
	c.mu.Lock()
	finished, revoked := c.finished, c.revoked
	c.mu.Unlock()
	if finished != nil {
		select {
		case <-finished:
			return true, c.ended
		default:
			return false, nil
		}
	}
	if c.failed != nil || c.made == nil {
		return true, c.failed
	}
	if !revoked {
		err = c.made.AsyncError()
	}
	return err != nil || c.children.Load() == 0, err
}

//export assay_info
func assay_info(handle C.uintptr_t, info *C.struct_assay_info, text *C.char) (code C.int) {
	const call = "CommCount"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err == nil && c.parent != nil { // of a child, the size is not known before
		err = c.usable(call)
	}
	if err != nil {
		return result(err, text)
	}
	*info = C.struct_assay_info{ranks: C.int32_t(c.ranks), rank: C.int32_t(c.rank), device: C.int32_t(c.device)}
	return C.int(op.Success)
}

// finish destroys the communicator once. It returns a channel that is closed when that is
// done.
func (c *comm) finish() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished == nil {
		done := make(chan struct{})
		c.finished = done
		go func() {
			defer close(done)
			if <-c.ready; c.made != nil {
				c.ended = guarded("CommDestroy", c.made.Destroy)
			}
		}()
	}
	return c.finished
}

//export assay_finalize
func assay_finalize(handle C.uintptr_t, text *C.char) (code C.int) {
	const call = "CommFinalize"
	defer guard(call, text, &code)
	c, err := using(call, handle)
	if err != nil {
		return result(err, text)
	}
	c.mu.Lock()
	again := c.finished != nil
	c.mu.Unlock()
	if again {
		return result(wrong(op.InvalidArgument, call, "it was called before"), text)
	}
	done := c.finish()
	if c.nonblocking { // assay_state says when it is done
		select {
		case <-done:
		default:
			return C.int(op.InProgress)
		}
	}
	<-done
	return result(c.ended, text)
}

// What has ended a communicator.
const (
	whole int32 = iota
	destroyed
	aborted
)

//export assay_destroy
func assay_destroy(handle C.uintptr_t, text *C.char) (code C.int) {
	const call = "CommDestroy"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err == nil && !c.over.CompareAndSwap(whole, destroyed) {
		err = wrong(op.InvalidArgument, call, "another thread destroys or aborts the communicator")
	}
	if err != nil {
		return result(err, text)
	}
	defer c.remove() // an Abort may end what this waits for
	c.cancel(wrong(op.InvalidUsage, call, "the communicator was destroyed before its group ended"))
	<-c.finish()
	return result(c.ended, text)
}

//export assay_abort
func assay_abort(handle C.uintptr_t, text *C.char) (code C.int) {
	const call = "CommAbort"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err == nil && c.over.Swap(aborted) == aborted {
		err = wrong(op.InvalidArgument, call, "another thread aborts the communicator")
	}
	if err != nil {
		return result(err, text)
	}
	defer c.remove()
	c.cancel(wrong(op.InvalidUsage, call, "the communicator was aborted before its group ended"))
	c.give()
	<-c.ready
	if c.made == nil {
		return C.int(op.Success)
	}
	if err = c.made.Abort(); errors.Is(err, coll.ErrDestroyed) { // it was finalized
		err = nil
	}
	return result(err, text)
}

//export assay_param
func assay_param(environ **C.char, name *C.char, number C.int32_t, full, value, text *C.char) (code C.int) {
	defer guard("Param", text, &code)
	rows := knob.Table()
	i := int(number)
	if name != nil {
		i = slices.IndexFunc(rows, func(k knob.Knob) bool { return k.Name == C.GoString(name) })
	}
	if i < 0 || i >= len(rows) {
		return result(wrong(op.InvalidArgument, "Param", "there is no such variable; docs/knobs.md has them all"), text)
	}
	says := rows[i].Default
	k, _, err := knob.Load(environment(environ), nil)
	if err != nil {
		return result(wrong(op.InvalidArgument, "Param", "%w", err), text)
	}
	for _, s := range k.Settings() {
		if s.Name == rows[i].Name {
			says = s.Value
		}
	}
	put(full, rows[i].Name)
	put(value, says)
	return C.int(op.Success)
}

//export assay_revoke
func assay_revoke(handle C.uintptr_t, text *C.char) (code C.int) {
	const call = "CommRevoke"
	defer guard(call, text, &code)
	c, err := using(call, handle)
	if err == nil {
		err = c.made.Revoke()
	}
	if err == nil {
		c.mu.Lock()
		c.revoked = true
		c.mu.Unlock()
	}
	return result(err, text)
}

// onDevice runs f with the context of the thread's device current.
func onDevice(f func() error) error {
	if err := driver.Init(); err != nil {
		return err
	}
	defer driver.Save().Restore()
	defer driver.Relax().Restore()
	if _, ok := driver.Current(); !ok {
		ctx, err := driver.Open(max(0, int(C.runtime_device()))) // never closed: the memory is in this context
		if err == nil {
			err = ctx.Bind()
		}
		if err != nil {
			return err
		}
	}
	return f()
}
