package coll

import (
	"context"
	"slices"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
)

// A hostSide implements executor.Host.
type hostSide struct {
	c   *Comm
	run host.Run
}

// Exchange implements executor.Host.
func (h *hostSide) Exchange(ctx context.Context, b []byte) ([][]byte, error) {
	return h.c.net.AllGather(ctx, b)
}

// Gather implements executor.Host.
func (h *hostSide) Gather(send, recv []byte) error {
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

// GatherAll implements executor.Host.
func (*hostSide) GatherAll(hosts []executor.Host, send, recv [][]byte) error {
	var comms []*Comm // by run
	runs := make([]*host.Run, 0, len(hosts))
	for i, of := range hosts {
		h := of.(*hostSide)
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

// SwapAll implements executor.Host.
func (*hostSide) SwapAll(swaps []executor.Swap) error {
	var comms []*Comm // by run
	var runs []*host.Run
	for _, s := range swaps {
		c := s.Host.(*hostSide).c
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

// Comm implements executor.Host.
func (h *hostSide) Comm(ctx context.Context) (executor.Comm, error) {
	all := make([]int, h.c.size)
	for r := range all {
		all[r] = r
	}
	c, err := h.c.child(ctx, "CommInitRank", all, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Fail implements executor.Host.
func (h *hostSide) Fail(err error) { h.c.fault.Set(h.c.wrap("asynchronous", err)) }

// Err implements executor.Host.
func (h *hostSide) Err() error { return h.c.fault.Err() }
