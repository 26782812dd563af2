//go:build amd64 || arm64

package shm

import "unsafe"

// prefetch makes this processor the owner of a cache line that it will write.
//
//go:noescape
func prefetch(p unsafe.Pointer)
