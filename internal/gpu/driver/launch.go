//go:build cuda && cgo

package driver

// #cgo noescape assay_run
// #cgo nocallback assay_run
// #cgo noescape assay_run_all
// #cgo nocallback assay_run_all
// #include <stdint.h>
// #include <stdlib.h>
// #include "launch.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// A Launch is a prepared launch of a kernel. Its parameters and settings persist from run to
// run and may be changed in between, because the driver copies them. Only one thread may use
// it at a time.
type Launch struct {
	c            *C.assay_launch
	params       int
	dependent    bool
	cooperative  bool
	remoteDomain bool
	cluster      int
}

// NewLaunch prepares a launch of a kernel with parameters of the given sizes in bytes: one
// block of one thread, on the default stream.
func NewLaunch(f Func, paramSizes ...int) *Launch {
	head := aligned(C.sizeof_assay_launch)
	total := head + aligned(len(paramSizes)*C.sizeof_uintptr_t)
	offsets := make([]int, len(paramSizes))
	for i, n := range paramSizes {
		offsets[i] = total
		total += aligned(n)
	}
	p := C.malloc(C.size_t(total)) // never fails
	clear(unsafe.Slice((*byte)(p), total))
	l := &Launch{c: (*C.assay_launch)(p), params: len(paramSizes)}
	l.c.params = (*unsafe.Pointer)(unsafe.Add(p, head))
	for i, at := range offsets {
		unsafe.Slice(l.c.params, l.params)[i] = unsafe.Add(p, at)
	}
	l.c.config.attrs = &l.c.attributes[0]
	l.SetFunc(f)
	l.SetGrid(1, 1, 1)
	l.SetBlock(1, 1, 1)
	return l
}

// aligned rounds up to the alignment of parameters.
func aligned(n int) int { return (n + 15) &^ 15 }

// Close frees the launch and its parameters.
func (l *Launch) Close() {
	C.free(unsafe.Pointer(l.c))
	l.c = nil
}

// SetFunc sets another kernel with the same parameters.
func (l *Launch) SetFunc(f Func) {
	l.c.function = f.c()
	l.c.context = *(*C.CUcontext)(unsafe.Pointer(&f.context))
}

// Param returns the address of a parameter, which is aligned to 16 bytes and outside Go's
// heap.
func (l *Launch) Param(i int) unsafe.Pointer {
	return unsafe.Slice(l.c.params, l.params)[i]
}

// SetGrid sets how many blocks there are.
func (l *Launch) SetGrid(x, y, z int) {
	c := &l.c.config
	c.gridDimX, c.gridDimY, c.gridDimZ = C.uint(x), C.uint(y), C.uint(z)
}

// SetBlock sets how many threads a block has.
func (l *Launch) SetBlock(x, y, z int) {
	c := &l.c.config
	c.blockDimX, c.blockDimY, c.blockDimZ = C.uint(x), C.uint(y), C.uint(z)
}

// SetShared sets the bytes of shared memory that a block gets in addition to those that the
// kernel declares.
func (l *Launch) SetShared(bytes int) { l.c.config.sharedMemBytes = C.uint(bytes) }

// SetStream sets the stream, of the kernel's context.
func (l *Launch) SetStream(s Stream) { l.c.config.hStream = s.c() }

// SetDependent lets the kernel start before the previous kernel in the stream has ended
// (programmatic dependent launch). The kernel itself must wait before it touches memory that
// the previous one writes. Before compute capability 9.0 it has no effect.
func (l *Launch) SetDependent(on bool) {
	if on != l.dependent {
		l.dependent = on
		l.setAttributes()
	}
}

// SetCluster makes clusters of n consecutive blocks, which run at the same time and share memory
// (compute capability 9.0; up to 8 blocks on every such GPU). The grid is a multiple of n.
func (l *Launch) SetCluster(n int) {
	if n != l.cluster {
		l.cluster = n
		l.setAttributes()
	}
}

// SetCooperative makes the launch fail with ErrResources unless all blocks can be
// resident at the same time.
func (l *Launch) SetCooperative(on bool) {
	l.cooperative = on
	l.setAttributes()
}

// SetRemoteDomain puts the kernel's memory operations into the domain for remote
// traffic, so that its fences do not wait for the stores of kernels that compute
// (compute capability 9.0; no effect before).
func (l *Launch) SetRemoteDomain(on bool) {
	l.remoteDomain = on
	l.setAttributes()
}

// Attributes that CUDA 11.8's header lacks, and their values.
const (
	attributeMemSyncDomain = 10
	memSyncDomainRemote    = 1
)

func (l *Launch) setAttributes() {
	n := 0
	for _, a := range [...]struct {
		on    bool
		id    C.CUlaunchAttributeID
		value int32
	}{
		{l.dependent, C.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 1},
		{l.cooperative, C.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1},
		{l.remoteDomain, attributeMemSyncDomain, memSyncDomainRemote},
		{l.cluster > 1, C.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, int32(l.cluster)},
	} {
		if a.on {
			l.c.attributes[n].id = a.id
			*(*[3]int32)(unsafe.Pointer(&l.c.attributes[n].value)) = [...]int32{a.value, 1, 1} // a cluster has three dimensions
			n++
		}
	}
	l.c.config.numAttrs = C.uint(n)
}

// Run enqueues the kernel. The context of the stream must be current. It
// allocates nothing.
func (l *Launch) Run() error {
	if code := C.assay_run(l.c); code != C.CUDA_SUCCESS {
		return l.failed(code)
	}
	return nil
}

// RunAll enqueues several different launches in order, each in the context of its kernel, and
// leaves the thread's current context as it was. It allocates nothing. After an error the
// remaining launches are not enqueued.
func RunAll(ls []*Launch) error {
	if len(ls) == 0 {
		return nil
	}
	for i, l := range ls[1:] {
		ls[i].c.next = l.c
	}
	ls[len(ls)-1].c.next = nil
	if o := C.assay_run_all(ls[0].c); o.code != C.CUDA_SUCCESS {
		return fmt.Errorf("launch %d of %d: %w", o.done+1, len(ls), ls[o.done].failed(o.code))
	}
	return nil
}

// failed describes a launch that failed: most often its shape is at fault.
func (l *Launch) failed(code C.CUresult) error {
	c := &l.c.config
	return describe("cuLaunchKernelEx", int(code), fmt.Sprintf("grid %d×%d×%d, block %d×%d×%d, %d bytes of shared memory",
		c.gridDimX, c.gridDimY, c.gridDimZ, c.blockDimX, c.blockDimY, c.blockDimZ, c.sharedMemBytes))
}
