//go:build cuda && cgo

package driver

// #cgo noescape assay_load
// #include <cuda.h>
// #include <stdlib.h>
//
// // Since CUDA 12.4; a driver without it answers CUDA_ERROR_NOT_SUPPORTED.
// CUresult cuFuncLoad(CUfunction);
//
// static inline CUresult assay_load(CUmodule *module, const void *image, char *log, size_t size) {
// 	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
// 	void *values[] = {log, (void *)size};
// 	return cuModuleLoadDataEx(module, image, 2, options, values);
// }
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unsafe"

	"gorgonia.org/cu"
)

// A Module is code on a device.
type Module struct {
	mod     cu.Module
	context cu.CUContext
}

// Load loads PTX text or a cubin into the current context. PTX is compiled for the device,
// which takes seconds for large modules; the driver stores the result in its cache. The
// compiler's messages are in the error, which is ErrImage.
func Load(image []byte) (*Module, error) {
	ctx, err := cu.CurrentContext()
	if err != nil {
		return nil, wrap("cuCtxGetCurrent", err)
	}
	text := C.CBytes(append(bytes.Clone(image), 0)) // PTX ends with a zero byte
	defer C.free(text)
	var log [4096]byte
	var mod C.CUmodule
	code := C.assay_load(&mod, text, (*C.char)(unsafe.Pointer(&log[0])), C.size_t(len(log)))
	if code != C.CUDA_SUCCESS {
		said, _, _ := bytes.Cut(log[:], []byte{0})
		return nil, describe("cuModuleLoadDataEx", int(code), strings.TrimSpace(string(said)))
	}
	return &Module{mod: as[cu.Module](uintptr(unsafe.Pointer(mod))), context: ctx}, nil
}

// LoadNewest is Newest for a single module: read returns its code from a directory.
func LoadNewest(files fs.FS, read func(dir fs.FS) ([]byte, error)) (m *Module, err error) {
	err = Newest(files, func(dir fs.FS) error {
		image, err := read(dir)
		if err == nil {
			m, err = Load(image)
		}
		return err
	})
	return m, err
}

// Newest calls load to read and load the code in ptx/own, a directory of files where the
// harness of a CUDA image has the code compiled by the image's own nvcc. If that does not
// exist, or the driver is too old for it, Newest calls load with ptx, which every supported
// driver accepts. An error other than ErrImage ends it, because it says nothing about the
// code.
func Newest(files fs.FS, load func(dir fs.FS) error) error {
	const own = "ptx/own"
	var errs []error
	for _, name := range []string{own, "ptx"} {
		dir, err := fs.Sub(files, name)
		if err != nil {
			return err
		}
		switch err = load(dir); {
		case err == nil:
			return nil
		case name == own && errors.Is(err, fs.ErrNotExist):
			continue
		}
		errs = append(errs, err)
		if !errors.Is(err, ErrImage) {
			break
		}
	}
	return errors.Join(errs...)
}

// Unload frees the code, in the current context.
func (m *Module) Unload() error { return wrap("cuModuleUnload", m.mod.Unload()) }

// A Func is a kernel of a Module.
type Func struct {
	fn      cu.Function
	context cu.CUContext
}

// Function finds a kernel by name and makes sure that its code is on the device. If a kernel
// were loaded at its first launch instead, the launch would wait for everything that runs,
// perhaps for a kernel that waits for this one.
func (m *Module) Function(name string) (Func, error) {
	fn, err := m.mod.Function(name)
	if err != nil {
		return Func{}, describe("cuModuleGetFunction", codeOf(err), fmt.Sprintf("%q", name))
	}
	f := Func{fn, m.context}
	if code := C.cuFuncLoad(f.c()); code != C.CUDA_SUCCESS && code != C.CUDA_ERROR_NOT_SUPPORTED {
		return Func{}, failure("cuFuncLoad", code)
	}
	// Older drivers load a function when its attributes are queried.
	if _, err := f.Attributes(); err != nil {
		return Func{}, err
	}
	return f, nil
}

func (f Func) c() C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f.fn)) }

// FuncAttributes are a kernel's needs on the device that it is loaded on.
type FuncAttributes struct {
	Registers   int // per thread
	LocalBytes  int // per thread; more than 0 usually means that registers were spilled
	SharedBytes int // per block, without what a launch adds
	MaxThreads  int // per block
}

// Attributes queries the kernel's needs.
func (f Func) Attributes() (FuncAttributes, error) {
	var a FuncAttributes
	for _, q := range []struct {
		attribute cu.FunctionAttribute
		to        *int
	}{
		{cu.NumRegs, &a.Registers},
		{cu.LocalSizeBytes, &a.LocalBytes},
		{cu.SharedSizeBytes, &a.SharedBytes},
		{cu.FnMaxThreadsPerBlock, &a.MaxThreads},
	} {
		v, err := f.fn.Attribute(q.attribute)
		if err != nil {
			return a, wrap("cuFuncGetAttribute", err)
		}
		*q.to = v
	}
	return a, nil
}

// Occupancy returns how many blocks of the given threads a multiprocessor can hold at the same
// time. shared is the bytes of shared memory that the launch adds.
func (f Func) Occupancy(threads, shared int) (int, error) {
	n, err := f.fn.MaxActiveBlocksPerMultiProcessor(threads, int64(shared))
	return n, wrap("cuOccupancyMaxActiveBlocksPerMultiprocessor", err)
}
