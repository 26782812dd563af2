package schedule

import (
	"errors"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// CollNet: the network reduces. Of each node (Options.Groups) the first rank is
// the head. Its node's data come to it over a chain, it sends to Network, and
// what comes from Network goes along the chain again. Windows go up in one lane
// while earlier ones come down in another, so that several are in the network
// at once. There is one channel: a network reduces in few groups.
//
// A message to Network is a head's contribution; when those of all heads are
// there, each gets one message: of an AllReduce the reduction, of an AllGather
// the contributions one after the other in the order of the heads' ranks, of a
// ReduceScatter its part of the reduction, in that order.

// A nodeChain is what a rank has of its node's chain.
type nodeChain struct {
	up   int32   // towards the head; Network for the head
	kids []int32 // away from it: one or none
	node []int32 // the head first
	head bool
}

func (h hier) chain(rank int) nodeChain {
	g, l := h.groups[h.group[rank]], h.local[rank]
	c := nodeChain{up: Network, node: g, head: l == 0}
	if l > 0 {
		c.up = g[l-1]
	}
	if l+1 < len(g) {
		c.kids = g[l+1 : l+2]
	}
	return c
}

// collNet sets the programs to those of a function of a rank's place.
func (s *Schedule) collNet(h hier, f func(rank int, c nodeChain) (up, down []Step, scratch int)) {
	s.Channels = 1
	s.lanes(func(rank, _ int) ([][]Step, int) {
		up, down, scratch := f(rank, h.chain(rank))
		return [][]Step{up, down}, scratch
	})
}

// collNetAllReduce: zero copy is safe.
func collNetAllReduce(s *Schedule, o Options) error {
	h, err := newHier(o)
	if err != nil {
		return err
	}
	s.Blocks = 1
	s.collNet(h, func(_ int, c nodeChain) (up, down []Step, scratch int) {
		return reduceUp(c.up, c.kids, out(0)), broadcastDown(c.up, c.kids), 0
	})
	return nil
}

// Regular reports whether groups have equally many ranks, each the ones after
// those of the group before: what CollNet wants for AllGather and
// ReduceScatter, where a head's part lies in one piece.
func Regular(groups [][]int) bool {
	next := 0
	for _, g := range groups {
		if len(g) != len(groups[0]) {
			return false
		}
		for _, r := range g {
			if r != next {
				return false
			}
			next++
		}
	}
	return len(groups) > 0
}

var errIrregular = errors.New("needs Options.Groups of one size, of consecutive ranks")

// collNetAllGather: each head collects its node's blocks. Zero copy is safe.
func collNetAllGather(s *Schedule, o Options) error {
	if !Regular(o.Groups) {
		return errIrregular
	}
	h, err := newHier(o)
	if err != nil {
		return err
	}
	s.MaxSpan = s.Ranks
	all := Span{0, int32(s.Ranks)}
	s.collNet(h, func(rank int, c nodeChain) (up, down []Step, scratch int) {
		own := do(block(rank)).load(in(0))
		switch {
		case !c.head:
			up = []Step{own.send(c.node[0])}
		case len(c.node) == 1:
			up = []Step{own.send(Network)}
		default:
			up = []Step{own.store(out(rank))}
			for _, r := range c.node[1:] {
				up = append(up, do(block(r)).recv(r).store(out(r)))
			}
			up = append(up, do(Span{c.node[0], int32(len(c.node))}).load(out(rank)).send(Network))
		}
		last := do(all).recv(c.up).store(out(0))
		if len(c.kids) > 0 {
			last = last.send(c.kids[0])
		}
		return up, []Step{last}, 0
	})
	return nil
}

// collNetReduceScatter: each head gets its node's blocks and hands them out.
// Zero copy is safe.
func collNetReduceScatter(s *Schedule, o Options) error {
	if !Regular(o.Groups) {
		return errIrregular
	}
	h, err := newHier(o)
	if err != nil {
		return err
	}
	s.MaxSpan = s.Ranks
	all := Span{0, int32(s.Ranks)}
	s.collNet(h, func(rank int, c nodeChain) (up, down []Step, scratchBlocks int) {
		first := do(all).load(in(0)).send(c.up)
		if len(c.kids) > 0 {
			first = first.recv(c.kids[0])
		}
		up = []Step{first}
		mine := do(block(rank)).store(out(0))
		switch {
		case !c.head:
			return up, []Step{mine.recv(c.node[0])}, 0
		case len(c.node) == 1:
			return up, []Step{mine.recv(Network)}, 0
		}
		n := len(c.node)
		down = []Step{do(Span{c.node[0], int32(n)}).recv(Network).store(scratch(0)), mine.load(scratch(0))}
		for i, r := range c.node[1:] {
			down = append(down, do(block(r)).load(scratch(i+1)).send(r))
		}
		return up, down, n
	})
	return nil
}

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
