package coll

import (
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/transport"
)

// A parting is the abort of a rank whose operations on its device have all ended, as when a program
// drops a communicator. It is an error for those only that wait for more of that rank: what it has
// sent is there, and the others may still be taking it.
type parting struct {
	rank    int
	calls   uint32 // collectives that the rank has called
	err     error
	c       *Comm // a rank that stays
	waiting atomic.Bool
}

// Error implements error, for the rank that aborts.
func (*parting) Error() string { return ErrAborted.Error() }

func (*parting) Unwrap() error { return ErrAborted }

// partingOf returns the parting that an Abort of c is; nil if it may break off an operation.
func partingOf(c *Comm) *parting {
	d := c.accel.Load()
	if !c.cfg.asNCCL || d == nil || c.fault.Err() != nil || !ended(d) || !c.claim() {
		return nil
	}
	p := &parting{rank: c.rank, calls: c.seq}
	c.leave()
	if !ended(d) { // another thread has called one meanwhile
		return nil
	}
	return p
}

// ended reports whether nothing runs or waits on a device, in graphs neither.
func ended(d *device) bool { return d.Idle() && d.Progress().Does == executor.Idle }

// heard makes the parting of another rank known here. Of several, that of the rank that has called
// least decides what is admitted.
func (p *parting) heard() {
	if p.c.accel.Load() == nil {
		p.c.fault.Set(p.err)
		return
	}
	for {
		first := p.c.parted.Load()
		if first != nil && int32(p.calls-first.calls) >= 0 || p.c.parted.CompareAndSwap(first, p) {
			break
		}
	}
	p.await()
}

// admit breaks the communicator if an operation needs more than the rank has done before it parted.
// A Send or Recv may: it gets the time of await.
func (p *parting) admit(a *call) {
	switch {
	case p == nil, a == nil:
	case a.Coll != pointToPoint && int32(p.c.seq+1-p.calls) > 0:
		p.breaks()
	default:
		p.await()
	}
}

// breaks makes the parting an error, here and at all other ranks.
func (p *parting) breaks() {
	if p.c.fault.Set(p.err) {
		p.c.report(report{Code: RemoteError, Abort: true, Peer: &p.rank})
	}
}

// await breaks the communicator if its operations do not end in time.
func (p *parting) await() {
	if p.waiting.CompareAndSwap(false, true) {
		go p.watch()
	}
}

func (p *parting) watch() {
	for until := time.Now().Add(transport.Late); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		if !p.settled() {
			continue
		}
		p.waiting.Store(false)
		// An operation that came meanwhile found that somebody watches.
		if p.settled() || !p.waiting.CompareAndSwap(false, true) {
			return
		}
	}
	p.breaks()
	p.waiting.Store(false)
}

// settled reports whether nothing waits for the rank that has parted: no operation is on its way to
// the device, and none is there.
func (p *parting) settled() bool {
	d := p.c.accel.Load()
	return d == nil || p.c.fault.Err() != nil || p.c.state.Load() != 1 && ended(d)
}
