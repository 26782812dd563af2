package coll

import (
	"context"

	"github.com/assay-hpc/assay/coll/executor"
)

// A Window is device memory that all ranks of a communicator have registered for one another.
type Window struct {
	c  *Comm
	as executor.Registration
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
	if c.dev == nil || !b.device || b.addr() == 0 {
		return nil, c.errorOf(InvalidUsage, op, "windows are device memory of a communicator on a device")
	}
	return c.register(ctx, op, b.addr(), b.Len())
}

// NewWindow returns a window of n zeroed bytes on the device of each rank, for kernels of the program,
// until Close. All ranks call it, with the same n, and it waits for them. If kernels do not reach the
// memory of other ranks the error is InvalidUsage, on all ranks.
func (c *Comm) NewWindow(ctx context.Context, n int) (*Window, error) {
	const op = "NewWindow"
	if err := c.enter(nil); err != nil {
		return nil, err
	}
	defer c.leave()
	if n <= 0 {
		return nil, c.errorOf(InvalidArgument, op, "a window of %d bytes", n)
	}
	return c.register(ctx, op, 0, n)
}

func (c *Comm) register(ctx context.Context, op string, addr uintptr, n int) (*Window, error) {
	w := &Window{c: c}
	err := c.onItsDevice(ctx, op, func(x executor.Executor, ctx context.Context) (err error) {
		w.as, err = x.Register(ctx, addr, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Direct reports whether other ranks write to the window directly. It is the same on all ranks.
func (w *Window) Direct() bool { return w.as.Direct }

// LSA says where kernels of the program find the memory of all ranks.
func (w *Window) LSA() executor.LSA { return w.as.LSA }

// LSA says whether kernels of the program reach the memory of other ranks' windows, which must be
// virtual memory, as that of ncclMemAlloc. With use it makes a table of windows for them; without, any
// goroutine may call it.
func (c *Comm) LSA(use bool) (executor.LSATeam, error) {
	const op = "LSA"
	if use {
		if err := c.enter(nil); err != nil {
			return executor.LSATeam{}, err
		}
		defer c.leave()
	}
	if c.dev == nil {
		return executor.LSATeam{Why: "the communicator was made without a device"}, nil
	}
	t, err := c.dev.LSA(use)
	if err != nil {
		return t, c.wrap(op, err)
	}
	return t, nil
}

// Warnf logs what is wrong, as the communicator's settings say.
func (c *Comm) Warnf(format string, a ...any) { c.cfg.log.Warnf(format, a...) }

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
	if err := w.c.dev.Deregister(w.as.ID); err != nil {
		return w.c.wrap(op, err)
	}
	return nil
}
