package coll

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/session"
)

// siblings are the ranks of a communicator in this process.
type siblings struct {
	key string

	// Guarded by allSiblings.
	left int // ranks not yet being destroyed
	errs []error

	destroying sync.WaitGroup
}

var allSiblings = struct {
	sync.Mutex
	of map[string]*siblings // by a key that only the communicator's ID yields
}{of: map[string]*siblings{}}

// joinSiblings counts a rank in. All ranks of a process have joined by the time that the first of
// them has heard from all ranks.
func joinSiblings(key []byte) *siblings {
	allSiblings.Lock()
	defer allSiblings.Unlock()
	k := allSiblings.of[string(key)]
	if k == nil {
		k = &siblings{key: string(key)}
		allSiblings.of[k.key] = k
	}
	k.left++
	return k
}

// drop counts a rank out and reports whether it was the last.
func (k *siblings) drop() (last bool) {
	allSiblings.Lock()
	defer allSiblings.Unlock()
	if k.left--; k.left == 0 {
		delete(allSiblings.of, k.key)
	}
	return k.left == 0
}

// leave destroys a rank in the background. For the last rank it waits until all are destroyed.
func (k *siblings) leave(destroy func() error) error {
	k.destroying.Go(func() {
		err := destroy()
		allSiblings.Lock()
		defer allSiblings.Unlock()
		k.errs = append(k.errs, err)
	})
	if !k.drop() {
		return nil
	}
	k.destroying.Wait()
	return errors.Join(k.errs...)
}

// Abort ends the communicator's operations, here and at all other ranks. Theirs return errors
// that wrap ErrAborted, or that report this rank as lost where a network noticed first. With
// Config.AsNCCL, if this rank's operations have ended, they get errors only where they wait for more
// of it. Abort may be called from any goroutine. It waits for this rank's operation to end, not for
// other ranks, and returns soon: then this rank's buffers can be freed, whatever the others are doing.
// The communicator is unusable afterwards.
func (c *Comm) Abort() error {
	why, network := ErrAborted, c.net.Abort
	if p := partingOf(c); p != nil {
		why, network = p, c.net.Leave
	}
	c.fault.Set(&Error{Code: InvalidUsage, Rank: c.rank, Op: "Abort", Peer: NoPeer, Err: why})
	c.fault.Settle() // the others are to hear first why, if it is the consequence of another error
	if err := c.seal(); err != nil {
		return err
	}
	err := c.free(network)
	c.kin.drop()
	if err != nil {
		return c.wrap("Abort", err)
	}
	return nil
}

// Destroy frees the communicator. It waits, for a few seconds at most, until the other ranks do
// the same. Of several ranks in this process only the last one's Destroy waits, for all of them,
// so that one goroutine may destroy one after another. It returns an error if the ranks did not
// call the same operations; with Config.AsNCCL only if an operation of this rank has not ended.
func (c *Comm) Destroy() error {
	if err := c.seal(); err != nil {
		return err
	}
	if c.settle() && c.dev != nil {
		c.dev.Leave()
	}
	return c.kin.leave(c.destroy)
}

func (c *Comm) destroy() error {
	var odd error
	err := c.free(func() {
		var alone error
		odd, alone = c.unequal()
		if a := c.accel.Load(); a != nil && c.fault.Err() == nil {
			switch {
			case odd == nil:
			case c.cfg.asNCCL && a.Idle():
				// A Broadcast's root can finish its part although no other rank has called the
				// operation. As in NCCL that is not an error: this rank is missing no result.
				c.cfg.log.Warnf("Destroy: %v", odd)
				odd = nil
			default:
				a.Abort(odd)
			}
			_ = c.dev.close(func(b byte) ([]byte, error) {
				if alone != nil { // they were waited for
					return nil, alone
				}
				return c.tellLeaving(b)
			})
		}
		_ = c.net.Close()
		if odd == nil {
			odd = c.leftover()
		}
	})
	if err == nil {
		err = odd
	}
	if err != nil {
		return c.wrap("Destroy", err)
	}
	return nil
}

// unequal waits for the other ranks, and returns an error if the ranks called different numbers
// of collectives. alone is why not all have come.
func (c *Comm) unequal() (odd, alone error) {
	if c.fault.Err() != nil || c.size == 1 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	tell := time.AfterFunc(hang.Slow, func() { c.waits.Destroying(c.seq + 1) })
	defer tell.Stop()
	all, err := session.Exchange(ctx, c.net, c.seq)
	if err != nil {
		return c.fault.Err(), err // without a fault the other ranks are already gone, or late
	}
	for r, seq := range all {
		if seq != c.seq {
			e := c.errorOf(InvalidUsage, "Destroy", "rank %d called %d collectives and this rank %d", r, seq, c.seq)
			e.Peer = r
			return e, nil
		}
	}
	return nil, nil
}

// tellLeaving passes b to all ranks and returns the values of all, by rank, when all have called
// it.
func (r *ranks) tellLeaving(b byte) ([]byte, error) {
	if r.size == 1 {
		return []byte{b}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	return session.Exchange(ctx, r.net, b)
}

// leaveWait is how long a rank that is being destroyed waits for the others.
const leaveWait = 5 * time.Second

// free frees everything, after the operation in progress has ended.
func (c *Comm) free(net func()) error {
	c.settle()
	net()
	for !c.shut() {
		time.Sleep(100 * time.Microsecond) // the fault ends the operation
	}
	return errors.Join(c.dev.close(nil), c.links.Close(), c.cfg.owned.Close())
}
