package coll

import (
	"context"
	"slices"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
)

// A HostSide is what an accelerator has of its communicator.
type HostSide struct {
	c   *Comm
	run host.Run
}

// Exchange gives every rank what each passes, by rank. It takes a millisecond
// or so.
func (h *HostSide) Exchange(ctx context.Context, b []byte) ([][]byte, error) {
	return h.c.net.AllGather(ctx, b)
}

// Gather gives every rank what each passes, all of one length, by rank, in
// some microseconds. Only an Accelerator's Enqueue may call it.
func (h *HostSide) Gather(send, recv []byte) error {
	if h.c.size == 1 {
		copy(recv, send)
		return nil
	}
	a := gatherOf(send, recv)
	if err := h.c.start(&h.run, &a); err != nil {
		return err
	}
	one := [1]*host.Run{&h.run}
	_, err := host.Drive(one[:], &h.c.watch)
	return err
}

func gatherOf(send, recv []byte) call {
	return call{coll: op.AllGather, send: Bytes(send), recv: Bytes(recv), count: len(send), t: Uint8, root: NoPeer}
}

// GatherAll is Gather for several ranks that one goroutine is. Only an
// Accelerator's EnqueueAll may call it, for accelerators of its group.
func GatherAll(sides []*HostSide, send, recv [][]byte) error {
	var comms []*Comm // by run
	runs := make([]*host.Run, 0, len(sides))
	for i, h := range sides {
		if h.c.size == 1 {
			copy(recv[i], send[i])
			continue
		}
		a := gatherOf(send[i], recv[i])
		if err := h.c.start(&h.run, &a); err != nil {
			return err
		}
		runs, comms = append(runs, &h.run), append(comms, h.c)
	}
	return driveAll(runs, comms)
}

// A Swap is between a rank and some others: each gives the other what it has,
// which is of one length.
type Swap struct {
	Side  *HostSide
	Peers []int // not the rank itself
	Send  []byte
	Recv  [][]byte // by index in Peers
}

// SwapAll does swaps, of several ranks that one goroutine is, perhaps. Only an
// Accelerator's Enqueue or EnqueueAll may call it, for accelerators of its
// group. To others it is like Sends and Recvs: peers call it, too, and no one
// else needs to.
func SwapAll(swaps []Swap) error {
	var comms []*Comm // by run
	var runs []*host.Run
	for _, s := range swaps {
		c := s.Side.c
		for i, p := range s.Peers {
			for _, a := range [...]call{{send: Bytes(s.Send)}, {recv: Bytes(s.Recv[i])}} {
				a.coll, a.peer, a.count, a.t, a.root = pointToPoint, p, len(s.Send), Uint8, NoPeer
				r := new(host.Run)
				if err := c.start(r, &a); err != nil {
					return err
				}
				runs, comms = append(runs, r), append(comms, c)
			}
		}
	}
	return driveAll(runs, comms)
}

// driveAll runs what several communicators have, each run one's.
func driveAll(runs []*host.Run, comms []*Comm) error {
	if len(runs) == 0 {
		return nil
	}
	w := &comms[0].watch
	if distinct := slices.Compact(slices.Clone(comms)); len(distinct) > 1 { // a communicator's runs follow one another
		w = watchOf(distinct, func(i int) *Comm { return comms[i] })
	}
	_, err := host.Drive(runs, w)
	return err
}

// Comm makes a communicator of the same ranks on the processor's memory. All
// ranks call it.
func (h *HostSide) Comm(ctx context.Context) (*Comm, error) {
	all := make([]int, h.c.size)
	for r := range all {
		all[r] = r
	}
	return h.c.child(ctx, "CommInitRank", all, nil)
}

// Fail makes the communicator unusable, here and at all other ranks. Any
// goroutine may call it.
func (h *HostSide) Fail(err error) { h.c.fault.Set(h.c.wrap("asynchronous", err)) }

// Err is what went wrong with the communicator, or nil.
func (h *HostSide) Err() error { return h.c.fault.Err() }
