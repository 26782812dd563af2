//go:build cuda && cgo

package driver

// #cgo noescape assay_bind
// #cgo nocallback assay_bind
// #cgo noescape assay_current
// #cgo nocallback assay_current
// #cgo noescape assay_capture_mode
// #cgo nocallback assay_capture_mode
// #include <cuda.h>
//
// // Making a context current that is so already costs the driver more than to
// // say which one is.
// static inline CUresult assay_bind(void *context) {
// 	CUcontext current;
// 	if (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == (CUcontext)context)
// 		return CUDA_SUCCESS;
// 	return cuCtxSetCurrent((CUcontext)context);
// }
//
// static inline CUstreamCaptureMode assay_capture_mode(CUstreamCaptureMode mode) {
// 	cuThreadExchangeStreamCaptureMode(&mode);
// 	return mode;
// }
//
// static inline void assay_unbind(void *context) {
// 	CUcontext current;
// 	if (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == (CUcontext)context)
// 		cuCtxSetCurrent(NULL);
// }
// // The context is NULL where none is current.
// static inline void *assay_current(void) {
// 	CUcontext current = NULL;
// 	cuCtxGetCurrent(&current);
// 	return current;
// }
//
// // The device is -1 where no context is current.
// static inline int assay_current_device(void) {
// 	CUdevice device;
// 	return assay_current() && cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
// }
import "C"

import (
	"errors"
	"unsafe"

	"gorgonia.org/cu"
)

// A Context is the primary context of a device, which CUDA's runtime and other libraries in
// the process also use.
type Context struct {
	ordinal int
	dev     cu.Device
	ctx     cu.CUContext
	raw     unsafe.Pointer
}

// Open retains the primary context of a device. The first time in a process, this takes a
// fraction of a second and some hundred MB of the device's memory. It does not make the
// context current.
func Open(ordinal int) (*Context, error) {
	dev, err := device(ordinal)
	if err != nil {
		return nil, err
	}
	ctx, err := dev.RetainPrimaryCtx()
	if err != nil {
		return nil, wrap("cuDevicePrimaryCtxRetain", err)
	}
	c := &Context{ordinal: ordinal, dev: dev, ctx: ctx}
	c.raw = *(*unsafe.Pointer)(unsafe.Pointer(&c.ctx))
	return c, nil
}

// Close releases the context, which is destroyed when all its users have released it. Nothing
// created in it may be used any more. It is no longer current on this thread; other threads
// where it was current must call Bind before anything else.
func (c *Context) Close() error {
	C.assay_unbind(c.raw)
	return wrap("cuDevicePrimaryCtxRelease", c.dev.ReleasePrimaryCtx())
}

// Ordinal is the number of the device.
func (c *Context) Ordinal() int { return c.ordinal }

// Bind makes the context current on the calling thread, to which the goroutine must be locked.
// It costs little if the context is current already.
func (c *Context) Bind() error { return failure("cuCtxSetCurrent", C.assay_bind(c.raw)) }

// Synchronize waits until all work in the context is done. The context must be current. The
// error may come from any earlier work.
func (c *Context) Synchronize() error { return wrap("cuCtxSynchronize", cu.Synchronize()) }

// CanAccessPeer reports whether this device can use the memory of another one directly. For a
// device that does not exist it returns false.
func (c *Context) CanAccessPeer(other int) bool {
	dev, err := device(other)
	if err != nil {
		return false
	}
	can, err := c.dev.CanAccessPeer(dev)
	return err == nil && can != 0
}

// Linked reports whether NVLink connects this device with another one. PCIe may cut a store of 128 bytes; what
// the driver says of NVLink alone is that atomics go over it.
func (c *Context) Linked(other int) bool {
	dev, err := device(other)
	if err != nil {
		return false
	}
	can, err := c.dev.P2PAttribute(cu.P2PNativeAomicSupported, dev)
	return err == nil && can != 0
}

// EnablePeer lets work in this context, which must be current, use the memory of the peer's
// device. It is not an error if access is enabled already. It returns ErrPeer if the device
// cannot reach the peer.
func (c *Context) EnablePeer(peer *Context) error {
	err := wrap("cuCtxEnablePeerAccess", peer.ctx.EnablePeerAccess(0))
	var e *Error
	if errors.As(err, &e) && e.Code == codePeerEnabled {
		return nil
	}
	return err
}

// DisablePeer undoes EnablePeer. The context must be current, and none of its work may use the
// peer's memory. It is not an error if there was no access.
func (c *Context) DisablePeer(peer *Context) error {
	code := C.cuCtxDisablePeerAccess(peer.c())
	if code == codePeerNotEnabled {
		return nil
	}
	return failure("cuCtxDisablePeerAccess", code)
}

func (c *Context) c() C.CUcontext { return *(*C.CUcontext)(unsafe.Pointer(&c.raw)) }

// A Thread is the context that was current on a thread of the program.
type Thread struct{ context unsafe.Pointer }

// Save records the current context. The goroutine must be locked to the thread until Restore,
// and Init must have succeeded.
func Save() Thread { return Thread{C.assay_current()} }

// Restore makes the saved context current again.
func (t Thread) Restore() { C.assay_bind(t.context) }

// A CaptureMode says which calls a thread may make during a stream capture.
type CaptureMode struct{ mode C.CUstreamCaptureMode }

// Relax lets the calling thread, to which the goroutine must be locked, make any call while
// another thread captures. Otherwise calls that query or allocate would invalidate a capture
// of the mode "global", which is the usual one.
func Relax() CaptureMode { return CaptureMode{C.assay_capture_mode(C.CU_STREAM_CAPTURE_MODE_RELAXED)} }

// Restore gives the thread its previous mode.
func (m CaptureMode) Restore() { C.assay_capture_mode(m.mode) }

// Current returns the ordinal of the device with the context that is current on the calling
// thread; ok is false if there is none. Init must have succeeded.
func Current() (ordinal int, ok bool) {
	n := int(C.assay_current_device())
	return n, n >= 0
}
