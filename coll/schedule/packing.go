package schedule

import (
	"cmp"
	"fmt"
	"slices"
)

// Packing of trees from one root. Edmonds ("Edge-disjoint branchings", 1973):
// there are k trees that together load no link beyond its capacity if and only
// if k units can flow from the root to every single other rank. Lovász' proof
// ("On two minimum cut theorems in graph theory", 1976) finds them: a tree
// grows by any link whose loss leaves a flow of k-1, and there always is one.

// flow is how much can flow from root to another rank, counted up to limit.
// It is Edmonds and Karp's algorithm; residual is overwritten.
func (c capacities) flow(root, to, limit int, residual capacities) int {
	for u := range c {
		copy(residual[u], c[u])
	}
	from := make([]int, len(c))
	queue := make([]int, 0, len(c))
	total := 0
	for total < limit {
		for i := range from {
			from[i] = -1
		}
		from[root] = root
		queue = append(queue[:0], root)
		for len(queue) > 0 && from[to] < 0 {
			u := queue[0]
			queue = queue[1:]
			for v, room := range residual[u] {
				if room > 0 && from[v] < 0 {
					from[v] = u
					queue = append(queue, v)
				}
			}
		}
		if from[to] < 0 {
			break
		}
		amount := limit - total
		for v := to; v != root; v = from[v] {
			amount = min(amount, residual[from[v]][v])
		}
		for v := to; v != root; v = from[v] {
			residual[from[v]][v] -= amount
			residual[v][from[v]] += amount
		}
		total += amount
	}
	return total
}

// connectivity is the least flow from root to any rank, and to which; counted
// up to limit.
func (c capacities) connectivity(root, limit int) (least, to int) {
	residual := newCapacities(len(c))
	least = limit
	for v := range c {
		if v == root || least == 0 {
			continue
		}
		if f := c.flow(root, v, least, residual); f < least {
			least, to = f, v
		}
	}
	return least, to
}

// A ratio is a fraction, compared exactly.
type ratio struct{ num, den int }

func (a ratio) cmp(b ratio) int { return cmp.Compare(a.num*b.den, b.num*a.den) }

// scaled are the capacities times r, rounded down, up to limit.
func (c capacities) scaled(r ratio, limit int) capacities {
	s := newCapacities(len(c))
	c.each(func(u, v int) { s[u][v] = min(limit, c[u][v]*r.num/r.den) })
	return s
}

// packRooted returns k trees from root such that the most loaded link, relative
// to its capacity, is loaded as little as possible. k 0 is as many as flow.
func packRooted(c capacities, root, k int) ([]tree, error) {
	const large = 1 << 30
	most, to := c.connectivity(root, large)
	if most == 0 {
		return nil, fmt.Errorf("no links lead from root %d to rank %d", root, to)
	}
	if k == 0 {
		k = min(most, maxTrees)
	}
	// k trees load a link of capacity c at most t·c times, where k units flow
	// through the capacities t·c rounded down. The least such t is one at which
	// some of them changes.
	var steps []ratio
	seen := make(map[int]bool)
	c.each(func(u, v int) {
		if !seen[c[u][v]] {
			seen[c[u][v]] = true
			for i := 1; i <= k; i++ {
				steps = append(steps, ratio{i, c[u][v]})
			}
		}
	})
	slices.SortFunc(steps, ratio.cmp)
	i, _ := slices.BinarySearchFunc(steps, k, func(t ratio, k int) int {
		if f, _ := c.scaled(t, k).connectivity(root, k); f < k {
			return -1
		}
		return 1
	})
	return rootedTrees(c.scaled(steps[i], k), root, k), nil
}

// rootedTrees takes k trees out of c, through which k units flow to everybody.
func rootedTrees(c capacities, root, k int) []tree {
	residual := newCapacities(len(c))
	var trees []tree
	for left := k - 1; left >= 0; left-- {
		t := newTree(len(c))
		order := []int{root} // the tree's ranks, those near the root first
		for len(order) < len(c) {
			u, v := c.safeLink(root, order, t, left, residual)
			c[u][v]--
			t.add(u, v)
			order = append(order, v)
		}
		trees = append(trees, t)
	}
	return trees
}

// safeLink is a link out of the tree without a unit of which left more trees
// can still be found. Only flows to its end can suffer: a cut that it crosses
// parts the root from there.
func (c capacities) safeLink(root int, order []int, t tree, left int, residual capacities) (from, to int) {
	for _, u := range order {
		for v := range c {
			if c[u][v] == 0 || v == root || t.parent[v] != Nobody {
				continue
			}
			c[u][v]--
			f := c.flow(root, v, left, residual)
			c[u][v]++
			if f >= left {
				return u, v
			}
		}
	}
	panic("schedule: no link can be added to a tree, against Lovász' theorem")
}

// worthwhile: more trees must make a link's load less by one part in this many.
const worthwhile = 33

// packBothWays returns k trees for data that go up and down each: a tree loads
// both directions of its links. Trees are taken one after the other, each a
// spanning tree of the links that would then be loaded least for their
// capacity. For k 0 it is the number up to maxTrees that uses links best.
func packBothWays(c capacities, k int) ([]tree, error) {
	n := len(c)
	load := newCapacities(n)
	tries := k
	if k == 0 {
		tries = maxTrees
	}
	var trees []tree
	var best ratio // most load for capacity, for each tree
	keep := 0
	worst := ratio{0, 1}
	for i := range tries {
		t, err := lightestTree(c, load)
		if err != nil {
			return nil, err
		}
		trees = append(trees, t)
		for v, p := range t.parent {
			if p == Nobody {
				continue
			}
			a, b := min(v, int(p)), max(v, int(p))
			load[a][b]++
			if now := (ratio{load[a][b], min(c[a][b], c[b][a])}); now.cmp(worst) > 0 {
				worst = now
			}
		}
		each := ratio{worst.num, worst.den * (i + 1)}
		if k > 0 || keep == 0 || each.num*best.den*worthwhile < best.num*each.den*(worthwhile-1) {
			best, keep = each, i+1
		}
	}
	return trees[:keep], nil
}

// lightestTree is a minimum spanning tree by Prim's algorithm, where a link
// weighs what its load would be for its capacity. It is then hung up at its
// middle, so that it is no deeper than need be.
func lightestTree(c, load capacities) (tree, error) {
	n := len(c)
	weight := func(u, v int) (ratio, bool) {
		room := min(c[u][v], c[v][u])
		return ratio{load[min(u, v)][max(u, v)] + 1, room}, room > 0
	}
	near := slices.Repeat([]int{-1}, n) // the tree's rank that is nearest; -1: none, or in the tree
	inside := make([]bool, n)
	edges := make([][]int, n)
	for u, done := 0, 1; ; done++ {
		inside[u] = true
		if done == n {
			break
		}
		next := -1
		for v := range n {
			if inside[v] {
				continue
			}
			if w, ok := weight(u, v); ok && (near[v] < 0 || lighter(w, near[v], v, weight)) {
				near[v] = u
			}
			if near[v] < 0 {
				continue
			}
			if w, _ := weight(near[v], v); next < 0 || lighter(w, near[next], next, weight) {
				next = v
			}
		}
		if next < 0 {
			return tree{}, fmt.Errorf("no links in both directions lead from rank 0 to rank %d", slices.Index(inside, false))
		}
		edges[near[next]] = append(edges[near[next]], next)
		edges[next] = append(edges[next], near[next])
		u = next
	}
	return hang(edges), nil
}

// lighter reports whether w is less than the weight of the link u–v.
func lighter(w ratio, u, v int, weight func(u, v int) (ratio, bool)) bool {
	x, _ := weight(u, v)
	return w.cmp(x) < 0
}

// hang makes the middle of a tree's longest path its root.
func hang(edges [][]int) tree {
	walk := func(root int) (order, parent []int) {
		parent = slices.Repeat([]int{-1}, len(edges))
		parent[root] = root
		order = []int{root}
		for i := 0; i < len(order); i++ {
			for _, v := range edges[order[i]] {
				if parent[v] < 0 {
					parent[v] = order[i]
					order = append(order, v)
				}
			}
		}
		return order, parent
	}
	order, _ := walk(0)
	end := order[len(order)-1]
	order, parent := walk(end)
	path := []int{order[len(order)-1]}
	for path[len(path)-1] != end {
		path = append(path, parent[path[len(path)-1]])
	}
	order, parent = walk(path[len(path)/2])
	t := newTree(len(edges))
	for _, v := range order[1:] {
		t.add(parent[v], v)
	}
	return t
}
