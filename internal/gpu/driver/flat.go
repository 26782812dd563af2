//go:build cuda && cgo

package driver

// #include <cuda.h>
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// A Flat is a range of addresses for virtual memory that is mapped elsewhere, too: of several
// owners, at places that follow from whose it is.
type Flat struct {
	Base   Ptr
	Size   int
	mapped []piece
}

type piece struct{ at, size C.size_t }

// NewFlat reserves addresses. size is a multiple of what devices map, 2 MiB.
func NewFlat(size int) (*Flat, error) {
	var at C.CUdeviceptr
	if err := failure("cuMemAddressReserve", C.cuMemAddressReserve(&at, C.size_t(size), 0, 0, 0)); err != nil {
		return nil, fmt.Errorf("%d bytes of addresses: %w", size, err)
	}
	return &Flat{Base: Ptr(at), Size: size}, nil
}

// Map maps the virtual memory that begins at an address, of the given size as AddressRange returns
// it, at an offset of the range, for a device to read and write. The memory exists at least as long.
func (f *Flat) Map(offset int, memory Ptr, size, ordinal int) (err error) {
	var h C.CUmemGenericAllocationHandle
	if err := failure("cuMemRetainAllocationHandle", C.cuMemRetainAllocationHandle(&h, *(*unsafe.Pointer)(unsafe.Pointer(&memory)))); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, failure("cuMemRelease", C.cuMemRelease(h))) }()
	at := C.CUdeviceptr(f.Base) + C.CUdeviceptr(offset)
	if err := failure("cuMemMap", C.cuMemMap(at, C.size_t(size), 0, h, 0)); err != nil {
		return err
	}
	f.mapped = append(f.mapped, piece{C.size_t(offset), C.size_t(size)})
	return (&Virtual{Ptr: Ptr(at), Size: size}).allow([]int{ordinal})
}

// Free unmaps everything. No work may use it any more.
func (f *Flat) Free() error {
	var errs []error
	for _, p := range f.mapped {
		errs = append(errs, failure("cuMemUnmap", C.cuMemUnmap(C.CUdeviceptr(f.Base)+C.CUdeviceptr(p.at), p.size)))
	}
	return errors.Join(append(errs, failure("cuMemAddressFree", C.cuMemAddressFree(C.CUdeviceptr(f.Base), C.size_t(f.Size))))...)
}
