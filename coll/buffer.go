package coll

import "unsafe"

// A Buffer is memory that an operation reads or writes. Its zero value is no
// memory: what a rank passes for a buffer that only the root has.
type Buffer struct{ b []byte }

// Bytes is the memory of b.
func Bytes(b []byte) Buffer { return Buffer{b} }

// A Number is a Go type of an element. Types that Go lacks, such as bfloat16,
// are passed as Bytes.
type Number interface {
	~int8 | ~uint8 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// Of is the memory of s.
func Of[T Number](s []T) Buffer {
	if len(s) == 0 {
		return Buffer{}
	}
	return Buffer{unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))}
}

// Len is the size in bytes.
func (b Buffer) Len() int { return len(b.b) }

// addr is where the memory begins, 0 for no memory.
func (b Buffer) addr() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b.b))) }

// overlap reports whether two pieces of memory have a byte in common.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := Buffer{a}.addr(), Buffer{b}.addr()
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
