package schedule

import (
	"errors"
	"fmt"
)

// Packed spanning trees: where links are uneven, or too few for a ring over
// all ranks, several trees together use what bandwidth there is. Source: Wang,
// Venkataraman, Phanishayee, Thelin, Devanur, Stoica, "Blink: Fast and generic
// collectives for distributed ML", 2020.
//
// A tree is a channel, and channels carry equal shares, so a tree that is to
// carry more is there several times: the shares are multiples of 1/Channels.
// For the number of channels given, Broadcast and Reduce get trees whose most
// loaded link, relative to its capacity, is loaded as little as possible
// (Edmonds' theorem makes that exact); 0 asks for as many as reach the optimum
// of any number, or maxTrees. AllReduce goes up and down the same tree, and
// that packing is approximate.

const (
	maxTrees  = 64  // channels, where New chooses the number
	maxPacked = 256 // ranks: the search takes the third power of it
)

// capacities is the sum of the links from one rank to another.
type capacities [][]int

func newCapacities(n int) capacities {
	c := make(capacities, n)
	for i := range c {
		c[i] = make([]int, n)
	}
	return c
}

// links are the capacities of the options, divided by what they have in common.
func links(o Options) (capacities, error) {
	if o.Ranks > maxPacked {
		return nil, fmt.Errorf("%d ranks; the search for trees takes up to %d: pack within a node and use \"hierarchical\" between", o.Ranks, maxPacked)
	}
	if len(o.Links) == 0 {
		return nil, errors.New("needs Options.Links, the connections between ranks with their capacities")
	}
	c := newCapacities(o.Ranks)
	for _, l := range o.Links {
		c[l.From][l.To] += l.Capacity
	}
	common := 0
	c.each(func(u, v int) { common = gcd(common, c[u][v]) })
	c.each(func(u, v int) { c[u][v] /= common })
	return c, nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// each calls f for all links that there are.
func (c capacities) each(f func(u, v int)) {
	for u := range c {
		for v := range c[u] {
			if c[u][v] > 0 {
				f(u, v)
			}
		}
	}
}

// reversed has every link the other way round.
func (c capacities) reversed() capacities {
	r := newCapacities(len(c))
	c.each(func(u, v int) { r[v][u] = c[u][v] })
	return r
}

// packedBroadcast: trees from the root. Zero copy is safe.
func packedBroadcast(s *Schedule, o Options) error {
	c, err := links(o)
	if err != nil {
		return err
	}
	trees, err := packRooted(c, s.Root, o.Channels)
	if err != nil {
		return err
	}
	s.Channels = len(trees)
	s.trees(trees)
	return nil
}

// packedReduce: trees to the root, found as trees from it along the links
// reversed. Zero copy is safe.
func packedReduce(s *Schedule, o Options) error {
	c, err := links(o)
	if err != nil {
		return err
	}
	trees, err := packRooted(c.reversed(), s.Root, o.Channels)
	if err != nil {
		return fmt.Errorf("along the links reversed: %w", err)
	}
	s.Channels = len(trees)
	s.trees(trees)
	return nil
}

// packedAllReduce: trees that use links in both directions. Zero copy is safe.
func packedAllReduce(s *Schedule, o Options) error {
	c, err := links(o)
	if err != nil {
		return err
	}
	trees, err := packBothWays(c, o.Channels)
	if err != nil {
		return err
	}
	s.Channels = len(trees)
	s.trees(trees)
	return nil
}
