//go:build cuda && cgo

package driver

// #cgo noescape cuStreamWaitValue32_v2
// #cgo nocallback cuStreamWaitValue32_v2
// #cgo noescape cuStreamWriteValue32_v2
// #cgo nocallback cuStreamWriteValue32_v2
// #cgo noescape cuStreamGetId
// #cgo nocallback cuStreamGetId
// #include <cuda.h>
//
// // Of CUDA 12.
// CUresult cuStreamGetId(CUstream, unsigned long long *);
//
// // With CUDA 12's header these are macros for the functions they name.
// #ifdef cuStreamWaitValue32
// #undef cuStreamWaitValue32_v2
// #undef cuStreamWriteValue32_v2
// CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, cuuint32_t, unsigned);
// CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, cuuint32_t, unsigned);
// #endif
import "C"

import (
	"errors"
	"unsafe"

	"gorgonia.org/cu"
)

// A Stream is a CUstream or cudaStream_t, so streams of other libraries can be converted to
// it. 0 is the context's default stream.
type Stream uintptr

func (s Stream) cu() cu.Stream { return as[cu.Stream](uintptr(s)) }

func (s Stream) c() C.CUstream { return *(*C.CUstream)(unsafe.Pointer(&s)) }

// NewStream creates a stream in the current context that does not wait for the default stream.
// 0 is the usual priority; lower numbers (-1, -2, …) are higher priorities. Values out of
// range are clamped.
func NewStream(priority int) (Stream, error) {
	s, err := cu.MakeStreamWithPriority(priority, cu.NonBlocking)
	return Stream(handle(s)), wrap("cuStreamCreateWithPriority", err)
}

// Destroy frees the stream. Its enqueued work still runs to the end. It does nothing to the
// default stream.
func (s Stream) Destroy() error {
	if s == 0 {
		return nil
	}
	t := s.cu()
	return wrap("cuStreamDestroy", t.Destroy())
}

// Synchronize waits until all work in the stream is done. An error may come from that work.
func (s Stream) Synchronize() error { return wrap("cuStreamSynchronize", s.cu().Synchronize()) }

// Query reports whether all work in the stream is done.
func (s Stream) Query() (bool, error) { return ready(wrap("cuStreamQuery", s.cu().Query())) }

// ID returns a number that no other stream of the process has or had. It is 0 for the default
// stream, of which each context has one permanently. Drivers before CUDA 12 return an error.
func (s Stream) ID() (uint64, error) {
	if s == 0 {
		return 0, nil
	}
	var id C.ulonglong
	err := failure("cuStreamGetId", C.cuStreamGetId(s.c(), &id))
	return uint64(id), err
}

// WaitEvent makes what is enqueued from now on wait for the event as recorded last.
func (s Stream) WaitEvent(e Event) error { return wrap("cuStreamWaitEvent", s.cu().Wait(e.cu(), 0)) }

// WaitValue32 makes what is enqueued from now on wait until the word at p is v or up to 2³¹-1
// more.
func (s Stream) WaitValue32(p Ptr, v uint32) error {
	return failure("cuStreamWaitValue32", C.cuStreamWaitValue32_v2(s.c(), C.CUdeviceptr(p), C.cuuint32_t(v), C.CU_STREAM_WAIT_VALUE_GEQ))
}

// WriteValue32 writes the word at p when all earlier work in the stream is done and visible.
func (s Stream) WriteValue32(p Ptr, v uint32) error {
	return failure("cuStreamWriteValue32", C.cuStreamWriteValue32_v2(s.c(), C.CUdeviceptr(p), C.cuuint32_t(v), C.CU_STREAM_WRITE_VALUE_DEFAULT))
}

// ready converts ErrNotReady to false.
func ready(err error) (bool, error) {
	if errors.Is(err, ErrNotReady) {
		return false, nil
	}
	return err == nil, err
}
