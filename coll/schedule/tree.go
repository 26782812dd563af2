package schedule

import (
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// Trees: data goes up and down along the edges. With a parent and at most two children the
// latency grows with the logarithm of the number of ranks, at half the bandwidth of a ring. Two
// trees that each carry half the data, with the leaves of one being inner nodes of the other,
// reach the full bandwidth: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth
// broadcast, reduction and scan", 2009.

// A tree says how data moves: for each rank its parent, Nobody for the root, and its children in
// the order in which they are served.
type tree struct {
	parent   []int32
	children [][]int32
}

func newTree(n int) tree {
	return tree{parent: slices.Repeat([]int32{Nobody}, n), children: make([][]int32, n)}
}

// add makes child a child of parent.
func (t tree) add(parent, child int) {
	t.parent[child] = int32(parent)
	t.children[parent] = append(t.children[parent], int32(child))
}

// A shape returns the parent of node v > 0 in a tree of m nodes with root 0.
type shape func(v, m int) int

// heapTree is the balanced binary tree in the order of a heap.
func heapTree(v, _ int) int { return (v - 1) / 2 }

// inOrder is the binary tree with nodes 1, 2, … numbered from left to right, under a root with
// one child. Odd nodes are leaves: a node's height is the position of its lowest set bit.
func inOrder(v, m int) int {
	low := v & -v
	if up := v&^low | low<<1; up < m {
		return up
	}
	return v &^ low
}

// inOrderTwin is a tree like inOrder in which the even nodes are the leaves, and also node m-1 if
// m is even. It mirrors nodes 1 … m-1 if m is odd, and shifts them by one otherwise.
func inOrderTwin(v, m int) int {
	to := func(v int) int { return m - v }
	from := to
	if m%2 == 0 {
		to = func(v int) int { return v%(m-1) + 1 }
		from = func(v int) int { return mod(v-2, m-1) + 1 }
	}
	if up := inOrder(to(v), m); up > 0 {
		return from(up)
	}
	return 0
}

// grow builds a tree of a shape over the nodes (Options.Groups, else each rank is a node), with a
// chain from each node's leader to its other ranks. In the root's node the leader is the root; in
// other nodes it changes with the channel, so that every rank's links to other nodes are used.
func grow(o Options, root, channel int, parent shape) tree {
	nodes := o.Groups
	if nodes == nil {
		nodes = make([][]int, o.Ranks)
		for i := range nodes {
			nodes[i] = []int{i}
		}
	}
	first, lead := 0, 0
	for i, g := range nodes {
		for j, r := range g {
			if r == root {
				first, lead = i, j
			}
		}
	}
	leader := func(v int) (rank, local int, node []int) {
		g := nodes[mod(first+v, len(nodes))]
		local = channel % len(g)
		if v == 0 {
			local = lead
		}
		return g[local], local, g
	}
	t := newTree(o.Ranks)
	for v := 1; v < len(nodes); v++ {
		up, _, _ := leader(parent(v, len(nodes)))
		down, _, _ := leader(v)
		t.add(up, down)
	}
	for v := range nodes {
		_, local, g := leader(v)
		for k := 1; k < len(g); k++ {
			t.add(g[(local+k-1)%len(g)], g[(local+k)%len(g)])
		}
	}
	return t
}

// treeMaker returns the maker of a tree schedule for AllReduce, Broadcast or Reduce. Zero copy is
// safe.
func treeMaker(parent shape) maker {
	return func(s *Schedule, o Options) error {
		trees := make([]tree, s.Channels)
		for c := range trees {
			trees[c] = grow(o, s.Root, c, parent)
		}
		s.trees(trees)
		return nil
	}
}

// doubleTree uses two channels for each one requested. Zero copy is safe.
func doubleTree(s *Schedule, o Options) error {
	s.Channels *= 2
	trees := make([]tree, s.Channels)
	for c := range trees {
		parent := inOrder
		if c%2 == 1 {
			parent = inOrderTwin
		}
		trees[c] = grow(o, s.Root, c, parent)
	}
	s.trees(trees)
	return nil
}

// trees sets the programs, with one tree per channel.
func (s *Schedule) trees(trees []tree) {
	s.Blocks = 1
	s.lanes(func(rank, channel int) ([][]Step, int) {
		t := trees[channel]
		up, kids := t.parent[rank], t.children[rank]
		switch s.Collective {
		case op.Broadcast:
			return [][]Step{broadcastDown(up, kids)}, 0
		case op.Reduce:
			if up == Nobody {
				return [][]Step{reduceUp(up, kids, out(0))}, 0
			}
			return [][]Step{reduceUp(up, kids, scratch(0))}, min(1, max(0, len(kids)-1))
		}
		if up != Nobody {
			// Two lanes: windows go up while earlier ones come down.
			return [][]Step{reduceUp(up, kids, out(0)), broadcastDown(up, kids)}, 0
		}
		// At the root the step that completes the reduction starts the broadcast.
		steps := reduceUp(up, kids, out(0))
		steps[len(steps)-1].Send = kids[0]
		return [][]Step{append(steps, toKids(kids[1:])...)}, 0
	})
}

// reduceUp reduces this rank's input and what the children send, with the partial result in acc,
// and sends the result to the parent. At the root the result stays in acc.
func reduceUp(up int32, kids []int32, acc Ref) []Step {
	var steps []Step
	from := in(0)
	for _, kid := range kids {
		steps = append(steps, do(block(0)).load(from).recv(kid).store(acc))
		from = acc
	}
	if up == Nobody {
		return steps
	}
	if len(steps) == 0 {
		return []Step{do(block(0)).load(in(0)).send(up)}
	}
	last := &steps[len(steps)-1]
	last.Dst, last.Send = Ref{}, up
	return steps
}

// broadcastDown sends what the parent sends, or at the root its own input, to the children.
func broadcastDown(up int32, kids []int32) []Step {
	step := do(block(0)).store(out(0))
	if up == Nobody {
		step = step.load(in(0))
	} else {
		step = step.recv(up)
	}
	if len(kids) == 0 {
		return []Step{step}
	}
	return append([]Step{step.send(kids[0])}, toKids(kids[1:])...)
}

func toKids(kids []int32) []Step {
	var steps []Step
	for _, kid := range kids {
		steps = append(steps, do(block(0)).load(out(0)).send(kid))
	}
	return steps
}
