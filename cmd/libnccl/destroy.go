//go:build cuda && cgo

package main

// #include <string.h>
// #include "front/engine.h"
import "C"

import (
	"errors"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/op"
)

// assay_state returns the state of a communicator; its code is an error of the call.
//
//export assay_state
func assay_state(handle C.uintptr_t, state *C.int32_t, text *C.char) (code C.int) {
	const call = "CommGetAsyncError"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err != nil {
		return result(err, text)
	}
	done, err := c.state()
	if *state = C.int32_t(op.InProgress); done {
		*state = C.int32_t(result(err, text))
	}
	return C.int(op.Success)
}

// state returns what has gone wrong, if nothing is still to be done.
func (c *comm) state() (done bool, err error) {
	select {
	case <-c.ready:
	default:
		return false, nil
	}
	if broken := c.broken.Load(); broken != nil {
		return true, *broken
	}
	c.mu.Lock()
	finished, revoked := c.finished, c.revoked
	c.mu.Unlock()
	if finished != nil {
		select {
		case <-finished:
			return true, c.ended
		default:
			return false, nil
		}
	}
	if c.failed != nil || c.made == nil {
		return true, c.failed
	}
	if !revoked {
		err = c.made.AsyncError()
	}
	return err != nil || c.children.Load() == 0, err
}

//export assay_info
func assay_info(handle C.uintptr_t, info *C.struct_assay_info, text *C.char) (code C.int) {
	const call = "CommCount"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err == nil && c.parent != nil { // of a child, the size is not known before
		err = c.usable(call)
	}
	if err != nil {
		return result(err, text)
	}
	*info = C.struct_assay_info{ranks: C.int32_t(c.ranks), rank: C.int32_t(c.rank), device: C.int32_t(c.device)}
	return C.int(op.Success)
}

// finish destroys the communicator once. It returns a channel that is closed when that is
// done.
func (c *comm) finish() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished == nil {
		done := make(chan struct{})
		c.finished = done
		go func() {
			defer close(done)
			if <-c.ready; c.made != nil {
				c.ended = guarded("CommDestroy", c.made.Destroy)
			}
		}()
	}
	return c.finished
}

//export assay_finalize
func assay_finalize(handle C.uintptr_t, text *C.char) (code C.int) {
	const call = "CommFinalize"
	defer guard(call, text, &code)
	c, err := using(call, handle)
	if err != nil {
		return result(err, text)
	}
	c.mu.Lock()
	again := c.finished != nil
	c.mu.Unlock()
	if again {
		return result(wrong(op.InvalidArgument, call, "it was called before"), text)
	}
	done := c.finish()
	if c.nonblocking { // assay_state says when it is done
		select {
		case <-done:
		default:
			return C.int(op.InProgress)
		}
	}
	<-done
	return result(c.ended, text)
}

// What has ended a communicator.
const (
	whole int32 = iota
	destroyed
	aborted
)

//export assay_destroy
func assay_destroy(handle C.uintptr_t, text *C.char) (code C.int) {
	const call = "CommDestroy"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err == nil && !c.over.CompareAndSwap(whole, destroyed) {
		err = wrong(op.InvalidArgument, call, "another thread destroys or aborts the communicator")
	}
	if err != nil {
		return result(err, text)
	}
	defer c.remove() // an Abort may end what this waits for
	c.cancel(wrong(op.InvalidUsage, call, "the communicator was destroyed before its group ended"))
	<-c.finish()
	return result(c.ended, text)
}

//export assay_abort
func assay_abort(handle C.uintptr_t, text *C.char) (code C.int) {
	const call = "CommAbort"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err == nil && c.over.Swap(aborted) == aborted {
		err = wrong(op.InvalidArgument, call, "another thread aborts the communicator")
	}
	if err != nil {
		return result(err, text)
	}
	defer c.remove()
	c.cancel(wrong(op.InvalidUsage, call, "the communicator was aborted before its group ended"))
	c.give()
	<-c.ready
	if c.made == nil {
		return C.int(op.Success)
	}
	if err = c.made.Abort(); errors.Is(err, coll.ErrDestroyed) { // it was finalized
		err = nil
	}
	return result(err, text)
}

//export assay_revoke
func assay_revoke(handle C.uintptr_t, text *C.char) (code C.int) {
	const call = "CommRevoke"
	defer guard(call, text, &code)
	c, err := using(call, handle)
	if err == nil {
		err = c.made.Revoke()
	}
	if err == nil {
		c.mu.Lock()
		c.revoked = true
		c.mu.Unlock()
	}
	return result(err, text)
}
