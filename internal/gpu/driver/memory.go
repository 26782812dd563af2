//go:build cuda && cgo

package driver

// #include <cuda.h>
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// A Ptr is an address that devices use. Addresses are unique among all devices
// and the host's memory.
type Ptr uint64

func (p Ptr) String() string { return fmt.Sprintf("%#x", uint64(p)) }

// Malloc allocates n bytes on the current context's device, aligned to at least 256 bytes. It
// may wait for work on the device, so it must not be called while a kernel waits for something
// that this thread does later.
func Malloc(n int) (Ptr, error) {
	p, err := cu.MemAlloc(int64(n))
	if err != nil {
		return 0, describe("cuMemAlloc", codeOf(err), fmt.Sprintf("%d bytes", n))
	}
	return Ptr(p), nil
}

// Free frees memory of Malloc. It waits for the work that uses it.
func Free(p Ptr) error { return wrap("cuMemFree", cu.MemFree(cu.DevicePtr(p))) }

// MemInfo returns how many bytes of the current context's device are free, and how many it
// has.
func MemInfo() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, wrap("cuMemGetInfo", err)
}

// Memset8 sets n bytes and returns when that is done. It does not wait for streams of
// NewStream.
func Memset8(p Ptr, v uint8, n int) error {
	return settled(wrap("cuMemsetD8", cu.MemsetD8(cu.DevicePtr(p), v, int64(n))))
}

// Memset8Async sets n bytes when the stream reaches it.
func Memset8Async(p Ptr, v uint8, n int, s Stream) error {
	return wrap("cuMemsetD8Async", cu.MemsetD8Async(cu.DevicePtr(p), v, int64(n), s.cu()))
}

// CopyToDevice copies the bytes and returns when they have arrived. It does not wait for
// streams of NewStream.
func CopyToDevice(dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return settled(wrap("cuMemcpyHtoD", cu.MemcpyHtoD(cu.DevicePtr(dst), unsafe.Pointer(&src[0]), int64(len(src)))))
}

// settled waits for the default stream, unless err is set. The driver's calls without a stream
// may return before all their work on the default stream is done, and streams of NewStream do
// not wait for that work.
func settled(err error) error {
	if err != nil {
		return err
	}
	return Stream(0).Synchronize()
}

// CopyFromDevice fills dst. It does not wait for streams of NewStream.
func CopyFromDevice(dst []byte, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	return wrap("cuMemcpyDtoH", cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), cu.DevicePtr(src), int64(len(dst))))
}

// CopyAsync copies n bytes between any addresses, of one device, of two devices or of pinned
// memory, when the stream reaches it.
func CopyAsync(dst, src Ptr, n int, s Stream) error {
	return wrap("cuMemcpyAsync", cu.MemcpyAsync(cu.DevicePtr(dst), cu.DevicePtr(src), int64(n), s.cu()))
}

// Copy copies n bytes between any addresses: of devices, of pinned memory, or of ordinary host
// memory outside Go's heap. It behaves like cudaMemcpy: the driver waits for the default
// stream, and for the copy unless both addresses are of one device.
func Copy(dst, src Ptr, n int) error {
	return failure("cuMemcpy", C.cuMemcpy(C.CUdeviceptr(dst), C.CUdeviceptr(src), C.size_t(n)))
}

// CopyPeerAsync copies n bytes from one device's memory to another's when the stream reaches
// it. Without peer access the driver stages them in host memory.
func CopyPeerAsync(dst Ptr, to *Context, src Ptr, from *Context, n int, s Stream) error {
	return failure("cuMemcpyPeerAsync", C.cuMemcpyPeerAsync(C.CUdeviceptr(dst), to.c(), C.CUdeviceptr(src), from.c(), C.size_t(n), s.c()))
}

// AddressRange returns the allocation that contains an address of device memory.
func AddressRange(p Ptr) (base Ptr, size int, err error) {
	n, b, err := cu.DevicePtr(p).AddressRange()
	return Ptr(b), int(n), wrap("cuMemGetAddressRange", err)
}

// PtrInfo describes the memory at an address.
type PtrInfo struct {
	Ordinal   int    // of the device; -1 if no device knows the address
	BufferID  uint64 // changes when the memory is freed and the address is used again
	IsDevice  bool   // device memory, not the host's
	LegacyIPC bool   // MemHandle works
}

// PointerInfo describes the memory at an address. An address that the driver does not know,
// such as ordinary host memory, is not an error.
func PointerInfo(p Ptr) (PtrInfo, error) {
	var (
		kind    C.uint
		ordinal C.int
		id      C.ulonglong
		legacy  C.int // the driver writes one byte of it
	)
	attributes := [...]C.CUpointer_attribute{
		C.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		C.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		C.CU_POINTER_ATTRIBUTE_BUFFER_ID,
		C.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
	}
	// One by one: the call for several attributes takes an array of pointers, which must not
	// be in Go's memory.
	for i, to := range [...]unsafe.Pointer{unsafe.Pointer(&kind), unsafe.Pointer(&ordinal), unsafe.Pointer(&id), unsafe.Pointer(&legacy)} {
		code := C.cuPointerGetAttribute(to, attributes[i], C.CUdeviceptr(p))
		if code == C.CUDA_ERROR_INVALID_VALUE && i == 0 {
			return PtrInfo{Ordinal: -1}, nil
		}
		if err := failure("cuPointerGetAttribute", code); err != nil {
			return PtrInfo{}, err
		}
	}
	return PtrInfo{
		Ordinal:   int(ordinal),
		BufferID:  uint64(id),
		IsDevice:  kind == C.CU_MEMORYTYPE_DEVICE,
		LegacyIPC: legacy != 0,
	}, nil
}
