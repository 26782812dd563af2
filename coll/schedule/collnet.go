package schedule

import (
	"errors"
)

// CollNet: the network reduces. The first rank of each node (Options.Groups) is its head. Its
// node's data reaches the head over a chain, the head sends to Network, and what Network sends
// back goes along the chain again. Windows go up in one lane while earlier ones come down in
// another, so that several are in the network at once. There is one channel: a network reduces in
// few groups.
//
// A message to Network is a head's contribution. When the contributions of all heads have
// arrived, each head receives one message: for an AllReduce the reduction, for an AllGather the
// contributions in the order of the heads' ranks, for a ReduceScatter the head's part of the
// reduction, in that order.

// A nodeChain is a rank's place in the chain of its node.
type nodeChain struct {
	up   int32   // towards the head; Network for the head
	kids []int32 // away from it: one or none
	node []int32 // the ranks of the node, the head first
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

// collNet sets the programs from a function of a rank's place in its chain.
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

// Regular reports whether all groups have the same number of ranks, and consecutive ones that
// follow those of the group before. CollNet needs this for AllGather and ReduceScatter, so that a
// head's part is contiguous.
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

// collNetReduceScatter: each head receives its node's blocks and distributes them. Zero copy is
// safe.
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
