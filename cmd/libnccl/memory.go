//go:build cuda && cgo

package main

// #include "front/engine.h"
import "C"

import (
	"context"
	"errors"
	"math"
	"sync"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

//export assay_memory
func assay_memory(handle C.uintptr_t, m *C.struct_assay_memory, text *C.char) (code C.int) {
	const call = "CommMemStats"
	defer guard(call, text, &code)
	c, err := using(call, handle)
	if err != nil {
		return result(err, text)
	}
	of := c.made.DeviceMemory()
	*m = C.struct_assay_memory{own: C.uint64_t(of.Own), shared: C.uint64_t(of.Shared)}
	if c.made.Suspended() {
		m.suspended = 1
	}
	return result(nil, text)
}

//export assay_pause
func assay_pause(list *C.struct_assay_pause, n C.size_t, text *C.char) (code C.int) {
	defer guard("CommSuspend", text, &code)
	pauses := unsafe.Slice(list, int(n))
	errs := make([]error, len(pauses))
	var wg sync.WaitGroup
	for i, p := range pauses { // the calls wait for one another
		wg.Go(func() { errs[i] = pause(p.comm, p.resume != 0) })
	}
	wg.Wait()
	return result(errors.Join(errs...), text)
}

//export assay_register
func assay_register(list *C.struct_assay_window, n C.size_t, text *C.char) (code C.int) {
	defer guard("CommWindowRegister", text, &code)
	windows := unsafe.Slice(list, int(n))
	errs := make([]error, len(windows))
	var wg sync.WaitGroup
	for i := range windows {
		windows[i].window, windows[i].first, windows[i].stride = 0, 0, 0
	}
	for _, all := range perComm(windows) {
		wg.Go(func() { // the calls of a rank wait for those of the others
			for _, i := range all {
				if errs[i] = register(&windows[i]); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return result(errors.Join(errs...), text)
}

// perComm returns the indices of each communicator's windows, in order.
func perComm(windows []C.struct_assay_window) map[C.uintptr_t][]int {
	all := map[C.uintptr_t][]int{}
	for i, w := range windows {
		all[w.comm] = append(all[w.comm], i)
	}
	return all
}

func register(w *C.struct_assay_window) error {
	const call = "CommWindowRegister"
	c, err := using(call, w.comm)
	if err != nil {
		return err
	}
	if w.size > math.MaxInt {
		return wrong(op.InvalidArgument, call, "%d bytes are more than an address can tell", w.size)
	}
	var win *coll.Window
	err = guarded(call, func() (err error) {
		if w.at == nil {
			win, err = c.made.NewWindow(context.Background(), int(w.size))
		} else {
			win, err = c.made.RegisterWindow(context.Background(), coll.Device(uintptr(w.at), int(w.size)))
		}
		return err
	})
	if err != nil {
		return err
	}
	lsa := win.LSA()
	w.window, w.first, w.stride = C.uint64_t(lsa.Window), C.uint64_t(lsa.First), C.uint64_t(lsa.Stride)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.windows[uintptr(w.key)] = win
	return nil
}

//export assay_deregister
func assay_deregister(handle C.uintptr_t, key C.uintptr_t, text *C.char) (code C.int) {
	const call = "CommWindowDeregister"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err != nil {
		return result(err, text)
	}
	c.mu.Lock()
	win := c.windows[uintptr(key)]
	delete(c.windows, uintptr(key))
	c.mu.Unlock()
	if win == nil { // not symmetric
		return C.int(op.Success)
	}
	done := false
	c.calls.Lock()
	defer c.release(&done)
	err = win.Close()
	done = true
	return result(err, text)
}

// pause suspends a communicator, or resumes it.
func pause(handle C.uintptr_t, resume bool) error {
	call, do := "CommSuspend", (*coll.Comm).Suspend
	if resume {
		call, do = "CommResume", (*coll.Comm).Resume
	}
	c, err := using(call, handle)
	if err != nil {
		return err
	}
	return guarded(call, func() error { return do(c.made, context.Background()) })
}

//export assay_mem_alloc
func assay_mem_alloc(at *unsafe.Pointer, n C.size_t, text *C.char) (code C.int) {
	defer guard("MemAlloc", text, &code)
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
func assay_mem_free(at unsafe.Pointer, text *C.char) (code C.int) {
	defer guard("MemFree", text, &code)
	return result(onDevice(func() error {
		err := cuda.MemFree(uintptr(at))
		if errors.Is(err, cuda.ErrNotAllocated) {
			err = wrong(op.InvalidArgument, "MemFree", "%#x: %w", uintptr(at), err)
		}
		return err
	}), text)
}
