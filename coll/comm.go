package coll

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/session"
	"github.com/assay-hpc/assay/coll/transport"
)

// A Comm is one rank's side of a communicator.
type Comm struct {
	*ranks
	gate
	hostPath
	regroupings regroupings

	// Used by the goroutine that runs an operation.
	group   *Group
	own     Group // for a Do of several Sends and Recvs
	barrier [1]byte

	kin    *siblings
	lanes  int                     // number of lanes opened so far
	dev    *device                 // nil: the communicator has no device
	parted atomic.Pointer[parting] // of the other rank that has called least
	accel  atomic.Pointer[device]  // the same as dev; nil again once it is closed
}

// ranks is the state that a communicator and its lanes share: the ranks, what they have agreed
// on, and any fault.
type ranks struct {
	rank, size int
	cfg        settings
	net        *bootstrap.Net
	session    *session.Session
	fault      transport.Fault
	broken     context.Context // done when there is a fault
	hang       hang.Comm
}

// Rank is the caller's rank.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

func (c *Comm) run(a *call) error {
	if a.onDevice() {
		if err := a.check(c); err != nil || a.Count == 0 {
			return err
		}
		return c.dev.enqueue(a)
	}
	if c.dev != nil {
		c.dev.last = false
	}
	if !c.again(a) {
		if err := a.check(c); err != nil || a.Count == 0 {
			return err
		}
		if a.Coll == pointToPoint && a.peer == c.rank {
			return c.errorOf(InvalidUsage, a.name(0), "a rank that sends to itself needs a group with the Recv in it")
		}
		if c.size == 1 {
			host.Alone(&a.Op)
			return nil
		}
		if err := c.begin(a); err != nil {
			return c.fail(a, err)
		}
	}
	if err := c.drive(); err != nil {
		return c.fail(a, err)
	}
	return nil
}

// fail makes the communicator unusable, informs the other ranks, and returns the error for the
// caller.
func (c *Comm) fail(a *call, err error) error {
	if follows(err) {
		c.fault.Await(transport.Late)
	}
	if f := c.fault.Err(); f != nil {
		err = f // err is probably a consequence of the fault
	}
	e := c.wrap(a.name(c.seq), c.late(err))
	c.fault.Set(e)
	c.fault.Settle() // the others are to hear of it before the program ends
	c.accel.Load().refuses(a, c.seq)
	return e
}

// AsyncError returns what has gone wrong with the communicator since it was created, here or at
// another rank; nil if nothing has. An operation on device memory that has ended without its result
// is an error as soon as its stream is done.
func (c *Comm) AsyncError() error {
	if d := c.accel.Load(); d != nil {
		if checker, ok := d.Executor.(executor.Checker); ok {
			checker.Check()
		}
	}
	if err := c.fault.Err(); err != nil {
		return c.wrap("asynchronous", err)
	}
	return nil
}

// Exchange passes b to all ranks and returns the values of all ranks, by rank. It is for small
// values in addition to the data, uses the bootstrap's network, and is itself a collective.
func (c *Comm) Exchange(ctx context.Context, b []byte) ([][]byte, error) {
	all, err := c.net.AllGather(ctx, b)
	if err != nil {
		c.net.Heard()
		if f := c.fault.Err(); f != nil {
			err = f
		}
		return nil, c.wrap("Exchange", err)
	}
	return all, nil
}

// Chosen returns how the last collective was done, such as "two-shot/Simple". Only the goroutine
// that calls the operations may call it.
func (c *Comm) Chosen() string {
	if c.dev != nil && c.dev.last {
		return c.dev.Chosen()
	}
	if c.chosen.Algorithm == "" {
		return ""
	}
	return c.chosen.Algorithm + "/" + c.chosen.Protocol.String()
}

// Name is the communicator's name: Config.Name, or a generated name that no other communicator
// has.
func (c *Comm) Name() string {
	if c.cfg.name != "" {
		return c.cfg.name
	}
	return hex.EncodeToString(c.net.Key("name")[:4])
}

// String is for logs.
func (c *Comm) String() string { return fmt.Sprintf("rank %d of %d", c.rank, c.size) }
