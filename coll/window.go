package coll

import (
	"context"

	"github.com/assay-hpc/assay/coll/executor"
)

// A Window is device memory that all ranks of a communicator have registered for one another.
type Window struct {
	c  *Comm
	id int // of the executor; 0: operations on it are as on any memory
}

// RegisterWindow registers device memory, of which each rank passes its own. All ranks call it, and
// it waits for them. AllGather, AllToAll out of place and Broadcast of long messages then write their
// results to it directly, without an intermediate copy, if ranks reach one another's devices. The
// memory is of cudaMalloc, or virtual memory: all devices of the process may use it or, for ranks in
// other processes, it can be exported as a file descriptor, as that of ncclMemAlloc. On every rank the
// results must begin at the same offset of the window: ranks with different offsets wait for one
// another. Until Close, the memory must exist.
func (c *Comm) RegisterWindow(ctx context.Context, b Buffer) (*Window, error) {
	const op = "RegisterWindow"
	if err := c.enter(nil); err != nil {
		return nil, err
	}
	defer c.leave()
	if c.dev == nil || !b.device {
		return nil, c.errorOf(InvalidUsage, op, "windows are device memory of a communicator on a device")
	}
	w := &Window{c: c}
	err := c.onItsDevice(ctx, op, func(x executor.Executor, ctx context.Context) (err error) {
		w.id, err = x.Register(ctx, b.addr(), b.Len())
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Direct reports whether other ranks write to the window directly. It is the same on all ranks.
func (w *Window) Direct() bool { return w.id != 0 }

// Close ends the registration. All operations on the window have ended, on all ranks, and all ranks
// call Close before the next operation on this memory. It may wait for other work on the device.
// Registrations also end with the communicator, and then Close does nothing.
func (w *Window) Close() error {
	const op = "DeregisterWindow"
	if w.c.fault.Err() != nil || w.c.closed.Load() {
		return nil
	}
	if err := w.c.enter(nil); err != nil {
		return err
	}
	defer w.c.leave()
	if err := w.c.dev.Deregister(w.id); err != nil {
		return w.c.wrap(op, err)
	}
	return nil
}
