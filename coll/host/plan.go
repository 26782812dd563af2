// Package host runs schedules on host memory: one rank's program, over
// whatever transports its connections have, with coll/elem's loops for the
// reductions.
//
// A schedule becomes a Plan once (connections are looked up, steps flattened) and is then run any
// number of times with a Run, which allocates nothing. A Run is a set of lanes, each a small
// state machine that advances when its next message has arrived and there is a free slot for the
// message that it sends. Drive advances the lanes of any number of Runs in turn, in one
// goroutine, until all are done, and waits when none can advance.
package host

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/transport"
)

// Links returns a rank's connections, always the same one for the same arguments.
type Links interface {
	Tx(peer, channel int) (transport.Tx, error)
	Rx(peer, channel int) (transport.Rx, error)
	// MultiTx and MultiRx are for messages to all ranks. If these ranks have no such connection,
	// the schedule does not use it.
	MultiTx(channel int) (transport.Tx, error)
	MultiRx(from, channel int) (transport.Rx, error)
	// Network is for messages to and from a network that reduces. Only heads have it.
	Network() (transport.Reducer, transport.Rx, error)
}

// A Plan is a rank's part of a schedule, ready to run.
type Plan struct {
	Schedule *schedule.Schedule
	rank     int
	lanes    []planLane
	scratch  int // blocks of scratch memory per lane
	slot     int // bytes that fit in one message, on any connection of any rank
	vector   bool
	zeroCopy [2]bool        // whether messages may be sent directly from the buffers: out of place, in place
	pushed   []transport.Tx // connections that send messages over time, perhaps from memory of the caller
}

type planLane struct {
	channel int
	steps   []step
}

// A step is a schedule.Step with its connections.
type step struct {
	tx         transport.Tx
	reducer    transport.Reducer // tx, if it is one
	rx         transport.Rx
	a, b, dst  schedule.Ref
	data       schedule.Span
	directTx   bool // tx can send the value from where it is
	directRx   bool // the message can be received at dst
	from, to   int32
	final      bool // nothing reads dst again
	ownA, ownB bool // a or b is the rank's own input, which a premultiplied sum scales
}

// NewPlan creates the plan of a rank. It opens the connections, with messages of up to slot
// bytes; all ranks must pass the same number. Slot returns the smallest number that suffices.
func NewPlan(s *schedule.Schedule, rank, slot int, links Links) (*Plan, error) {
	if need := Slot(s.MaxSpan); slot < need {
		return nil, fmt.Errorf("%v by %s: a message has an element of each of %d blocks, and of %d bytes it may have %d: NCCL_ALGO can exclude the algorithm", s.Collective, s.Algorithm, s.MaxSpan, need, slot)
	}
	p := &Plan{Schedule: s, rank: rank, slot: slot, zeroCopy: [2]bool{schedule.ZeroCopySafe(s.Collective, s.Algorithm, false), schedule.ZeroCopySafe(s.Collective, s.Algorithm, true)}}
	p.vector = s.Collective.Vector()
	prog := s.Program(rank)
	p.scratch = prog.Scratch
	for _, l := range prog.Lanes {
		pl := planLane{channel: l.Channel}
		for _, st := range l.Steps {
			if err := p.add(&pl, st, links); err != nil {
				return nil, fmt.Errorf("%v by %s: %w", s.Collective, s.Algorithm, err)
			}
		}
		if len(pl.steps) > 0 {
			p.lanes = append(p.lanes, pl)
		}
	}
	p.findFinal()
	return p, nil
}

// Slot returns how many bytes a message must be able to hold for steps that move the given number
// of blocks: one element of each, of any type.
func Slot(blocks int) int { return max(1, blocks) * largest }

// largest is the size of the largest element in bytes.
const largest = 8

// findFinal marks the steps whose results no step reads.
func (p *Plan) findFinal() {
	read := map[int32]bool{} // blocks of Output
	for _, l := range p.lanes {
		for _, st := range l.steps {
			for _, r := range []schedule.Ref{st.a, st.b} {
				for i := range st.data.N {
					if r.Buf == schedule.Output {
						read[r.First+i] = true
					}
				}
			}
		}
	}
	for _, l := range p.lanes {
		for i := range l.steps {
			st := &l.steps[i]
			st.final = st.dst.Buf == schedule.Output
			for k := range st.data.N {
				st.final = st.final && !read[st.dst.First+k]
			}
		}
	}
}

func (p *Plan) add(l *planLane, st schedule.Step, links Links) error {
	c := step{a: st.A, b: st.B, dst: st.Dst, data: st.Data, from: st.Recv, to: st.Send, ownA: st.A.Buf == schedule.Input, ownB: st.B.Buf == schedule.Input}
	if int(st.Data.N) > max(1, p.Schedule.MaxSpan) {
		return fmt.Errorf("a step of rank %d moves %d blocks, the schedule says %d at most", p.rank, st.Data.N, p.Schedule.MaxSpan)
	}
	var err error
	if st.Recv != schedule.Nobody {
		switch {
		case st.Recv == schedule.Network:
			_, c.rx, err = links.Network()
		case st.Multi:
			c.rx, err = links.MultiRx(int(st.Recv), l.channel)
		default:
			c.rx, err = links.Rx(int(st.Recv), l.channel)
		}
		if err != nil {
			return err
		}
		c.directRx = c.rx.Direct() && st.A.Buf == schedule.NoBuf && st.B.Buf == schedule.NoBuf && st.Dst.Buf != schedule.NoBuf
	}
	c.tx, err = p.target(l.channel, st.Send, links)
	if err != nil {
		return err
	}
	if c.tx != nil {
		c.reducer, _ = c.tx.(transport.Reducer)
		c.directTx = c.tx.Direct()
		if transport.Leaves(c.tx) && !slices.Contains(p.pushed, c.tx) {
			p.pushed = append(p.pushed, c.tx)
		}
	}
	l.steps = append(l.steps, c)
	return nil
}

// target returns the connection on which a step sends, nil for none.
func (p *Plan) target(channel int, to int32, links Links) (transport.Tx, error) {
	switch to {
	case schedule.Nobody:
		return nil, nil
	case schedule.Everyone:
		return links.MultiTx(channel)
	case schedule.Network:
		r, _, err := links.Network()
		return r, err
	}
	return links.Tx(int(to), channel)
}
