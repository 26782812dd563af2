package topology

import "slices"

// A mesh holds the links between GPUs that no ring uses yet.
type mesh struct {
	n     int
	free  [][]int // links from i to j, one direction
	next  [][]int // for each GPU, all GPUs in the order in which they are tried
	steps int     // left for this search
}

// newMesh creates a mesh in which GPUs are tried in their own order.
func newMesh(links [][]int) *mesh {
	m := &mesh{n: len(links), steps: ringSteps}
	for _, row := range links {
		m.free, m.next = append(m.free, slices.Clone(row)), append(m.next, upTo(m.n))
	}
	return m
}

// upTo returns 0, 1, … n-1.
func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// rings returns as many rings as it finds, up to most. It first takes rings together with
// their reverse: the largest number that the links of the GPU with the fewest allow, then
// fewer. Then it takes single rings from the remaining links.
func (m *mesh) rings(most int) [][]int {
	if m.n == 2 {
		out := make([][]int, min(m.free[0][1], m.free[1][0], most))
		for i := range out {
			out[i] = []int{0, 1}
		}
		return out
	}
	var out [][]int
	for pairs := min(m.degree(), most) / 2; pairs > 0; pairs-- {
		m.steps = ringSteps
		if found := m.pairs(pairs, nil); found != nil {
			for _, r := range found {
				m.take(r, -1)
				back := slices.Clone(r)
				slices.Reverse(back[1:])
				out = append(out, r, back)
				m.take(back, -1)
			}
			break
		}
	}
	for len(out) < most {
		m.steps = ringSteps
		r := m.cycle(nil, anyRing)
		if r == nil {
			break
		}
		m.take(r, -1)
		out = append(out, r)
	}
	return out
}

func anyRing([]int) bool { return true }

// degree returns the number of links of the GPU that has the fewest.
func (m *mesh) degree() int {
	least := 1 << 30
	for _, row := range m.free {
		sum := 0
		for _, c := range row {
			sum += c
		}
		least = min(least, sum)
	}
	return least
}

// take adds d to the free links along a ring.
func (m *mesh) take(ring []int, d int) {
	for k, i := range ring {
		m.free[i][ring[(k+1)%len(ring)]] += d
	}
}

// pairs finds count rings that, with their reverses, share no link, in ascending order.
// It backtracks to an earlier ring when it finds no later one.
func (m *mesh) pairs(count int, after []int) [][]int {
	if count == 0 {
		return [][]int{}
	}
	var rest [][]int
	first := m.cycle(after, func(r []int) bool {
		if r[1] > r[len(r)-1] { // the reverse of a ring that was already tried
			return false
		}
		back := slices.Clone(r)
		slices.Reverse(back[1:])
		m.take(r, -1)
		m.take(back, -1)
		rest = m.pairs(count-1, r)
		m.take(r, 1)
		m.take(back, 1)
		return rest != nil
	})
	if first == nil {
		return nil
	}
	return append([][]int{first}, rest...)
}

// cycle finds a ring over free links that is not before floor and that accept accepts.
// accept owns the ring, and may search further.
func (m *mesh) cycle(floor []int, accept func([]int) bool) []int {
	return m.extend([]int{0}, make([]bool, m.n), len(floor) > 0, floor, accept)
}

// extend extends path by GPUs that are not in used. atFloor means that path is the
// beginning of floor, in a mesh that tries GPUs in their own order: then lower numbers
// would lead to rings before floor.
func (m *mesh) extend(path []int, used []bool, atFloor bool, floor []int, accept func([]int) bool) []int {
	if m.steps--; m.steps < 0 {
		return nil
	}
	at := path[len(path)-1]
	used[at] = true
	defer func() { used[at] = false }()
	if len(path) == m.n {
		if m.free[at][path[0]] > 0 {
			if ring := slices.Clone(path); accept(ring) {
				return ring
			}
		}
		return nil
	}
	first := 0
	if atFloor {
		first = floor[len(path)]
	}
	for k, next := range m.next[at][first:] {
		if m.free[at][next] <= 0 || used[next] {
			continue
		}
		if ring := m.extend(append(path, next), used, atFloor && k == 0, floor, accept); ring != nil {
			return ring
		}
	}
	return nil
}
