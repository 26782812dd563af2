//go:build cuda && cgo

package main

// #include "front/engine.h"
import "C"

import (
	"errors"
	"math"
	"unsafe"

	"github.com/assay-hpc/assay/coll/cuda"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/op"
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
		if n > math.MaxInt {
			return wrong(op.InvalidArgument, "MemAlloc", "%d bytes are more than an address can tell", n)
		}
		ordinal, _ := driver.Current() // onDevice has made one current
		p, err := cuda.MemAlloc(ordinal, int(n))
		if err == nil {
			*(*uintptr)(unsafe.Pointer(at)) = p
		}
		return err
	}), text)
}

//export assay_mem_free
func assay_mem_free(at unsafe.Pointer, text *C.char) C.int {
	return result(onDevice(func() error {
		err := cuda.MemFree(uintptr(at))
		if errors.Is(err, cuda.ErrNotAllocated) {
			err = wrong(op.InvalidArgument, "MemFree", "%#x: %w", uintptr(at), err)
		}
		return err
	}), text)
}
