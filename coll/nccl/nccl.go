//go:build cuda && cgo

package nccl

/*
#cgo CFLAGS: -std=gnu11 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "library.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"
)

// oldest is the first version that is supported.
const oldest Version = 21800

// A Library is a loaded libnccl.so.2. It is never unloaded. Its methods may be called from
// several goroutines.
type Library struct {
	c       *C.struct_nccl
	version Version
}

// Open loads the library, once in a process. The error wraps ErrUnavailable.
func Open() (*Library, error) { return open() }

// OpenFile loads a library from a file, or from the directory that contains it. Several libraries
// may be open. The error wraps ErrUnavailable.
func OpenFile(name string) (*Library, error) { return load(libraryFile(name)) }

var open = sync.OnceValues(func() (*Library, error) {
	return load(libraryFile(os.Getenv("ASSAY_NCCL_LIBRARY")))
})

// libraryFile returns what to pass to dlopen. named is the library that the user named, or its
// directory; "" if none.
func libraryFile(named string) string {
	const soname = "libnccl.so.2"
	if named == "" {
		return soname
	}
	if st, err := os.Stat(named); err == nil && st.IsDir() {
		return filepath.Join(named, soname)
	}
	return named
}

func load(file string) (*Library, error) {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	var text *C.char
	c := C.nccl_open(name, &text)
	if c == nil {
		defer C.free(unsafe.Pointer(text))
		why := C.GoString(text)
		if !strings.Contains(why, file) { // it may only name a file that the library needs
			why = file + ": " + why
		}
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, why)
	}
	var v C.int
	l := &Library{c: c}
	if err := l.check("ncclGetVersion", C.nccl_get_version(c, &v)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if l.version = Version(v); l.version < oldest {
		return nil, fmt.Errorf("%w: %s is NCCL %s; it has to be %s or later", ErrUnavailable, file, l.version, oldest)
	}
	return l, nil
}

// Version returns the library's version.
func (l *Library) Version() Version { return l.version }

// Path returns the library's file, where the dynamic linker found it.
func (l *Library) Path() string { return C.GoString(C.nccl_path(l.c)) }

// A Version is a library's version as NCCL encodes it: 22803 for 2.28.3.
type Version int

// String is the usual way to write it: "2.28.3".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// HasMemory reports whether there are MemAlloc and Register (2.19).
func (l *Library) HasMemory() bool { return l.c.MemAlloc != nil && l.c.CommRegister != nil }

// HasWindows reports whether there are symmetric windows (2.27).
func (l *Library) HasWindows() bool { return l.HasMemory() && l.c.CommWindowRegister != nil }

// MemAlloc returns the address of n bytes on the current device of the kind that suits NCCL best:
// they can be registered as a window. All devices that are able to access them may do so.
func (l *Library) MemAlloc(n int) (address uintptr, err error) {
	var p C.uintptr_t
	err = l.check("ncclMemAlloc", C.nccl_mem_alloc(l.c, &p, C.size_t(n)))
	return uintptr(p), err
}

// MemFree frees memory of MemAlloc. No work that uses it may be under way.
func (l *Library) MemFree(address uintptr) error {
	return l.check("ncclMemFree", C.nccl_mem_free(l.c, C.uintptr_t(address)))
}

// GroupStart begins a group of operations of the calling thread. They are enqueued by the
// outermost GroupEnd.
func (l *Library) GroupStart() error { return l.check("ncclGroupStart", C.nccl_group_start(l.c)) }

// GroupEnd ends a group. It may return errors of the group's operations.
func (l *Library) GroupEnd() error { return l.check("ncclGroupEnd", C.nccl_group_end(l.c)) }
