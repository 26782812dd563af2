//go:build cuda && cgo

package main

// #include "front/engine.h"
import "C"

import (
	"unsafe"

	"github.com/assay-hpc/assay/coll/cuda/driver"
)

//export assay_memory
func assay_memory(handle C.uintptr_t, m *C.struct_assay_memory, text *C.char) C.int {
	made, err := commOf(handle).use("CommMemStats")
	if err != nil {
		return result(err, text)
	}
	of := made.DeviceMemory()
	*m = C.struct_assay_memory{own: C.uint64_t(of.Own), shared: C.uint64_t(of.Shared)}
	return result(nil, text)
}

//export assay_mem_alloc
func assay_mem_alloc(at *unsafe.Pointer, n C.size_t, text *C.char) C.int {
	return result(onDevice(func() error {
		p, err := driver.Malloc(int(n))
		if err == nil {
			*(*driver.Ptr)(unsafe.Pointer(at)) = p
		}
		return err
	}), text)
}

//export assay_mem_free
func assay_mem_free(at unsafe.Pointer, text *C.char) C.int {
	return result(onDevice(func() error { return driver.Free(driver.Ptr(uintptr(at))) }), text)
}
