package coll

import (
	"context"
	"errors"

	"github.com/assay-hpc/assay/coll/executor"
)

// Suspend releases the device memory that only this communicator uses, once all enqueued
// operations have ended. All ranks call it, and it waits for them. No operation is possible until
// Resume. It fails, and changes nothing, if an operation was captured in a graph, because the
// graph contains addresses that would change; this is detected with Config.AsNCCL.
func (c *Comm) Suspend(ctx context.Context) error {
	const op = "CommSuspend"
	if err := c.enter(nil); err != nil {
		return err
	}
	defer c.leave()
	if err := c.onItsDevice(ctx, op, executor.Executor.Suspend); err != nil {
		return err
	}
	c.suspended.Store(true)
	return nil
}

// Resume undoes Suspend. All ranks call it, and it waits for them. If one of them has no memory
// left, the communicator stays suspended.
func (c *Comm) Resume(ctx context.Context) error {
	const op = "CommResume"
	if !c.suspended.CompareAndSwap(true, false) {
		return c.errorOf(InvalidUsage, op, "the communicator is not suspended")
	}
	err := c.enter(nil)
	if err != nil {
		return err
	}
	defer c.leave()
	if err = c.onItsDevice(ctx, op, executor.Executor.Resume); err != nil {
		c.suspended.Store(true)
	}
	return err
}

// Suspended reports whether Suspend was called, and not yet Resume. Any goroutine may call it.
func (c *Comm) Suspended() bool { return c.suspended.Load() }

// onItsDevice makes the executor do a step that all ranks do together. If the step fails, and was
// not just refused, the ranks are out of step and the communicator becomes unusable.
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
