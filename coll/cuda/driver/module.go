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

// Load loads PTX text or a cubin into the current context. PTX is compiled for
// the device, which takes seconds for much of it; the driver keeps the result in
// its cache. What the compiler says is in the error, which is ErrImage.
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

// LoadNewest is Newest for a single module: read finds its code.
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

// Newest has load read and load the code in ptx/own, a directory of files, where
// a CUDA image's harness has what the image's own nvcc made. Where there is none, or
// the driver is too old for it, load gets ptx, which every supported
// driver takes. Other errors than ErrImage end it: they say nothing of the code.
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

// Function finds a kernel by name and makes sure that its code is on the device.
// A kernel that is loaded at its first launch instead would wait there for all
// that runs, perhaps a kernel that waits for this one.
func (m *Module) Function(name string) (Func, error) {
	fn, err := m.mod.Function(name)
	if err != nil {
		return Func{}, describe("cuModuleGetFunction", codeOf(err), fmt.Sprintf("%q", name))
	}
	f := Func{fn, m.context}
	if code := C.cuFuncLoad(f.c()); code != C.CUDA_SUCCESS && code != C.CUDA_ERROR_NOT_SUPPORTED {
		return Func{}, failure("cuFuncLoad", code)
	}
	// Older drivers load a function when they are asked about it.
	if _, err := f.Attributes(); err != nil {
		return Func{}, err
	}
	return f, nil
}

func (f Func) c() C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f.fn)) }

// FuncAttributes are what a kernel needs, on the device it is loaded on.
type FuncAttributes struct {
	Registers   int // a thread
	LocalBytes  int // a thread; more than 0 mostly says that registers were spilt
	SharedBytes int // a block, without what a launch adds
	MaxThreads  int // a block
}

// Attributes asks what the kernel needs.
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

// Occupancy is how many blocks of that many threads, with shared bytes that the
// launch adds, a multiprocessor can hold at the same time.
func (f Func) Occupancy(threads, shared int) (int, error) {
	n, err := f.fn.MaxActiveBlocksPerMultiProcessor(threads, int64(shared))
	return n, wrap("cuOccupancyMaxActiveBlocksPerMultiprocessor", err)
}
