package coll

import (
	"sync/atomic"
	"time"
)

// A gate admits one operation at a time, and none once it is shut.
type gate struct {
	shared    *ranks
	state     atomic.Int32 // 1: an operation is in progress; 2: shut
	closed    atomic.Bool
	suspended atomic.Bool
}

// enter claims the communicator for this goroutine. Where it is broken, the verdict names a, the
// operation that cannot start; nil if it is none.
func (c *Comm) enter(a *call) error {
	if !c.claim() {
		return c.refuse("an operation", ErrBusy)
	}
	c.parted.Load().admit(a)
	if c.fault.Err() != nil || c.closed.Load() || c.suspended.Load() {
		next, what := c.seq+1, "an operation"
		c.leave()
		if a != nil {
			c.accel.Load().refuses(a, next)
			what = a.name(next)
		}
		return c.refuse(what, nil)
	}
	return nil
}

// claim admits an operation, if none is in progress. It ends with leave.
func (g *gate) claim() bool { return g.state.CompareAndSwap(0, 1) }

func (g *gate) leave() { g.state.Store(0) }

// shut reports whether no operation is in progress, and if so keeps new ones from starting.
func (g *gate) shut() bool { return g.state.Load() == 2 || g.state.CompareAndSwap(0, 2) }

// settle shuts the gate as soon as no operation is in progress, and reports true. It reports false
// if there is a fault, which will end the operation.
func (g *gate) settle() bool {
	for !g.shut() {
		if g.shared.fault.Err() != nil {
			return false
		}
		time.Sleep(100 * time.Microsecond)
	}
	return true
}

// refuse returns the error of an operation that cannot start.
func (g *gate) refuse(what string, err error) error {
	switch f := g.shared.fault.Err(); {
	case f != nil:
		g.shared.fault.Settle()
		return g.shared.wrap(what, f)
	case g.closed.Load():
		err = ErrDestroyed
	case err == nil:
		err = ErrSuspended
	}
	return &Error{Code: InvalidUsage, Rank: g.shared.rank, Op: what, Peer: NoPeer, Err: err}
}

// seal prevents further operations. A second call is an error.
func (g *gate) seal() error {
	if !g.closed.CompareAndSwap(false, true) {
		return &Error{Code: InvalidArgument, Rank: g.shared.rank, Op: "Destroy", Peer: NoPeer, Err: ErrDestroyed}
	}
	return nil
}
