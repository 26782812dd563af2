//go:build cuda && cgo

package driver

// #include <cuda.h>
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Pinned is pinned host memory, which all devices can use.
type Pinned struct {
	Bytes []byte
	Ptr   Ptr // where the devices see it
}

// HostAlloc allocates n bytes of zeroed pinned memory, mapped into all contexts. n must be
// more than 0.
func HostAlloc(n int) (*Pinned, error) {
	return hostAlloc(n, C.CU_MEMHOSTALLOC_PORTABLE|C.CU_MEMHOSTALLOC_DEVICEMAP)
}

// HostAllocCombined is HostAlloc for memory that CPUs write through their write-combining
// buffers and do not cache: devices read it without asking the caches, and CPUs read it very
// slowly.
func HostAllocCombined(n int) (*Pinned, error) {
	return hostAlloc(n, C.CU_MEMHOSTALLOC_PORTABLE|C.CU_MEMHOSTALLOC_DEVICEMAP|C.CU_MEMHOSTALLOC_WRITECOMBINED)
}

func hostAlloc(n int, flags C.uint) (*Pinned, error) {
	var p unsafe.Pointer
	code := C.cuMemHostAlloc(&p, C.size_t(n), flags)
	if code != C.CUDA_SUCCESS {
		return nil, describe("cuMemHostAlloc", int(code), fmt.Sprintf("%d bytes", n))
	}
	m := &Pinned{Bytes: unsafe.Slice((*byte)(p), n)}
	clear(m.Bytes)
	var err error
	if m.Ptr, err = mapped(p); err != nil {
		C.cuMemFreeHost(p)
		return nil, err
	}
	return m, nil
}

// Free frees the memory, which neither the program nor a device may use any more. For nil it
// does nothing.
func (m *Pinned) Free() error {
	if m == nil {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(m.Bytes))
	m.Bytes, m.Ptr = nil, 0
	return wrap("cuMemFreeHost", cu.MemFreeHost(p))
}

// HostRegister pins existing memory, such as a shared mapping, and maps it into all contexts.
// The memory must be outside Go's heap and stay until HostUnregister.
func HostRegister(b []byte) (Ptr, error) {
	if len(b) == 0 {
		return 0, newError("cuMemHostRegister", 1, "no bytes")
	}
	p := unsafe.Pointer(&b[0])
	code := C.cuMemHostRegister(p, C.size_t(len(b)), C.CU_MEMHOSTREGISTER_PORTABLE|C.CU_MEMHOSTREGISTER_DEVICEMAP)
	if code != C.CUDA_SUCCESS {
		return 0, describe("cuMemHostRegister", int(code), fmt.Sprintf("%d bytes", len(b)))
	}
	d, err := mapped(p)
	if err != nil {
		C.cuMemHostUnregister(p)
	}
	return d, err
}

// HostUnregister undoes HostRegister. b must be the same bytes.
func HostUnregister(b []byte) error {
	return failure("cuMemHostUnregister", C.cuMemHostUnregister(unsafe.Pointer(unsafe.SliceData(b))))
}

// HostPtr returns the address at which the current context's device sees memory that another
// context has registered.
func HostPtr(addr uint64) (Ptr, error) {
	return mapped(*(*unsafe.Pointer)(unsafe.Pointer(&addr))) // not Go's memory
}

// mapped returns the address at which devices see pinned memory.
func mapped(p unsafe.Pointer) (Ptr, error) {
	var d C.CUdeviceptr
	err := failure("cuMemHostGetDevicePointer", C.cuMemHostGetDevicePointer(&d, p, 0))
	return Ptr(d), err
}
