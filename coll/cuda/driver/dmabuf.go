//go:build cuda && cgo

package driver

// #include <cuda.h>
import "C"

import "unsafe"

// DMABuf gives a file descriptor for n bytes of device memory, by which the
// driver of another device, a NIC's, can reach them. Both p and n must be
// multiples of the host's page size. The caller closes the descriptor; the
// memory must stay until whoever took it up has let it go. Devices that cannot
// (DeviceInfo.CanDMABuf) fail with ErrNotSupported.
func DMABuf(p Ptr, n int) (fd int, err error) {
	var h C.int
	err = failure("cuMemGetHandleForAddressRange",
		C.cuMemGetHandleForAddressRange(unsafe.Pointer(&h), C.CUdeviceptr(p), C.size_t(n), C.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0))
	if err != nil {
		return -1, err
	}
	return int(h), nil
}
