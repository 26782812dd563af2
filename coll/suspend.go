package coll

import (
	"context"
	"errors"

	"github.com/assay-hpc/assay/coll/executor"
)

// Suspend gives back what this communicator alone has of its device's memory, when what
// was enqueued has ended. All ranks call it, and it waits for them. Until Resume there are
// no operations. It fails, and changes nothing, where an operation was captured in a graph,
// which knows addresses that will not be the same; that is seen with Config.AsNCCL.
func (c *Comm) Suspend(ctx context.Context) error {
	const op = "CommSuspend"
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if err := c.onItsDevice(ctx, op, executor.Executor.Suspend); err != nil {
		return err
	}
	c.suspended.Store(true)
	return nil
}

// Resume ends what Suspend began. All ranks call it, and it waits for them. Where there is
// no memory on one of them, the communicator stays suspended.
func (c *Comm) Resume(ctx context.Context) error {
	const op = "CommResume"
	if !c.suspended.CompareAndSwap(true, false) {
		return c.errorOf(InvalidUsage, op, "the communicator is not suspended")
	}
	err := c.enter()
	if err != nil {
		return err
	}
	defer c.leave()
	if err = c.onItsDevice(ctx, op, executor.Executor.Resume); err != nil {
		c.suspended.Store(true)
	}
	return err
}

// Suspended reports whether there was a Suspend, and no Resume yet. Any goroutine may
// call it.
func (c *Comm) Suspended() bool { return c.suspended.Load() }

// onItsDevice has the executor do what all ranks do together. If it fails in another way
// than by refusing, the ranks are not in step any more.
func (c *Comm) onItsDevice(ctx context.Context, op string, do func(executor.Executor, context.Context) error) error {
	if c.dev == nil {
		return c.errorOf(InvalidUsage, op, "the communicator was made without a device")
	}
	ctx, stop := c.whileWhole(ctx)
	defer stop()
	err := do(c.dev.Executor, ctx)
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Code == InvalidUsage:
		return c.wrap(op, err)
	default:
		return c.giveUp(op, err)
	}
}
