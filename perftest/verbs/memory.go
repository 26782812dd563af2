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

// A PD is a protection domain: QPs may use memory regions of their own one.
type PD struct {
	ctx *Context
	p   *C.struct_vb_pd
}

// PD makes a protection domain.
func (c *Context) PD() (*PD, error) {
	p, err := C.verbs_alloc_pd(c.c)
	if p == nil {
		return nil, newError("ibv_alloc_pd", c.name, err)
	}
	return &PD{c, p}, nil
}

// Close frees it. Its regions and QPs must have been closed.
func (p *PD) Close() error { return p.ctx.failed("ibv_dealloc_pd", C.verbs_dealloc_pd(p.p)) }

// An MR is memory that the device may use.
type MR struct {
	ctx        *Context
	m          *C.struct_vb_mr
	LKey, RKey uint32
	Address    uint64 // what requests, the peers' too, call its first byte
	Length     int
}

// Register registers memory, which must stay where it is until Close: not Go's,
// but for example of Alloc, or a GPU's if the device's driver can (a module such
// as nvidia-peermem).
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

// RegisterDMABuf registers n bytes from offset of the DMA buffer that fd stands
// for, a GPU's memory. Requests call its first byte address.
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

// Close takes the memory from the device. Requests that use it must have ended.
func (m *MR) Close() error { return m.ctx.failed("ibv_dereg_mr", C.verbs_dereg_mr(m.m)) }

// lockLimit says what the limit of locked memory is.
func lockLimit() string {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) != nil || r.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf(", of which %d may be locked", r.Cur)
}

// Alloc returns n bytes of zeros outside of Go's memory, on a page's boundary,
// in huge pages if that is asked for. Free gives them back.
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

// Free gives back what Alloc returned.
func Free(b []byte) error { return unix.Munmap(b[:cap(b)]) }

// Address is where b begins.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
