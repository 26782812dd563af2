//go:build cuda && cgo

package driver

// The archive in lib is empty: it is what gorgonia.org/cu's -lcuda finds. All
// that would be in it are stubs of this package. Where the linker finds a real
// libcuda.so first, that is not needed either, and does not become a dependency.

// #cgo CFLAGS: -I/usr/local/cuda/include
// #cgo LDFLAGS: -L${SRCDIR}/lib -Wl,--as-needed -ldl
// #include <cuda.h>
// #include "stubs.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// Built reports whether this build can use GPUs.
const Built = true

// minVersion is the CUDA version, as of cuDriverGetVersion, of the oldest supported driver,
// branch 525.
const minVersion = 12000

// Init loads and initialises the driver, once per process. After an error, which is usually
// ErrNoDriver or ErrNoDevice, Devices is empty and nothing else can be used. On a machine with
// GPUs it may take a second.
func Init() error { return initialise() }

var initialise = sync.OnceValue(func() error {
	var why *C.char
	code := int(C.assay_cu_load(&why))
	if why != nil {
		return fmt.Errorf("%w: %s", ErrNoDriver, C.GoString(why))
	}
	if code == codeNoDevice && !kernelDriver() {
		return fmt.Errorf("%w: libcuda.so.1 is there, the kernel's driver is not loaded", ErrNoDriver)
	}
	if err := failure("cuInit", C.CUresult(code)); err != nil {
		return err
	}
	if v := DriverVersion(); v < minVersion {
		return fmt.Errorf("%w: it has CUDA %d.%d, %d.%d or newer is needed", ErrNoDriver, v/1000, v%1000/10, minVersion/1000, minVersion%1000/10)
	}
	return nil
})

// kernelDriver reports whether the kernel's part of the driver is loaded.
func kernelDriver() bool {
	_, err := os.Stat("/proc/driver/nvidia/version")
	return err == nil
}

// DriverVersion returns the CUDA version of the driver, as 1000 times the major plus 10 times
// the minor number; 0 without a driver.
func DriverVersion() int { return max(0, cu.Version()) }

// failure returns the error for the result of one of this package's own calls of the driver,
// or nil for success.
func failure(call string, code C.CUresult) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	return describe(call, int(code), "")
}

// wrap returns the error for an error of gorgonia.org/cu, or nil for nil.
func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return describe(call, codeOf(err), "")
}

// codeOf returns the code in an error of gorgonia.org/cu, which does not export its type of
// codes.
func codeOf(err error) int {
	code := cu.Unknown
	errors.As(err, &code)
	return int(code)
}

// describe is newError. It adds the driver's own name for a code that is not in results.
func describe(call string, code int, detail string) *Error {
	e := newError(call, code, detail)
	if e.Name == "" {
		var name, text *C.char
		if C.cuGetErrorName(C.CUresult(code), &name) == C.CUDA_SUCCESS && C.cuGetErrorString(C.CUresult(code), &text) == C.CUDA_SUCCESS {
			e.Name, e.Text = C.GoString(name), C.GoString(text)
		}
	}
	return e
}

// handle returns the driver's handle in a value of gorgonia.org/cu. All these types are
// structs of one private pointer.
func handle[T cu.CUContext | cu.Stream | cu.Event | cu.Module | cu.Function](v T) uintptr {
	return *(*uintptr)(unsafe.Pointer(&v))
}

// as converts a handle back to a type of gorgonia.org/cu.
func as[T cu.CUContext | cu.Stream | cu.Event | cu.Module | cu.Function](h uintptr) T {
	return *(*T)(unsafe.Pointer(&h))
}
