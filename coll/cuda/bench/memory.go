//go:build cuda && cgo

package bench

import "unsafe"

// Bytes returns n bytes of device memory at an address in the benchmark's form: a slice that
// the CPU must not touch. The address is not in Go's heap.
func Bytes(address uintptr, n int) []byte {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	return unsafe.Slice((*byte)(p), n)
}

// Address returns the address of such a slice. For an empty slice it may be 0.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
