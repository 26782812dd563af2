//go:build cuda && cgo

package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// What ranks tell one another during a Suspend.
const (
	willSuspend uint8 = iota
	hasGraphs
	hasUnmapped
)

// Suspend implements executor.Executor. The driver frees memory only when everything that runs
// on the device has ended.
func (e *engine) Suspend(ctx context.Context) error {
	if err := e.rest(ctx); err != nil {
		return err
	}
	mine := willSuspend
	if e.captured.Load() {
		mine = hasGraphs
	}
	all, err := exchangeAll(ctx, e.cfg.Host, mine)
	if err != nil {
		return err
	}
	if r := slices.Index(all, hasGraphs); r >= 0 {
		return e.refused("CommSuspend", fmt.Errorf("a CUDA graph has operations of rank %d: it knows where the memory is, and it would be elsewhere afterwards", r))
	}
	return e.dev.in(func() error { return e.giveWindow(ctx) })
}

// giveWindow returns the rank's window to the driver once no other rank has it mapped.
func (e *engine) giveWindow(ctx context.Context) error {
	for _, k := range e.windows.imports {
		if err := e.dev.arena.unmapOne(k); err != nil {
			return err
		}
	}
	if _, err := exchangeAll(ctx, e.cfg.Host, hasUnmapped); err != nil {
		return err
	}
	e.mu.Lock()
	own := e.windows.own
	e.windows.own, e.windows.at, e.windows.imports = nil, nil, nil
	e.mu.Unlock()
	switch {
	case own == nil: // a one-rank communicator
		return nil
	case own.kept: // an earlier communicator has left it mapped in another process
		e.dev.arena.give(own, nil, true)
		return nil
	}
	return own.free()
}

// Resume implements executor.Executor.
func (e *engine) Resume(ctx context.Context) error {
	if e.cfg.Size == 1 {
		return nil
	}
	w := windows{kind: e.windows.kind, hosted: e.windows.hosted}
	var why string
	err := e.dev.in(func() (err error) {
		why, err = w.open(ctx, e.cfg, e.dev, e.all, "")
		return err
	})
	switch {
	case errors.Is(err, driver.ErrOutOfMemory): // all ranks know that
		return e.refused("CommResume", err)
	case err != nil:
		return err
	case why != "":
		return e.refused("CommResume", errors.New(why))
	}
	e.mu.Lock()
	e.windows = w
	e.mu.Unlock()
	for r, p := range w.at {
		e.comm.win[r] = uint64(p)
	}
	for _, l := range append(e.launches[:len(e.launches):len(e.launches)], e.copier.move, e.copier.pair) {
		if l != nil {
			(*commABI)(l.l.Param(0)).win = e.comm.win
		}
	}
	return nil
}

func (e *engine) refused(what string, err error) error {
	return &op.Error{Code: op.InvalidUsage, Rank: e.cfg.Rank, Op: what, Peer: op.NoPeer, Err: err}
}

// rest waits until everything enqueued has ended.
func (o *order) rest(ctx context.Context) error {
	if o.busy && !o.eager {
		if err := o.dev.in(func() error { return o.event.Record(o.stream) }); err != nil {
			return err
		}
	}
	for wait := 10 * time.Microsecond; o.busy; wait = min(2*wait, time.Millisecond) {
		var done bool
		err := o.dev.in(func() (err error) { done, err = o.final().Query(); return err })
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
	return nil
}

// Suspend implements executor.Executor: nothing is on the device.
func (s *hostFallback) Suspend(ctx context.Context) error { return s.together(ctx, s.cfg.Host) }

// Resume implements executor.Executor.
func (s *hostFallback) Resume(ctx context.Context) error { return s.together(ctx, s.cfg.Host) }

// Register implements executor.Executor: nothing is written directly.
func (s *hostFallback) Register(_ context.Context, addr uintptr, _ int) (executor.Registration, error) {
	return unreached(s.cfg, addr, stagedWhy)
}

// LSA implements executor.Executor.
func (s *hostFallback) LSA(bool) (executor.LSATeam, error) {
	return executor.LSATeam{Why: stagedWhy}, nil
}

const stagedWhy = "the ranks stage device memory in the host's, because they do not reach one another's devices"

// unreached is the answer to Register of ranks that do not reach one another's memory.
func unreached(cfg executor.Config, addr uintptr, why string) (executor.Registration, error) {
	if addr == 0 {
		return executor.Registration{}, &op.Error{Code: op.InvalidUsage, Rank: cfg.Rank, Op: "DevCommCreate", Peer: op.NoPeer, Err: errors.New(why)}
	}
	return executor.Registration{LSA: executor.LSA{Why: why}}, nil
}

// Deregister implements executor.Executor.
func (s *hostFallback) Deregister(int) error { return nil }

// together waits for everything that was enqueued, and for the other ranks.
func (o *order) together(ctx context.Context, h executor.Host) error {
	if err := o.rest(ctx); err != nil {
		return err
	}
	_, err := h.Exchange(ctx, nil)
	return err
}
