package predict

import (
	"math"
	"math/bits"
	"time"
)

// A Switch is a fabric that reduces and multicasts by itself (NVLink SHARP,
// which NCCL calls NVLS), within each domain of a Topology.
type Switch struct {
	Rate   BytesPerSec // of a rank's data through the switch, in each of the two phases
	Window int64       // bytes of the vector that all ranks of a domain together have in flight
}

// inSwitch simulates an AllReduce where each domain's switch reduces (first phase: every
// rank's data leaves through its port), a tree between the domains combines, and the switch
// distributes the result (second phase: the data enters through every port). The phases use
// opposite directions of the same ports, so one window's second phase overlaps with the next
// one's first. Between more than one domain it is NCCL's NVLSTree: two trees, each with half
// of the data, in each of which the data goes up and comes down.
func inSwitch(t Topology, sw Switch, bytes int64) (time.Duration, error) {
	if err := t.validate(); err != nil {
		return 0, err
	}
	m := newMachine(ncclSteps)
	if n := t.domains(); n == 1 {
		token := m.conn()
		m.lane([]task{{recv: -1, sends: []int32{token}, links: []int32{m.link(sw.Rate)}, blocks: 1}})
		m.lane([]task{{recv: token, links: []int32{m.link(sw.Rate)}, blocks: 1}})
	} else {
		m.betweenSwitches(t, sw, n)
	}
	end, err := m.windows(float64(bytes), float64(sw.Window), true)
	return seconds(end), err
}

// betweenSwitches creates the lanes of n domains: one for each phase, and in each tree one
// that reduces upwards and one that brings the result down.
func (m *simulation) betweenSwitches(t Topology, sw Switch, n int) {
	up, down := make([]int32, n), make([]int32, n)
	for d := range n {
		up[d], down[d] = m.link(t.Uplink), m.link(t.Uplink)
	}
	first, second := make([]task, n), make([][]task, n)
	for d := range n {
		first[d] = task{recv: -1, links: []int32{m.link(sw.Rate)}, blocks: 1}
	}
	for tree := range 2 {
		rising, falling := m.conns2(n), m.conns2(n) // between a domain and its parent
		for d := range n {
			reduced, result := m.conn(), m.conn()
			first[d].sends = append(first[d].sends, reduced)
			second[d] = append(second[d], task{recv: result})
			m.treeLanes(treeNode{
				tree: doubleTree(n, tree), d: d, up: up, down: down, rising: rising, falling: falling,
				in: reduced, out: result, latency: t.UplinkLatency.Seconds(),
			})
		}
	}
	for d := range n {
		m.lane([]task{first[d]})
		last := &second[d][len(second[d])-1]
		last.links, last.blocks = []int32{m.link(sw.Rate)}, 1
		m.lane(second[d])
	}
}

func (m *simulation) conns2(n int) []int32 {
	c := make([]int32, n)
	for i := range c {
		c[i] = m.conn()
	}
	return c
}

// A treeNode is a domain's place in one of the trees.
type treeNode struct {
	tree            []int // parent by domain, -1 for the root
	d               int
	up, down        []int32 // uplinks by domain
	rising, falling []int32 // connections to and from the parent, by domain
	in, out         int32   // connections from the first phase, to the second
	latency         float64
}

func (m *simulation) treeLanes(p treeNode) {
	const half = 0.5 // of a window goes through each tree
	rise := []task{{recv: p.in}}
	var fall []task
	for child, parent := range p.tree {
		if parent == p.d {
			rise = append(rise, task{recv: p.rising[child]})
			fall = append(fall, task{
				recv: -1, sends: []int32{p.falling[child]}, links: []int32{p.up[p.d], p.down[child]}, blocks: half, latency: p.latency,
			})
		}
	}
	last := &rise[len(rise)-1]
	if parent := p.tree[p.d]; parent >= 0 {
		last.sends, last.links = []int32{p.rising[p.d]}, []int32{p.up[p.d], p.down[parent]}
		last.blocks, last.latency = half, p.latency
		fall = append([]task{{recv: p.falling[p.d], sends: []int32{p.out}}}, fall...)
	} else {
		turn := m.conn() // the root sends the result down again
		last.sends = []int32{turn}
		fall = append([]task{{recv: turn, sends: []int32{p.out}}}, fall...)
	}
	m.lane(rise)
	m.lane(fall)
}

// doubleTree returns the parents in one of two binary trees of n nodes: the inner nodes of one
// are leaves in the other, so that each node sends and receives about as much (Sanders, Speck
// and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009).
// The second is the first one's mirror image for even n, and shifted by one for odd n, as in
// NCCL.
func doubleTree(n, tree int) []int {
	parent := make([]int, n)
	name := func(i int) int {
		switch {
		case tree == 0 || i < 0:
			return i
		case n%2 == 0:
			return n - 1 - i
		}
		return (i + 1) % n
	}
	for i := range n {
		up := -1
		if i > 0 {
			bit := 1 << bits.TrailingZeros(uint(i))
			if up = i&^bit | bit<<1; up >= n {
				up = i &^ bit
			}
		}
		parent[name(i)] = name(up)
	}
	return parent
}

// log2 is the depth of a balanced binary tree of n nodes.
func log2(n int) float64 { return math.Ceil(math.Log2(float64(n))) }
