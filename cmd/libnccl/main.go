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
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/cgo"
	"slices"
	"sync"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/harness/libnccl"
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
func assay_unique_id(environ **C.char, id *C.uint8_t, text *C.char) C.int {
	u, err := coll.GetUniqueID(coll.Config{Environ: environment(environ)})
	if err != nil {
		return result(err, text)
	}
	copy(unsafe.Slice((*byte)(id), int(C.ASSAY_ID)), u[:])
	return C.int(op.Success)
}

//export assay_device
func assay_device(device *C.int32_t, text *C.char) C.int {
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
	ranks, rank, device int
	nonblocking         bool
	give                context.CancelFunc // cancels the creation
	ready               chan struct{}      // closed: the creation succeeded or failed
	made                *coll.Comm         // after ready
	failed              error              // after ready

	mu       sync.Mutex
	factors  map[int32]factor // by the number of the reduction
	last     int32
	windows  map[uintptr]*coll.Window // by the caller's key
	revoked  bool
	finished chan struct{} // Finalize was called; closed when it is done
	ended    error         // after finished
}

func newComm() *comm {
	return &comm{ready: make(chan struct{}), factors: map[int32]factor{}, windows: map[uintptr]*coll.Window{}, last: int32(elem.Avg)}
}

// commOf returns the communicator of a handle.
func commOf(handle C.uintptr_t) *comm { return cgo.Handle(handle).Value().(*comm) }

// use returns the communicator, if its creation has succeeded.
func (c *comm) use(call string) (*coll.Comm, error) {
	select {
	case <-c.ready:
	default:
		return nil, wrong(op.InvalidArgument, call, "the communicator is still being made: wait until ncclCommGetAsyncError says ncclSuccess")
	}
	if c.failed != nil {
		return nil, c.failed
	}
	return c.made, nil
}

//export assay_make
func assay_make(environ **C.char, list *C.struct_assay_new, n C.size_t, text *C.char) C.int {
	news := unsafe.Slice(list, int(n))
	env := environment(environ)
	var first error
	var wait []int
	comms := make([]*comm, len(news))
	for i := range news {
		w := &news[i]
		c, run, err := prepare(w, env)
		w.comm, w.code = 0, C.int32_t(op.Success)
		if err != nil {
			w.code, first = C.int32_t(op.CodeOf(err)), errors.Join(first, err)
			continue
		}
		comms[i] = c
		w.comm = C.uintptr_t(cgo.NewHandle(c))
		ctx, give := context.WithCancel(context.Background())
		c.give = give
		go func() {
			defer give()
			c.made, c.failed = run(ctx)
			close(c.ready)
		}()
		if c.nonblocking {
			w.code = C.int32_t(op.InProgress)
			continue
		}
		wait = append(wait, i)
	}
	for _, i := range wait {
		c, w := comms[i], &news[i]
		<-c.ready
		if c.failed == nil && c.made != nil {
			continue
		}
		cgo.Handle(w.comm).Delete()
		if w.comm = 0; c.failed != nil {
			w.code, first = C.int32_t(op.CodeOf(c.failed)), errors.Join(first, c.failed)
		}
	}
	return result(first, text)
}

// prepare reads a request. run creates the communicator.
func prepare(w *C.struct_assay_new, env []string) (_ *comm, run func(context.Context) (*coll.Comm, error), err error) {
	c := newComm()
	c.nonblocking = w.config.blocking == 0
	if w.how != C.ASSAY_NEW {
		from, err := of(c, w, env)
		if err != nil {
			return nil, nil, err
		}
		return c, func(ctx context.Context) (*coll.Comm, error) {
			made, err := from(ctx)
			if made != nil {
				c.ranks, c.rank = made.Size(), made.Rank()
			}
			return made, err
		}, nil
	}
	c.ranks, c.rank, c.device = int(w.ranks), int(w.rank), int(w.device)
	id := idOf(w)
	name := ""
	if w.config.name != nil {
		name = C.GoString(w.config.name)
	}
	cfg := coll.Config{
		Environ: slices.Concat(env, settings(&w.config)), Device: &c.device, GPUs: cuda.Factory, AsNCCL: true,
		Name: name, Fallback: fallback, OnHang: func(v coll.Verdict) { fmt.Fprintf(os.Stderr, "libnccl (assay): %v\n", v) },
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

// groups pools groups for reuse.
var groups = sync.Pool{New: func() any { return new(coll.Group) }}

//export assay_run
func assay_run(ops *C.struct_assay_op, n C.size_t, text *C.char) C.int {
	if n == 1 && ops.kind != C.ASSAY_SEND && ops.kind != C.ASSAY_RECV {
		c := commOf(ops.comm)
		made, err := c.use("an operation")
		if err == nil {
			defer driver.Save().Restore()
			err = c.do(made, ops)
		}
		return result(err, text)
	}
	return result(runGroup(unsafe.Slice(ops, int(n)), (*coll.Group).End), text)
}

// runGroup collects operations in a group, and calls end on it.
func runGroup(ops []C.struct_assay_op, end func(*coll.Group) error) (err error) {
	for i := range ops {
		if _, err := commOf(ops[i].comm).use("an operation"); err != nil {
			return err
		}
	}
	defer driver.Save().Restore()
	g := groups.Get().(*coll.Group)
	defer groups.Put(g)
	g.Start()
	for i := range ops {
		c := commOf(ops[i].comm)
		g.Add(c.made)
		if err = c.do(c.made, &ops[i]); err != nil {
			g.Cancel()
			return err
		}
	}
	return end(g)
}

// do calls an operation on its stream.
func (c *comm) do(made *coll.Comm, o *C.struct_assay_op) error {
	if err := made.SetStream(uintptr(o.stream)); err != nil {
		return err
	}
	if o._type < 0 || o._type > C.int32_t(elem.Float8E5M2) {
		return wrong(op.InvalidArgument, "an operation", "there is no data type %d", o._type)
	}
	t, count := elem.Type(o._type), int(o.count)
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
// assay_scale_find found.
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

//export assay_scale_find
func assay_scale_find(o *C.struct_assay_op, text *C.char) C.int {
	c, call := commOf(o.comm), collectives[o.kind].String()
	c.mu.Lock()
	f, ok := c.factors[int32(o.red)]
	c.mu.Unlock()
	switch {
	case !ok:
		return result(wrong(op.InvalidArgument, call, "there is no reduction %d: it was not made by ncclRedOpCreatePreMulSum, or that failed", o.red), text)
	case f.t != elem.Type(o._type):
		return result(wrong(op.InvalidArgument, call, "reduction %d was made for %v, and this is of %v", o.red, f.t, elem.Type(o._type)), text)
	}
	if o.factor, o.residence = C.uint64_t(f.bits), scalarHere; f.at {
		o.residence = scalarOnDevice
	}
	return C.int(op.Success)
}

// Residences of a scalar, with the values of nccl.h.
const (
	scalarOnDevice = iota
	scalarHere
)

//export assay_scale_new
func assay_scale_new(handle C.uintptr_t, scalar unsafe.Pointer, typ, residence C.int, red *C.int32_t, text *C.char) C.int {
	const call = "RedOpCreatePreMulSum"
	c := commOf(handle)
	f := factor{t: elem.Type(typ), at: residence == scalarOnDevice}
	switch {
	case typ < 0 || !f.t.Valid():
		return result(wrong(op.InvalidArgument, call, "there is no data type %d", typ), text)
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
func assay_scale_drop(handle C.uintptr_t, red C.int32_t, text *C.char) C.int {
	c := commOf(handle)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.factors[int32(red)]; !ok {
		return result(wrong(op.InvalidArgument, "RedOpDestroy", "there is no reduction %d that was made", red), text)
	}
	delete(c.factors, int32(red))
	return C.int(op.Success)
}

//export assay_state
func assay_state(handle C.uintptr_t, text *C.char) C.int {
	c := commOf(handle)
	select {
	case <-c.ready:
	default:
		return C.int(op.InProgress)
	}
	c.mu.Lock()
	finished, revoked := c.finished, c.revoked
	c.mu.Unlock()
	if finished != nil {
		select {
		case <-finished:
			return result(c.ended, text)
		default:
			return C.int(op.InProgress)
		}
	}
	if c.failed != nil || c.made == nil || revoked {
		return result(c.failed, text)
	}
	return result(c.made.AsyncError(), text)
}

//export assay_info
func assay_info(handle C.uintptr_t, info *C.struct_assay_info, text *C.char) C.int {
	c := commOf(handle)
	select {
	case <-c.ready:
	default:
		if c.ranks == 0 { // of a Split, the size is not known yet
			return result(wrong(op.InvalidArgument, "CommCount", "the communicator is still being made"), text)
		}
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
				c.ended = c.made.Destroy()
			}
		}()
	}
	return c.finished
}

//export assay_finalize
func assay_finalize(handle C.uintptr_t, text *C.char) C.int {
	c := commOf(handle)
	if _, err := c.use("CommFinalize"); err != nil {
		return result(err, text)
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

//export assay_destroy
func assay_destroy(handle C.uintptr_t, text *C.char) C.int {
	c := commOf(handle)
	defer cgo.Handle(handle).Delete()
	<-c.finish()
	return result(c.ended, text)
}

//export assay_abort
func assay_abort(handle C.uintptr_t, text *C.char) C.int {
	c := commOf(handle)
	defer cgo.Handle(handle).Delete()
	c.give()
	<-c.ready
	if c.made == nil {
		return C.int(op.Success)
	}
	err := c.made.Abort()
	if errors.Is(err, coll.ErrDestroyed) { // it was finalized
		err = nil
	}
	return result(err, text)
}

//export assay_param
func assay_param(environ **C.char, name *C.char, number C.int32_t, full, value, text *C.char) C.int {
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
func assay_revoke(handle C.uintptr_t, text *C.char) C.int {
	c := commOf(handle)
	made, err := c.use("CommRevoke")
	if err == nil {
		err = made.Revoke()
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
