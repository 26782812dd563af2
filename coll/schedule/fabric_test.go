package schedule

import (
	"errors"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// A fabric is Network in the checker's machine. It has room for as many
// messages of a head as a connection has, from when one is sent until its
// result is taken.
type fabric struct {
	heads    []int32 // ranks that send, in their order
	up, down []*conn // by head
}

// newFabric finds the heads; nil if nobody sends to Network.
func (m *machine) newFabric() *fabric {
	f := &fabric{}
	for i := range m.lanes {
		l := &m.lanes[i]
		if !slices.Contains(f.heads, l.rank) && slices.ContainsFunc(l.steps, func(st Step) bool { return st.Send == Network }) {
			f.heads = append(f.heads, l.rank)
			f.up = append(f.up, m.find(nil, l.rank, Network))
			f.down = append(f.down, m.find(nil, Network, l.rank))
		}
	}
	if len(f.heads) == 0 {
		return nil
	}
	return f
}

// full reports whether a head's messages leave no room.
func (f *fabric) full(rank int32, slots int) bool {
	i := slices.Index(f.heads, rank)
	return slots >= 0 && f.up[i].queued()+f.down[i].queued() >= slots
}

// reduceInFabric makes results of what is there from all heads.
func (m *machine) reduceInFabric() error {
	f := m.fabric
	for !slices.ContainsFunc(f.up, func(c *conn) bool { return c.queued() == 0 }) {
		sum := &message{}
		for i, c := range f.up {
			if err := m.contribute(sum, c.head(Network), i); err != nil {
				return err
			}
		}
		for i, c := range f.down {
			f.up[i].take(Network)
			c.sender = f.up[i].sender
			d := m.resultOf(sum, i)
			msg := c.add(d, &lane{rounds: sum.rounds, time: sum.time, clock: sum.clock})
			first := 0
			if m.s.Collective == op.ReduceScatter {
				first = i * int(d.N)
			}
			copy(msg.values, sum.values[first:])
			if r := c.receivers[0]; r >= 0 {
				m.wake(r)
			}
		}
	}
	return nil
}

// contribute adds the i-th head's message.
func (m *machine) contribute(sum, msg *message, i int) error {
	switch {
	case i == 0:
		sum.data, sum.values, sum.clock = msg.data, slices.Clone(msg.values), slices.Clone(msg.clock)
	case msg.data.N != sum.data.N || m.s.Collective.Vector() && msg.data != sum.data:
		return errors.New("heads send different blocks to the network")
	case m.s.Collective == op.AllGather:
		sum.values = append(sum.values, msg.values...)
	default:
		for b := range sum.values {
			sum.values[b] = m.reduce(sum.values[b], msg.values[b])
		}
	}
	sum.rounds, sum.time = max(sum.rounds, msg.rounds), max(sum.time, msg.time)
	for k, n := range msg.clock {
		sum.clock[k] = max(sum.clock[k], n)
	}
	return nil
}

// resultOf is what the i-th head gets.
func (m *machine) resultOf(sum *message, i int) Span {
	n := len(m.fabric.heads)
	switch m.s.Collective {
	case op.AllGather:
		return Span{0, int32(len(sum.values))}
	case op.ReduceScatter:
		per := int32(len(sum.values) / n)
		return Span{int32(i) * per, per}
	}
	return sum.data
}
