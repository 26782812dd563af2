//go:build cuda && cgo

package driver

// #include <cuda.h>
import "C"

import "unsafe"

// Copy copies n bytes between any addresses: of devices, of pinned memory, or of
// ordinary memory of the host outside of Go's heap. It is what a program gets
// that calls cudaMemcpy: the driver waits for the default stream, and for the
// copy unless both addresses are of one device.
func Copy(dst, src Ptr, n int) error {
	return failure("cuMemcpy", C.cuMemcpy(C.CUdeviceptr(dst), C.CUdeviceptr(src), C.size_t(n)))
}

// CopyPeerAsync copies n bytes from one device's memory to another's when the
// stream comes to it. Without peer access the driver takes them through memory
// of the host.
func CopyPeerAsync(dst Ptr, to *Context, src Ptr, from *Context, n int, s Stream) error {
	return failure("cuMemcpyPeerAsync", C.cuMemcpyPeerAsync(C.CUdeviceptr(dst), to.c(), C.CUdeviceptr(src), from.c(), C.size_t(n), s.c()))
}

func (c *Context) c() C.CUcontext { return *(*C.CUcontext)(unsafe.Pointer(&c.raw)) }

// DisablePeer takes back EnablePeer. The context must be current, and no work of
// it may use the peer's memory. That there was no access is no error.
func (c *Context) DisablePeer(peer *Context) error {
	code := C.cuCtxDisablePeerAccess(peer.c())
	if code == codePeerNotEnabled {
		return nil
	}
	return failure("cuCtxDisablePeerAccess", code)
}

// HostAllocCombined allocates pinned memory as HostAlloc does, which processors
// write through their write-combining buffers and do not cache: devices read it
// without asking the caches, and processors read it very slowly.
func HostAllocCombined(n int) (*Pinned, error) {
	return hostAlloc(n, C.CU_MEMHOSTALLOC_PORTABLE|C.CU_MEMHOSTALLOC_DEVICEMAP|C.CU_MEMHOSTALLOC_WRITECOMBINED)
}
