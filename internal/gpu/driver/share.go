//go:build cuda && cgo

package driver

// #include <cuda.h>
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Export returns a file descriptor of the virtual memory at an address, for another process to
// Import. It is of the whole allocation, which AddressRange returns unless it is mapped in parts.
// The memory exists as long as anybody has it mapped or has such a descriptor. The caller closes
// the descriptor.
func Export(p Ptr) (fd int, err error) {
	var h C.CUmemGenericAllocationHandle
	if err := failure("cuMemRetainAllocationHandle", C.cuMemRetainAllocationHandle(&h, *(*unsafe.Pointer)(unsafe.Pointer(&p)))); err != nil {
		return -1, err
	}
	var n C.int
	err = failure("cuMemExportToShareableHandle", C.cuMemExportToShareableHandle(unsafe.Pointer(&n), h, C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
	if err = errors.Join(err, failure("cuMemRelease", C.cuMemRelease(h))); err != nil {
		return -1, err
	}
	return int(n), nil
}

// Import maps memory of another process for a device: n bytes, the whole allocation. It leaves the
// descriptor open.
func Import(fd, n int, on DeviceInfo) (_ *Virtual, err error) {
	v := &Virtual{Size: n}
	number := uintptr(fd) // the driver takes it in place of a pointer
	code := C.cuMemImportFromShareableHandle(&v.handle, *(*unsafe.Pointer)(unsafe.Pointer(&number)), C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
	if code != C.CUDA_SUCCESS {
		return nil, describe("cuMemImportFromShareableHandle", int(code), fmt.Sprintf("%d bytes", n))
	}
	if err := v.place(0, on.Ordinal); err != nil {
		return nil, errors.Join(err, v.Free())
	}
	return v, nil
}
