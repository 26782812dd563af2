//go:build cuda && cgo

package driver

// #include <cuda.h>
import "C"

import "unsafe"

// MemHandle returns a handle with which another process of this host can open the allocation
// that contains an address. The offset of the address in the allocation (AddressRange) must be
// sent along. The memory must be from Malloc or similar (PtrInfo.LegacyIPC), and must not be
// freed before the others have called CloseMem.
func MemHandle(p Ptr) ([64]byte, error) {
	var h C.CUipcMemHandle
	err := failure("cuIpcGetMemHandle", C.cuIpcGetMemHandle(&h, C.CUdeviceptr(p)))
	return *(*[64]byte)(unsafe.Pointer(&h)), err
}

// OpenMem maps the allocation of a handle into the current context, which may be of another
// device, and returns its base. It fails in the process that the handle is from.
func OpenMem(handle [64]byte) (Ptr, error) {
	var p C.CUdeviceptr
	err := failure("cuIpcOpenMemHandle", C.cuIpcOpenMemHandle(&p, *(*C.CUipcMemHandle)(unsafe.Pointer(&handle)), C.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
	return Ptr(p), err
}

// CloseMem unmaps memory of OpenMem.
func CloseMem(p Ptr) error {
	return failure("cuIpcCloseMemHandle", C.cuIpcCloseMemHandle(C.CUdeviceptr(p)))
}

// DMABuf returns a file descriptor for n bytes of device memory, through which the driver of
// another device, such as a NIC, can access them. Both p and n must be multiples of the host's
// page size. The caller closes the descriptor; the memory must stay until all users of the
// descriptor have released it. Without support by the device (DeviceInfo.CanDMABuf) the error
// is ErrNotSupported.
func DMABuf(p Ptr, n int) (fd int, err error) {
	var h C.int
	err = failure("cuMemGetHandleForAddressRange",
		C.cuMemGetHandleForAddressRange(unsafe.Pointer(&h), C.CUdeviceptr(p), C.size_t(n), C.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0))
	if err != nil {
		return -1, err
	}
	return int(h), nil
}
