//go:build cuda && cgo

package driver

// #include <cuda.h>
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// A Virtual is device memory at separately reserved addresses. Other processes can map it
// through a file descriptor (cuMemExportToShareableHandle), several devices can use it, and
// other libraries that register memory can do more with it than with memory of Malloc.
type Virtual struct {
	Ptr    Ptr
	Size   int // the requested size, rounded up
	handle C.CUmemGenericAllocationHandle
	mapped bool
}

// NewVirtual allocates at least n bytes on a device, for that device and others to use. It
// needs DeviceInfo.CanVirtual.
func NewVirtual(on DeviceInfo, others []int, n int) (*Virtual, error) {
	prop := C.CUmemAllocationProp{_type: C.CU_MEM_ALLOCATION_TYPE_PINNED}
	prop.location._type, prop.location.id = C.CU_MEM_LOCATION_TYPE_DEVICE, C.int(on.Ordinal)
	if on.CanShareVirtual {
		prop.requestedHandleTypes = C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
	}
	if on.CanRDMAVirtual {
		prop.allocFlags.gpuDirectRDMACapable = 1
	}
	var unit C.size_t
	if err := failure("cuMemGetAllocationGranularity", C.cuMemGetAllocationGranularity(&unit, &prop, C.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)); err != nil {
		return nil, err
	}
	size := (C.size_t(n) + unit - 1) / unit * unit
	if n <= 0 || size < C.size_t(n) {
		return nil, newError("cuMemCreate", codeOutOfMemory, fmt.Sprintf("%d bytes", n))
	}
	v := &Virtual{Size: int(size)}
	if code := C.cuMemCreate(&v.handle, size, &prop, 0); code != C.CUDA_SUCCESS {
		return nil, describe("cuMemCreate", int(code), fmt.Sprintf("%d bytes", size))
	}
	if err := v.place(unit, append([]int{on.Ordinal}, others...)...); err != nil {
		return nil, errors.Join(err, v.Free())
	}
	return v, nil
}

// place maps the memory to aligned addresses, for devices to read and write. An alignment of 0 is
// the driver's own.
func (v *Virtual) place(alignment C.size_t, devices ...int) error {
	var at C.CUdeviceptr
	if err := failure("cuMemAddressReserve", C.cuMemAddressReserve(&at, C.size_t(v.Size), alignment, 0, 0)); err != nil {
		return err
	}
	v.Ptr = Ptr(at)
	if err := failure("cuMemMap", C.cuMemMap(at, C.size_t(v.Size), 0, v.handle, 0)); err != nil {
		return err
	}
	v.mapped = true
	return v.allow(devices)
}

// allow lets devices read and write the memory.
func (v *Virtual) allow(devices []int) error {
	access := make([]C.CUmemAccessDesc, len(devices))
	for i, d := range devices {
		access[i].location._type, access[i].location.id = C.CU_MEM_LOCATION_TYPE_DEVICE, C.int(d)
		access[i].flags = C.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	}
	return failure("cuMemSetAccess", C.cuMemSetAccess(C.CUdeviceptr(v.Ptr), C.size_t(v.Size), unsafe.SliceData(access), C.size_t(len(access))))
}

// Accessible reports whether a device can read and write the virtual memory at an address.
func Accessible(p Ptr, ordinal int) (bool, error) {
	at := C.CUmemLocation{_type: C.CU_MEM_LOCATION_TYPE_DEVICE, id: C.int(ordinal)}
	var flags C.ulonglong
	err := failure("cuMemGetAccess", C.cuMemGetAccess(&flags, &at, C.CUdeviceptr(p)))
	return flags == C.CU_MEM_ACCESS_FLAGS_PROT_READWRITE, err
}

// Free frees the memory. Unlike the package's function Free it waits for nothing: no work may
// use the memory any more.
func (v *Virtual) Free() error {
	var errs []error
	at, size := C.CUdeviceptr(v.Ptr), C.size_t(v.Size)
	if v.mapped {
		errs = append(errs, failure("cuMemUnmap", C.cuMemUnmap(at, size)))
	}
	if at != 0 {
		errs = append(errs, failure("cuMemAddressFree", C.cuMemAddressFree(at, size)))
	}
	return errors.Join(append(errs, failure("cuMemRelease", C.cuMemRelease(v.handle)))...)
}
