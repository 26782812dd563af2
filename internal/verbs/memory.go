//go:build cgo && linux

package verbs

// #include "library.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A PD is a protection domain. QPs may only use memory regions of their own PD.
type PD struct {
	ctx *Context
	p   *C.struct_vb_pd
}

// PD creates a protection domain.
func (c *Context) PD() (*PD, error) {
	p, err := C.verbs_alloc_pd(c.c)
	if p == nil {
		return nil, newError("ibv_alloc_pd", c.name, err)
	}
	return &PD{c, p}, nil
}

// Close frees the domain. Its regions and QPs must be closed already.
func (p *PD) Close() error { return p.ctx.failed("ibv_dealloc_pd", C.verbs_dealloc_pd(p.p)) }

// An MR is memory that the device may access.
type MR struct {
	ctx        *Context
	m          *C.struct_vb_mr
	LKey, RKey uint32
	Address    uint64 // of its first byte, as used in requests, also those of peers
	Length     int
}

// Register registers memory, which must not move until Close. It must not be Go memory; it can be
// memory from Alloc, or GPU memory if the device's driver supports it (a module such as
// nvidia-peermem).
func (p *PD) Register(address uintptr, n int, a Access) (*MR, error) {
	m, err := C.verbs_reg_mr(p.p, C.uintptr_t(address), C.size_t(n), C.int(a))
	if m == nil {
		e := newError("ibv_reg_mr", p.ctx.name, err)
		e.What = fmt.Sprintf("%d bytes", n)
		if e.Errno == syscall.ENOMEM {
			e.What += lockLimit()
		}
		return nil, e
	}
	return p.region(m, uint64(address), n), nil
}

// RegisterDMABuf registers n bytes from offset of the DMA buffer fd, which is GPU memory. Requests
// use address for its first byte.
func (p *PD) RegisterDMABuf(fd int, offset uint64, n int, address uint64, a Access) (*MR, error) {
	m, err := C.verbs_reg_dmabuf(p.p, C.uint64_t(offset), C.size_t(n), C.uint64_t(address), C.int(fd), C.int(a))
	if m == nil {
		e := newError("ibv_reg_dmabuf_mr", p.ctx.name, err)
		e.What = fmt.Sprintf("%d bytes", n)
		return nil, e
	}
	return p.region(m, address, n), nil
}

func (p *PD) region(m *C.struct_vb_mr, address uint64, n int) *MR {
	return &MR{p.ctx, m, uint32(m.lkey), uint32(m.rkey), address, n}
}

// Close deregisters the memory. Requests that use it must have completed.
func (m *MR) Close() error { return m.ctx.failed("ibv_dereg_mr", C.verbs_dereg_mr(m.m)) }

// lockLimit describes the limit of locked memory.
func lockLimit() string {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) != nil || r.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf(", of which %d may be locked", r.Cur)
}

// Alloc returns n zeroed bytes outside of Go's memory, page-aligned, in huge pages if huge is set.
// Free frees them.
func Alloc(n int, huge bool) ([]byte, error) {
	flags, length := unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, n
	if huge {
		flags |= unix.MAP_HUGETLB
		length = (n + hugePage - 1) &^ (hugePage - 1)
	}
	b, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, flags)
	switch {
	case err != nil && huge:
		return nil, fmt.Errorf("%d bytes of huge pages: %w (are there any? see /proc/sys/vm/nr_hugepages)", length, err)
	case err != nil:
		return nil, fmt.Errorf("%d bytes: %w", n, err)
	}
	return b[:n:length], nil
}

// The size of huge pages on amd64, and on arm64 with pages of 4 KiB.
const hugePage = 2 << 20

// Free frees memory that Alloc returned.
func Free(b []byte) error { return unix.Munmap(b[:cap(b)]) }

// Address is the address of b's first byte.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
