package schedule

import "errors"

// Hierarchical: rings within the nodes, and rings between ranks of different nodes, so that as
// little data as possible goes between nodes, and every rank's network connection carries a part
// of it. The steps within and between nodes follow one another in a window; several channels
// overlap them.
//
// With nodes of equal size, local rank l of a node talks to the local ranks l of the others. In a
// node with fewer ranks than another one, each rank represents several of the other node's local
// ranks.

type hier struct {
	groups [][]int32
	group  []int // by rank
	local  []int // index in its group, by rank
}

func newHier(o Options) (hier, error) {
	if len(o.Groups) == 0 {
		return hier{}, errors.New("needs Options.Groups, which rank is in which node")
	}
	h := hier{group: make([]int, o.Ranks), local: make([]int, o.Ranks)}
	for i, g := range o.Groups {
		h.groups = append(h.groups, int32s(g))
		for l, r := range g {
			h.group[r], h.local[r] = i, l
		}
	}
	return h, nil
}

// at returns local rank l, modulo the size, of the k-th group after i.
func (h hier) at(i, k, l int) int32 {
	g := h.groups[mod(i+k, len(h.groups))]
	return g[l%len(g)]
}

// inside returns the ring within a rank's group.
func (h hier) inside(rank int, at func(segment int) Span) loop {
	i, l := h.group[rank], h.local[rank]
	g := len(h.groups[i])
	return loop{pos: l, n: g, prev: h.at(i, 0, l+g-1), next: h.at(i, 0, l+1), at: at}
}

// hierTree is the tree between nodes with a chain in each. Zero copy is safe.
func hierTree(s *Schedule, o Options) error {
	if _, err := newHier(o); err != nil {
		return err
	}
	return treeMaker(heapTree)(s, o)
}

// hierAllReduce: the vector has as many shares as the largest node has ranks, and each share has
// one block per node. Within each node a ring reduces and scatters the shares; for each share a
// ring of the ranks that have it reduces it between nodes; then the nodes gather. Zero copy is
// safe.
func hierAllReduce(s *Schedule, o Options) error {
	h, err := newHier(o)
	if err != nil {
		return err
	}
	nodes, shares := len(h.groups), 0
	for _, g := range h.groups {
		shares = max(shares, len(g))
	}
	s.Blocks = shares * nodes
	for _, g := range h.groups {
		if len(g) > 1 {
			s.MaxSpan = max(s.MaxSpan, (shares+len(g)-1)/len(g)*nodes)
		}
	}
	// Local rank l of g has the shares from ⌈l·shares/g⌉ on.
	first := func(l, g int) int { return (l*shares + g - 1) / g }
	owner := func(i, share int) int32 {
		i = mod(i, nodes)
		return h.groups[i][share*len(h.groups[i])/shares]
	}
	s.lanes(func(rank, _ int) ([][]Step, int) {
		i, l := h.group[rank], h.local[rank]
		g := len(h.groups[i])
		inside := h.inside(rank, func(seg int) Span {
			return Span{int32(first(seg, g) * nodes), int32((first(seg+1, g) - first(seg, g)) * nodes)}
		})
		segIn := func(seg int) Ref { return in(first(seg, g) * nodes) }
		segOut := func(seg int) Ref { return out(first(seg, g) * nodes) }
		steps := inside.reduceScatter(segIn, segOut(l))
		for share := first(l, g); share < first(l+1, g); share++ {
			ring := loop{pos: i, n: nodes, prev: owner(i-1, share), next: owner(i+1, share)}
			ring.at = func(j int) Span { return block(share*nodes + j) }
			dst := func(j int) Ref { return out(share*nodes + j) }
			src := dst
			if g == 1 {
				src = func(j int) Ref { return in(share*nodes + j) }
			}
			steps = append(steps, ring.allReduce(src, dst)...)
		}
		return [][]Step{append(steps, inside.allGather(segOut)...)}, 0
	})
	return nil
}

// batch returns segments for the ring within the rank's group, of g ranks: the blocks of the
// ranks of group j with indices t·g to t·g+g-1, each of them at a different local rank.
func (h hier) batch(rank, j, t int) (at func(segment int) Span) {
	here, there := len(h.groups[h.group[rank]]), h.groups[j]
	return func(e int) Span {
		if l := e + t*here; l < len(there) {
			return block(there[l])
		}
		return Span{}
	}
}

// batches calls f for all batches.
func (h hier) batches(rank int, f func(at func(segment int) Span)) {
	here := len(h.groups[h.group[rank]])
	for j, there := range h.groups {
		for t := 0; t*here < len(there); t++ {
			f(h.batch(rank, j, t))
		}
	}
}

// rails calls f for the rings between nodes that contain the rank. Rail v consists of local rank
// v, modulo the size, of every group, and passes on the blocks of the ranks with the local index
// v itself. The rails of a rank run one after the other: side by side they could fill each
// other's slots.
func (h hier) rails(rank int, f func(rail loop)) {
	i := h.group[rank]
	most := 0
	for _, g := range h.groups {
		most = max(most, len(g))
	}
	for v := h.local[rank]; v < most; v += len(h.groups[i]) {
		f(loop{
			pos: i, n: len(h.groups), prev: h.at(i, -1, v), next: h.at(i, 1, v),
			at: func(j int) Span {
				if v < len(h.groups[j]) {
					return block(h.groups[j][v])
				}
				return Span{}
			},
		})
	}
}

// hierAllGather: each block goes around a ring with one rank of every node,
// and then around within each node. Zero copy is safe.
func hierAllGather(s *Schedule, o Options) error {
	h, err := newHier(o)
	if err != nil {
		return err
	}
	s.lanes(func(rank, _ int) ([][]Step, int) {
		steps := []Step{do(block(rank)).load(in(0)).store(out(rank))}
		h.rails(rank, func(rail loop) {
			ring := rail.allGather(func(seg int) Ref { return out(rail.at(seg).First) })
			if len(ring) > 0 && len(steps) == 1 {
				steps[0].Send = ring[0].Send // the first rail starts with the own block
				ring = ring[1:]
			}
			steps = append(steps, ring...)
		})
		h.batches(rank, func(at func(int) Span) {
			steps = append(steps, h.inside(rank, at).allGather(func(seg int) Ref { return out(at(seg).First) })...)
		})
		return [][]Step{steps}, 0
	})
	return nil
}

// hierReduceScatter is hierAllGather the other way round. Zero copy is safe.
func hierReduceScatter(s *Schedule, o Options) error {
	h, err := newHier(o)
	if err != nil {
		return err
	}
	s.lanes(func(rank, _ int) ([][]Step, int) {
		i := h.group[rank]
		partial := make(map[int32]Ref) // partial results of the blocks that this rank passes on
		used := 0                      // blocks of scratch memory
		var steps []Step
		h.batches(rank, func(at func(int) Span) {
			b := at(h.local[rank])
			dst := scratch(used)
			switch {
			case len(h.groups[i]) == 1:
				dst = in(b.First)
			case len(h.groups) == 1:
				dst = out(0)
			case b.N > 0:
				used++
			}
			if b.N > 0 {
				partial[b.First] = dst
			}
			steps = append(steps, h.inside(rank, at).reduceScatter(func(seg int) Ref { return in(at(seg).First) }, dst)...)
		})
		h.rails(rank, func(rail loop) {
			steps = append(steps, rail.reduceScatter(func(seg int) Ref { return partial[rail.at(seg).First] }, out(0))...)
		})
		return [][]Step{steps}, used
	})
	return nil
}
