//go:build cuda && cgo

package main

// #include <stdlib.h>
// #include "front/engine.h"
import "C"

import (
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll/op"
)

// handles are the communicators that the program may use. A call may come at any time and from any
// thread with a handle that another thread has just destroyed, or with a pointer to anything:
// commOf looks for it here and never at what it points to.
var handles struct {
	sync.Mutex
	of     atomic.Pointer[map[uintptr]*comm] // replaced, never changed: each call reads it
	number uint64                            // of the last one that was entered
}

// enter gives the communicator a handle: an address that no other communicator ever gets, since
// its memory is never freed. Another library that receives it finds COMM_MAGIC there.
func (c *comm) enter() error {
	at := (*C.struct_ncclComm)(C.calloc(1, C.sizeof_struct_ncclComm))
	if at == nil {
		return wrong(op.SystemError, "CommInitRank", "no memory for a communicator")
	}
	at.magic = C.COMM_MAGIC
	c.handle = uintptr(unsafe.Pointer(at))
	change(func(of map[uintptr]*comm) {
		handles.number++
		c.number = handles.number
		of[c.handle] = c
	})
	return nil
}

// remove makes the handle invalid. Calls that found the communicator before may still use it.
func (c *comm) remove() { change(func(of map[uintptr]*comm) { delete(of, c.handle) }) }

func change(do func(of map[uintptr]*comm)) {
	handles.Lock()
	defer handles.Unlock()
	next := map[uintptr]*comm{}
	if of := handles.of.Load(); of != nil {
		maps.Copy(next, *of)
	}
	do(next)
	handles.of.Store(&next)
}

// commOf returns the communicator of a handle.
func commOf(call string, handle C.uintptr_t) (*comm, error) {
	if of := handles.of.Load(); of != nil {
		if c := (*of)[uintptr(handle)]; c != nil {
			return c, nil
		}
	}
	return nil, wrong(op.InvalidArgument, call, "%#x is no communicator of this library: it was destroyed or aborted, or two libraries of the name libnccl.so.2 are loaded", uintptr(handle))
}

// using returns the communicator of a handle if its creation has succeeded.
func using(call string, handle C.uintptr_t) (*comm, error) {
	c, err := commOf(call, handle)
	if err == nil {
		err = c.usable(call)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// guard ends a function that C calls. A panic must not end the program: the call then returns
// ncclInternalError. It is deferred.
func guard(call string, text *C.char, code *C.int) {
	if p := recover(); p != nil {
		*code = result(panicked(call, p), text)
	}
}

// guarded is guard for a goroutine.
func guarded(call string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(call, p)
		}
	}()
	return do()
}

// panicked reports a panic on standard error, whatever NCCL_DEBUG is.
func panicked(call string, p any) error {
	fmt.Fprintf(os.Stderr, "libnccl (assay): internal error in %s, please report it: %v\n%s", call, p, debug.Stack())
	return wrong(op.InternalError, call, "%v; standard error has the details", p)
}
