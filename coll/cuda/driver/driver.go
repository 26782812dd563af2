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

// Built says whether this build can use GPUs.
const Built = true

// The oldest driver that is used is branch 525. cuDriverGetVersion says which
// CUDA it has.
const minVersion = 12000

// Init loads the driver and initialises it, once for the process. Where it
// returns an error, which is ErrNoDriver or ErrNoDevice in most cases, there are
// no Devices and nothing else can be used. On a machine with GPUs it may take a
// second.
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

// kernelDriver says whether the kernel's part of the driver is loaded.
func kernelDriver() bool {
	_, err := os.Stat("/proc/driver/nvidia/version")
	return err == nil
}

// DriverVersion is the version of CUDA that the driver has, as 1000 times the
// major plus 10 times the minor number; 0 without a driver.
func DriverVersion() int { return max(0, cu.Version()) }

// failure is the error for a result of a call of this package's; nil for
// success.
func failure(call string, code C.CUresult) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	return describe(call, int(code), "")
}

// wrap is the error for an error of gorgonia.org/cu's; nil for none.
func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return describe(call, codeOf(err), "")
}

// codeOf finds the code in an error of gorgonia.org/cu's, whose type of codes has
// no exported name.
func codeOf(err error) int {
	code := cu.Unknown
	errors.As(err, &code)
	return int(code)
}

// describe adds the driver's own name for a code that has none here.
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

// handle gives the driver's handle in a type of gorgonia.org/cu's, all of which
// are structures of one private pointer.
func handle[T cu.CUContext | cu.Stream | cu.Event | cu.Module | cu.Function](v T) uintptr {
	return *(*uintptr)(unsafe.Pointer(&v))
}

// as is the other way round.
func as[T cu.CUContext | cu.Stream | cu.Event | cu.Module | cu.Function](h uintptr) T {
	return *(*T)(unsafe.Pointer(&h))
}
