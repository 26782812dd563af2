package coll

import (
	"unsafe"

	"github.com/assay-hpc/assay/coll/op"
)

// A Buffer is host or device memory that an operation reads or writes. Its zero value is no
// memory: ranks pass it where only the root needs a buffer.
type Buffer struct {
	b      []byte
	device bool // device memory: this package never accesses the bytes
}

// Bytes returns b as a Buffer.
func Bytes(b []byte) Buffer { return Buffer{b: b} }

// A Number is a Go type of an element. Types that Go lacks, such as bfloat16,
// are passed as Bytes.
type Number interface {
	~int8 | ~uint8 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// Of returns the memory of s as a Buffer.
func Of[T Number](s []T) Buffer {
	if len(s) == 0 {
		return Buffer{}
	}
	return Buffer{b: unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))}
}

// Device returns a Buffer of n bytes of device memory at addr, on the communicator's device or on
// one that it can reach. Operations on it are enqueued on the communicator's stream and return
// before they are done.
func Device(addr uintptr, n int) Buffer {
	b := op.Memory(addr, n)
	return Buffer{b, b != nil}
}

// Len is the size in bytes.
func (b Buffer) Len() int { return len(b.b) }

// Addr is the start address of the memory, 0 for no memory.
func (b Buffer) Addr() uintptr { return b.addr() }

func (b Buffer) addr() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b.b))) }

// overlap reports whether two pieces of memory have a byte in common.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := Buffer{b: a}.addr(), Buffer{b: b}.addr()
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
