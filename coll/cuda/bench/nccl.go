//go:build cuda && cgo

package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/nccl"
	"github.com/assay-hpc/assay/coll/op"
)

// A Meeting is how ranks communicate on the host.
type Meeting interface {
	Rank() int
	Size() int
	// Exchange sends b to all ranks and returns what each rank sent, by rank.
	Exchange(ctx context.Context, b []byte) ([][]byte, error)
	// Barrier returns when all ranks have called it.
	Barrier() error
}

// NCCL is one rank of an NCCL communicator, on a lane's stream and device. It implements
// perf.Remote, perf.ModeSetter, perf.PreMulSummer and perf.Explainer. Except for Close and
// Abort, its methods are called like those of Lane.
type NCCL struct {
	*Lane
	Meeting
	lib     *nccl.Library
	comm    *nccl.Comm
	ops     []nccl.RedOp // premultiplied sums, by reduction minus firstSum; 0: free
	windows map[uintptr]nccl.Registration
	quit    chan struct{} // closed: watch ends
	quiet   chan struct{} // closed by watch at its end
	cause   atomic.Pointer[error]
}

// Reductions from here on are premultiplied sums.
const firstSum = elem.Op(64)

// OpenNCCL joins a communicator of the meeting's ranks. All of them call it, each on its own
// goroutine.
func OpenNCCL(ctx context.Context, lib *nccl.Library, lane *Lane, m Meeting) (*NCCL, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := lane.Bind(); err != nil {
		return nil, err
	}
	id, err := meet(ctx, lib, m)
	if err != nil {
		return nil, err
	}
	comm, err := lib.InitRank(m.Size(), id, m.Rank())
	if err != nil {
		return nil, err
	}
	c := &NCCL{
		Lane: lane, Meeting: m, lib: lib, comm: comm, windows: map[uintptr]nccl.Registration{},
		quit: make(chan struct{}), quiet: make(chan struct{}),
	}
	go c.watch()
	return c, nil
}

// meet sends rank 0's ID to all ranks.
func meet(ctx context.Context, lib *nccl.Library, m Meeting) (id nccl.UniqueID, err error) {
	var mine []byte
	if m.Rank() == 0 {
		if id, err = lib.UniqueID(); err == nil { // otherwise the missing ID tells the other ranks
			mine = id[:]
		}
	}
	all, exchanged := m.Exchange(ctx, mine)
	if err = errors.Join(err, exchanged); err != nil {
		return id, err
	}
	if copy(id[:], all[0]) != len(id) {
		return id, errors.New("rank 0 has no ID for NCCL")
	}
	return id, nil
}

// watchEvery is the interval at which NCCL is polled for errors that no call returns.
const watchEvery = 200 * time.Millisecond

// watch aborts the communicator when NCCL finds an error in the background. Without that, a
// kernel that waits for a lost peer would block Wait.
func (c *NCCL) watch() {
	defer close(c.quiet)
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-c.quit:
			return
		case <-t.C:
			err := c.comm.AsyncError()
			if err == nil {
				continue
			}
			if !errors.Is(err, nccl.ErrAborted) {
				c.cause.Store(&err)
				_ = c.comm.Abort()
			}
			return
		}
	}
}

// Close leaves the communicator. All ranks call it, at the same time. The lane
// stays.
func (c *NCCL) Close() error {
	close(c.quit)
	<-c.quiet
	return c.comm.Destroy()
}

// Abort ends the work in progress, on this rank and thereby on the others. Any goroutine may
// call it, repeatedly.
func (c *NCCL) Abort() error { return c.comm.Abort() }

// Wait returns when all enqueued work is done.
func (c *NCCL) Wait() error {
	if err := c.Lane.Wait(); err != nil {
		return err
	}
	return c.comm.AsyncError()
}

// LastError implements perf.Explainer: why the communicator was aborted, if
// NCCL found an error itself.
func (c *NCCL) LastError() string {
	if err := c.cause.Load(); err != nil {
		return (*err).Error()
	}
	return ""
}

// reduction returns NCCL's number of a reduction.
func (c *NCCL) reduction(red elem.Op) nccl.RedOp {
	if red >= firstSum {
		return c.ops[red-firstSum]
	}
	return nccl.Reduction(red)
}

// PreMulSum implements perf.PreMulSummer.
func (c *NCCL) PreMulSum(scalar []byte, t elem.Type) (elem.Op, error) {
	i := 0
	for i < len(c.ops) && c.ops[i] != 0 {
		i++
	}
	if int(firstSum)+i > math.MaxUint8 {
		return 0, errors.New("too many premultiplied sums")
	}
	op, err := c.comm.PreMulSum(scalar, t)
	if err != nil {
		return 0, err
	}
	if i == len(c.ops) {
		c.ops = append(c.ops, 0)
	}
	c.ops[i] = op
	return firstSum + elem.Op(i), nil
}

// FreeOp implements perf.PreMulSummer.
func (c *NCCL) FreeOp(op elem.Op) error {
	i := int(op) - int(firstSum)
	if i < 0 || i >= len(c.ops) || c.ops[i] == 0 {
		return fmt.Errorf("there is no premultiplied sum %d", op)
	}
	freed := c.ops[i]
	c.ops[i] = 0
	return c.comm.FreeOp(freed)
}

// Do implements perf.Comm by nccl.Comm's Do.
func (c *NCCL) Do(o *op.Op) error { return c.comm.Do(o, c.reduction(o.Red), c.Stream()) }

// Group implements perf.Comm. It ends the group whatever f returns.
func (c *NCCL) Group(f func() error) error {
	if err := c.lib.GroupStart(); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, c.lib.GroupEnd())
}
