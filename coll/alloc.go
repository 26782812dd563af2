package coll

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Alloc returns n bytes of zeroed memory as the engine likes it best: aligned
// to pages, outside of Go's heap, in huge pages where the system has some. It
// is given back with Free.
func Alloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, fmt.Errorf("allocating %d bytes", n)
	}
	b, err := unix.Mmap(-1, 0, alignUp(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes: %w", n, err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // as good as it gets
	return b[:n], nil
}

// Free gives back what Alloc returned.
func Free(b []byte) error {
	if cap(b) == 0 {
		return nil
	}
	return unix.Munmap(b[:alignUp(len(b))])
}

func alignUp(n int) int {
	p := os.Getpagesize()
	return (n + p - 1) / p * p
}
