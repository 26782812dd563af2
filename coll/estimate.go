package coll

import (
	"time"

	"github.com/assay-hpc/assay/coll/op"
)

// Estimate ends the group like Cancel, and returns how long its operations would take: those of
// one device one after the other, devices in parallel.
func (g *Group) Estimate() (time.Duration, error) {
	defer g.Cancel()
	if g.err != nil {
		return 0, g.err
	}
	of := map[int]time.Duration{} // by device, -1 being the processor
	var longest time.Duration
	for _, c := range g.comms {
		if err := c.enter(nil); err != nil {
			return 0, err
		}
		on, here := g.estimate(c)
		c.leave()
		device, ok := c.Device()
		if !ok {
			device = -1
		}
		of[-1] += here
		of[device] += on
		longest = max(longest, of[-1], of[device])
	}
	return longest, nil
}

// estimate returns how long a communicator's operations of a group would take, on its device and
// on the processor.
func (g *Group) estimate(c *Comm) (on, here time.Duration) {
	exchange := op.Op{Coll: op.SendRecv, Root: NoPeer}
	sent := map[int]int{} // to each rank, on the processor
	for i := range g.calls {
		a := &g.calls[i].a
		switch {
		case g.calls[i].c != c:
		case a.onDevice() && a.Coll == pointToPoint:
			exchange.Transfers = append(exchange.Transfers, a.transfer())
		case a.onDevice():
			on += c.dev.Estimate(&a.Op)
		case c.size == 1:
		case a.Coll == pointToPoint && a.sends():
			sent[a.peer] += a.Count * a.Type.Size()
		case a.Coll != pointToPoint:
			here += c.links.Tuner.Time(a.Coll, a.Count*a.Type.Size())
		}
	}
	for _, bytes := range sent {
		here += c.links.Tuner.Time(op.SendRecv, bytes)
	}
	if len(exchange.Transfers) > 0 {
		on += c.dev.Estimate(&exchange)
	}
	return on, here
}
