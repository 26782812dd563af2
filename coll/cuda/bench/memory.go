//go:build cuda && cgo

package bench

import "unsafe"

// Bytes is the n bytes of device memory at an address as the benchmark has
// them: a slice that the processor must not touch. The address is not in Go's
// heap.
func Bytes(address uintptr, n int) []byte {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	return unsafe.Slice((*byte)(p), n)
}

// Address is where such a slice begins. That of an empty one may be 0.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
