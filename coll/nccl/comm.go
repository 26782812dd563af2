//go:build cuda && cgo

package nccl

/*
#include <stdlib.h>
#include "library.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"
)

// A UniqueID identifies a communicator. Its ranks find one another by it.
type UniqueID [C.sizeof_struct_nccl_id]byte

// UniqueID creates an ID, and listens for the ranks that will use it. One rank calls it and
// passes the result to the others.
func (l *Library) UniqueID() (id UniqueID, err error) {
	err = l.check("ncclGetUniqueId", C.nccl_unique_id(l.c, unsafe.Pointer(&id)))
	return id, err
}

// A Comm is one rank's side of a communicator. One goroutine at a time uses it;
// Abort may be called by any.
type Comm struct {
	l     *Library
	place *C.struct_nccl_place // in C's memory, so that calls pass no Go pointer; never freed, because a late call may read it
	over  atomic.Bool
}

// InitRank joins a communicator of n ranks on the device with the current context. It returns
// when all ranks have called it.
func (l *Library) InitRank(n int, id UniqueID, rank int) (*Comm, error) {
	var h unsafe.Pointer
	if err := l.check("ncclCommInitRank", C.nccl_init_rank(l.c, &h, C.int(n), unsafe.Pointer(&id), C.int(rank))); err != nil {
		return nil, err
	}
	return l.comm(h, n, rank), nil
}

func (l *Library) comm(h unsafe.Pointer, n, rank int) *Comm {
	p := (*C.struct_nccl_place)(C.malloc(C.sizeof_struct_nccl_place)) // never nil: cgo's malloc ends the process if it fails
	*p = C.struct_nccl_place{l: l.c, comm: h, rank: C.int(rank), ranks: C.int(n)}
	return &Comm{l: l, place: p}
}

// Rank is this rank's number.
func (c *Comm) Rank() int { return int(c.place.rank) }

// Size is the number of ranks.
func (c *Comm) Size() int { return int(c.place.ranks) }

// Destroy waits for what is enqueued and frees the communicator. All ranks
// call it.
func (c *Comm) Destroy() error {
	if c.over.Swap(true) {
		return nil
	}
	return c.l.check("ncclCommDestroy", C.nccl_destroy(c.l.c, c.place.comm))
}

// Abort ends operations that are under way, on the device and in calls of other threads, and
// frees the communicator. All ranks call it. Later operations, and those of other ranks, fail.
func (c *Comm) Abort() error {
	if c.over.Swap(true) {
		return nil
	}
	return c.l.check("ncclCommAbort", C.nccl_abort(c.l.c, c.place.comm))
}

// AsyncError returns what has gone wrong since the last call, or before it: errors that no call
// returns, such as that of a peer that died.
func (c *Comm) AsyncError() error {
	if c.over.Load() {
		return ErrAborted
	}
	var r C.int
	if err := c.l.check("ncclCommGetAsyncError", C.nccl_async_error(c.l.c, c.place.comm, &r)); err != nil {
		return err
	}
	if Result(r) == InProgress {
		return nil
	}
	return c.l.check("NCCL, in the background", r)
}

// A Registration is memory that is registered with a communicator. It is released by the call
// that matches the one that created it.
type Registration struct{ h unsafe.Pointer }

// Register lets NCCL use the n bytes at an address in place, without intermediate copies. They
// must come from MemAlloc.
func (c *Comm) Register(address uintptr, n int) (r Registration, err error) {
	if c.over.Load() {
		return r, ErrAborted
	}
	err = c.l.check("ncclCommRegister", C.nccl_register(c.l.c, c.place.comm, C.uintptr_t(address), C.size_t(n), &r.h))
	return r, err
}

// Deregister undoes Register.
func (c *Comm) Deregister(r Registration) error {
	if c.over.Load() {
		return nil
	}
	return c.l.check("ncclCommDeregister", C.nccl_deregister(c.l.c, c.place.comm, r.h))
}

// symmetric is NCCL_WIN_COLL_SYMMETRIC: ranks pass buffers at equal offsets.
const symmetric = 1

// RegisterWindow makes the n bytes at an address this rank's part of a symmetric window. They
// must come from MemAlloc. All ranks call it, with the same n, and pass operations buffers at the
// same offsets in the window.
func (c *Comm) RegisterWindow(address uintptr, n int) (r Registration, err error) {
	if c.over.Load() {
		return r, ErrAborted
	}
	err = c.l.check("ncclCommWindowRegister", C.nccl_window_register(c.l.c, c.place.comm, C.uintptr_t(address), C.size_t(n), &r.h, symmetric))
	return r, err
}

// DeregisterWindow undoes RegisterWindow. All ranks call it.
func (c *Comm) DeregisterWindow(r Registration) error {
	if c.over.Load() {
		return nil
	}
	return c.l.check("ncclCommWindowDeregister", C.nccl_window_deregister(c.l.c, c.place.comm, r.h))
}
