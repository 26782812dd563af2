//go:build cuda && cgo

// Libassay-coll.so is the engine behind libnccl.so.2: package coll on GPUs, with the
// functions of front/engine.h. The C side of it is in front. Build it with
// make libnccl.
package main

// #cgo CFLAGS: -D_GNU_SOURCE
// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <limits.h>
// #include <string.h>
// #include "front/engine.h"
//
// // The device that CUDA's runtime has chosen for the thread, if the program has it as
// // a library: with drivers before 12 cudaSetDevice makes no context current. -1:
// // nobody knows.
// static int runtime_device(void) {
// 	int (*get)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cudaGetDevice");
// 	int device;
// 	return get && get(&device) == 0 ? device : -1;
// }
//
// // An address in this library.
// static void *here(void) { return (void *)runtime_device; }
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/libnccl"
)

func main() {}

//export assay_abi
func assay_abi() C.int { return C.ASSAY_ABI }

// result converts an error for C: it returns a code, and writes the message to text.
func result(err error, text *C.char) C.int {
	if err == nil {
		return C.int(op.Success)
	}
	code := op.CodeOf(err)
	if code == op.InternalError && driver.Failed(err) {
		code = op.UnhandledCudaError
	}
	put(text, err.Error())
	return C.int(code)
}

// put writes a string to a buffer of C, truncated to its size.
func put(at *C.char, s string) {
	to := unsafe.Slice((*byte)(unsafe.Pointer(at)), int(C.ASSAY_TEXT))
	to[copy(to[:len(to)-1], s)] = 0
}

// wrong returns the error of an invalid call.
func wrong(code op.Code, call, format string, args ...any) error {
	return &op.Error{Code: code, Rank: op.NoPeer, Op: call, Peer: op.NoPeer, Err: fmt.Errorf(format, args...)}
}

// environment converts an environment of C.
func environment(of **C.char) []string {
	var all []string
	for p := of; *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		all = append(all, C.GoString(*p))
	}
	return all
}

//export assay_unique_id
func assay_unique_id(environ **C.char, parent C.uintptr_t, id *C.uint8_t, text *C.char) (code C.int) {
	const call = "GetUniqueId"
	defer guard(call, text, &code)
	var grows *comm
	if parent != 0 {
		c, err := using("CommGetUniqueId", parent)
		if err != nil {
			return result(err, text)
		}
		grows = c
	}
	u, err := coll.GetUniqueID(coll.Config{Environ: environment(environ)})
	if err != nil {
		return result(err, text)
	}
	if grows != nil {
		grows.mu.Lock()
		grows.next = &u
		grows.mu.Unlock()
	}
	copy(unsafe.Slice((*byte)(id), int(C.ASSAY_ID)), u[:])
	return C.int(op.Success)
}

//export assay_device
func assay_device(device *C.int32_t, text *C.char) (code C.int) {
	defer guard("CommInitRank", text, &code)
	if err := driver.Init(); err != nil {
		return result(err, text)
	}
	n, ok := driver.Current()
	if !ok {
		n = max(0, int(C.runtime_device()))
	}
	*device = C.int32_t(n)
	return C.int(op.Success)
}

// nvidias returns the path of NVIDIA's library that the loader would find if the program
// did not have this one; "": there is none. LD_LIBRARY_PATH is the process's, as for the
// loader.
var nvidias = sync.OnceValue(func() string {
	dir, _ := libnccl.FindNVIDIA(os.Getenv("LD_LIBRARY_PATH"))
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, libnccl.Name)
})

// fallback returns the library for what the engine does not support. It never returns
// this library, even if a variable names it: each communicator would create another one
// of this library.
func fallback(named string) string {
	if named == "" {
		return nvidias()
	}
	if st, err := os.Stat(named); err == nil && st.IsDir() {
		named = filepath.Join(named, libnccl.Name)
	}
	its, err := os.Stat(named)
	if err != nil {
		return named // so that an error names it
	}
	var info C.Dl_info
	if C.dladdr(C.here(), &info) != 0 {
		self, err := os.Stat(filepath.Join(filepath.Dir(C.GoString(info.dli_fname)), libnccl.Name))
		if err == nil && os.SameFile(its, self) {
			return ""
		}
	}
	return named
}

//export assay_param
func assay_param(environ **C.char, name *C.char, number C.int32_t, full, value, text *C.char) (code C.int) {
	defer guard("Param", text, &code)
	rows := knob.Table()
	i := int(number)
	if name != nil {
		i = slices.IndexFunc(rows, func(k knob.Knob) bool { return k.Name == C.GoString(name) })
	}
	if i < 0 || i >= len(rows) {
		return result(wrong(op.InvalidArgument, "Param", "there is no such variable; docs/knobs.md has them all"), text)
	}
	says := rows[i].Default
	k, _, err := knob.Load(environment(environ), nil)
	if err != nil {
		return result(wrong(op.InvalidArgument, "Param", "%w", err), text)
	}
	for _, s := range k.Settings() {
		if s.Name == rows[i].Name {
			says = s.Value
		}
	}
	put(full, rows[i].Name)
	put(value, says)
	return C.int(op.Success)
}

// onDevice runs f with the context of the thread's device current.
func onDevice(f func() error) error {
	if err := driver.Init(); err != nil {
		return err
	}
	defer driver.Save().Restore()
	defer driver.Relax().Restore()
	if _, ok := driver.Current(); !ok {
		ctx, err := driver.Open(max(0, int(C.runtime_device()))) // never closed: the memory is in this context
		if err == nil {
			err = ctx.Bind()
		}
		if err != nil {
			return err
		}
	}
	return f()
}
