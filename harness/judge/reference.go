package judge

import (
	"fmt"
	"math"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// A Reference is what a collective should reach on a machine at large sizes, and what follows for each size.
type Reference struct {
	Low     float64  `json:"low"` // busbw at large sizes, GB/s
	Typical float64  `json:"typical"`
	High    float64  `json:"high"` // more is impossible
	Path    string   `json:"path"` // what limits it
	Others  []string `json:"others,omitempty"`
	Sources []string `json:"sources"`

	factor  float64 // busbw over algbw
	between bool    // data crosses NICs
	wire    float64 // GB/s of a node's NICs
	ring    float64 // typical of a ring, where something faster is expected; 0: as typical
	tcp     bool
	efa     bool
	tree    bool // busbw above the wire is possible: a tree of two nodes
	shared  bool // several GPUs share a NIC: whether they reach it directly decides
	steps   float64
	group   int     // GPUs that one process launches
	uses    float64 // GPUs of a node that take part
}

// share is what remains of a NIC's rate for data, by kind: low, typical, high.
var shares = []struct {
	kind string
	span
}{
	{"InfiniBand", span{0.87, 0.965, 0.99}},
	{"RoCE", span{0.85, 0.95, 0.985}},
	{"EFA", span{0.70, 0.90, 0.985}},
	{"TCPXO", span{0.85, 0.94, 0.985}},
	{"TCPX", span{0.60, 0.85, 0.985}},
	{"Slingshot", span{0.70, 0.88, 0.97}},
	{"TCP", span{0.60, 0.75, 0.985}},
	{"Ethernet", span{0.60, 0.90, 0.985}},
	{"", span{0.80, 0.95, 0.99}},
}

// slotShare is what a slot carries of its rate when a NIC reads and writes GPU memory through it.
const slotShare = 0.9

// unlimited is a part of a path that limits nothing.
var unlimited = span{math.Inf(1), math.Inf(1), math.Inf(1)}

func shareOf(kind string) span {
	for _, s := range shares {
		if strings.HasPrefix(strings.ToLower(kind), strings.ToLower(s.kind)) {
			return s.span
		}
	}
	return span{}
}

// busFactor is what busbw is of algbw, by nccl-tests' definitions.
func busFactor(collective string, ranks int) float64 {
	n := float64(max(ranks, 1))
	switch collective {
	case "all_reduce":
		return 2 * (n - 1) / n
	case "all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter":
		return (n - 1) / n
	}
	return 1
}

// expect returns what a table's collective should reach on a machine. If something that decides it is not known, missing
// says what.
func expect(t *Table, m *Machine) (r *Reference, missing []string) {
	if m == nil || m.gpu == nil && m.wire() == 0 {
		return nil, []string{"the GPU's model"}
	}
	r = &Reference{factor: busFactor(t.Collective, t.Ranks), group: max(t.PerProcess, 1), tcp: m.Kind == "TCP", efa: strings.HasPrefix(m.Kind, "EFA")}
	nodes, perNode := t.Nodes, m.PerNode
	if t.Nodes > 0 && t.Ranks > 0 {
		perNode = (t.Ranks + t.Nodes - 1) / t.Nodes
	} else if t.Nodes == 0 && t.Ranks > 0 && perNode > 0 {
		nodes = (t.Ranks + perNode - 1) / perNode
	}
	if m.gpu != nil && m.gpu.Domain > 0 && !m.apart && t.Ranks > 0 && t.Ranks <= m.gpu.Domain {
		nodes, perNode = 1, t.Ranks // one NVLink fabric
	}
	if nodes == 0 || t.Ranks == 0 {
		return nil, []string{"how many ranks there are, and on how many nodes: the lines \"Rank ... on HOST device\" above the table"}
	}
	r.uses, r.steps = float64(perNode), float64(nodes)
	var local span
	if m.gpu != nil {
		local = r.inside(t, m.gpu, perNode, nodes)
		each := 25.0 // GB/s of an NVLink
		if m.gpu.Uni >= 900 {
			each = 50
		}
		if all := m.gpu.Uni / each; m.links > 0 && all > 0 && float64(m.links) < all { // GPUs without a switch between them
			local = local.times(float64(m.links) / all)
			local.low *= 0.85
			r.ring = 0
			r.Path = fmt.Sprintf("%d NVLinks of %g GB/s a direction", m.links, each)
			r.Others = nil
		}
		if m.gpu.Slots && perNode == 2 && m.gpu.Pair.high > 0 && bridged.MatchString(strings.ToLower(m.text)) && t.Collective != "alltoall" {
			local = m.gpu.Pair
			r.Path, r.Others = "an NVLink bridge between the two GPUs", []string{fmt.Sprintf("half of it where half of the bridges or links are in use (nvidia-smi nvlink -s), %.0f at most by PCIe", m.gpu.PCIe*0.9)}
		}
	}
	if nodes == 1 {
		if m.gpu == nil {
			return nil, []string{"the GPU's model"}
		}
		r.set(local)
		return r, nil
	}
	if m.wire() == 0 {
		return nil, []string{"the NICs of a node: how many, and their rate"}
	}
	r.across(t, m, local, nodes, perNode)
	return r, nil
}

func (r *Reference) set(s span) { r.Low, r.Typical, r.High = s.low, s.typical, s.high }

// inside returns what a collective reaches among n GPUs of a node.
func (r *Reference) inside(t *Table, g *gpu, n, nodes int) span {
	r.Sources = append(r.Sources, g.Name+": "+g.Source)
	r.Path = g.Link
	if g.Uni > 0 {
		r.Path += fmt.Sprintf(", %g GB/s a direction", g.Uni)
	}
	if n == 1 { // only between nodes
		return unlimited
	}
	if g.Slots {
		return r.slots(t, g, n)
	}
	ring := g.Ring
	if n == 2 { // a pair fills its links later
		ring.low *= 0.92
	}
	if (t.noSwitch || strings.EqualFold(t.algorithm, "ring")) && t.Collective == "all_reduce" {
		r.Path += ", as a ring"
		return span{ring.low, ring.typical, math.Max(ring.high, g.Switch.low)}
	}
	switch t.Collective {
	case "all_reduce":
		if g.AMD && n < g.GPUs { // every pair has a link of its own: fewer GPUs have fewer
			ring = ring.times(float64(n-1) / float64(g.GPUs-1))
			return span{ring.low * 0.9, ring.typical, ring.high * 1.1}
		}
		if g.Switch.low == 0 || g.AMD {
			return ring
		}
		full := g.GPUs
		if g.Domain > 0 {
			full = 8
		}
		if n <= 4 || n < full && n <= full/2 {
			if nodes == 1 {
				r.Others = append(r.Others, fmt.Sprintf("with %d of %d GPUs the reduction in the switch (NVLS) gains nothing over a ring: %.0f; all %d reach %.0f", n, full, ring.typical, full, g.Switch.typical))
			}
			return span{ring.low, ring.typical, math.Max(ring.high, g.Switch.low)}
		}
		s := g.Switch
		if n < full {
			s = s.times(busFactor("all_reduce", n) / busFactor("all_reduce", full))
			s.low *= 0.92
		}
		r.ring = ring.typical
		r.Path += ", reduction in the switch (NVLS)"
		r.Others = append(r.Others, fmt.Sprintf("as a ring %.0f (NVLS switched off, or not available)", ring.typical))
		return s
	case "all_gather", "reduce_scatter", "broadcast", "reduce":
		return span{ring.low * 0.85, ring.typical * 0.98, math.Max(ring.high, math.Max(g.Switch.high, g.Uni*1.02))}
	}
	s := span{ring.low * 0.75, ring.typical * 0.95, math.Max(ring.high, g.Uni*0.97)}
	if g.Mesh {
		s.low *= 0.25
	}
	return s
}

// slots returns what GPUs without NVLink reach: by peer access over PCIe at best, through host memory at worst.
func (r *Reference) slots(t *Table, g *gpu, n int) span {
	s := span{g.PCIe * 0.30, g.PCIe * 0.62, g.PCIe * 0.90}
	if g.ThroughHost { // a patched driver has peer access
		s = span{g.PCIe * 0.10, g.PCIe * 0.25, g.PCIe * 0.90}
	}
	if n == 2 && g.Pair.high > 0 {
		s.high = g.Pair.high
		r.Others = append(r.Others, fmt.Sprintf("a pair that an NVLink bridge joins reaches %.0f to %.0f", g.Pair.low, g.Pair.high))
	}
	if t.Collective == "alltoall" {
		s.low *= 0.6
	}
	return s
}

// across sets what a collective reaches over the NICs of several nodes. local is what it reaches in one.
func (r *Reference) across(t *Table, m *Machine, local span, nodes, perNode int) {
	r.between, r.wire = true, m.wire()
	fed := ""
	if m.gpu != nil && m.gpu.PCIe > 0 && !m.gpu.AMD { // all that a GPU sends passes its slot, if no other GPU forwards it
		if slots := float64(perNode) * m.gpu.PCIe * slotShare; slots < r.wire {
			r.wire = slots
			fed = fmt.Sprintf("%s of %s a node cannot feed %s: PCIe carries %s GB/s", words.Count(perNode, "GPU"), m.gpu.Name, m.nics(), figure(slots))
		}
	}
	kind := shareOf(m.Kind)
	if m.gpu != nil && m.gpu.Port > 0 && m.Gbit > m.gpu.Port*2 {
		kind.low = 0.7
	}
	if fed != "" {
		kind.low *= 0.85
	}
	wire := kind.times(r.wire)
	if m.gpu != nil && m.gpu.GPUs == 1 {
		wire.low, wire.typical = wire.low*0.84, wire.typical*0.88
	}
	r.Sources = append(r.Sources, "NICs: "+m.nics()+" = "+figure(r.wire)+" GB/s ("+m.From+")")
	r.shared = m.NICs*4 <= perNode && !r.tcp
	in := local
	r.Others = nil
	if fed != "" {
		r.Others = append(r.Others, fed)
	}
	if m.gpu == nil || m.gpu.AMD { // between nodes AMD's links in a node are no limit: more of them are used
		in = unlimited
	}
	ring := span{min(wire.low, in.low), min(wire.typical, in.typical), min(wire.high, in.high)}
	if r.ring > 0 { // the links in a node carry more than a ring alone makes of them
		ring.typical = wire.typical
	}
	switch t.Collective {
	case "all_reduce":
		r.Path = "NICs, " + m.nics()
		if nodes == 2 {
			r.twoNodes(t, m, ring, wire, in)
			return
		}
		r.set(ring)
		r.ring = 0
		// A tree's inner nodes send to two: it reaches no more than the wire, except with few nodes and NVLS.
		r.High = min(in.high, wire.high*1.05)
	case "all_gather", "reduce_scatter":
		r.Path = "NICs, " + m.nics()
		r.set(ring)
		if m.gpu == nil || m.gpu.GPUs > 1 {
			return
		}
		r.Low = min(r.Low, wire.low)
	case "broadcast", "reduce":
		r.Path = "NICs, " + m.nics()
		r.set(span{ring.low * 0.7, ring.typical * 0.92, ring.high})
	case "alltoall", "alltoallv":
		// A GPU sends (n - local) / n of its data to other nodes, and has its part of the NICs for that.
		n, l := float64(t.Ranks), float64(perNode)
		each := wire.times(1 / l)
		f := (n - 1) / (n - l)
		r.Path = fmt.Sprintf("NICs, %s GB/s for each GPU", figure(r.wire/l))
		r.set(span{each.low * f * 0.6, each.typical * f * 0.85, min(each.high*f, in.high)})
	case "sendrecv":
		each := wire.times(1 / float64(perNode))
		r.Path = fmt.Sprintf("NICs, %s GB/s for each GPU", figure(r.wire/float64(perNode)))
		r.set(span{each.low * 0.7, each.typical * 0.95, max(each.high, wire.high)})
	default: // gather and scatter: the root's part of the NICs, or all of them where its neighbours forward
		each := wire.times(1 / float64(perNode))
		r.Path = fmt.Sprintf("the root's NICs, %s GB/s for each GPU", figure(r.wire/float64(perNode)))
		r.set(span{each.low * 0.6, each.typical, ring.high * 2})
	}
}

// twoNodes sets what all_reduce reaches on two nodes, where NCCL takes trees: every byte crosses the wire once each way, so
// that algbw and not busbw is what the NIC carries.
func (r *Reference) twoNodes(t *Table, m *Machine, ring, wire, in span) {
	factor := r.factor
	if strings.EqualFold(t.algorithm, "ring") {
		r.ring = 0
		r.set(ring)
		r.Path += ", as a ring"
		return
	}
	tree := span{wire.low * factor * 0.92, wire.typical * factor * 0.97, wire.high * factor}
	switch {
	case m.gpu == nil:
		r.set(span{ring.low, ring.typical, tree.high})
	case m.gpu.AMD:
		r.set(span{ring.low, ring.typical, min(tree.high, max(m.gpu.Uni, wire.high))})
	case tree.typical > in.typical && r.ring > 0: // the NICs are no limit: NVLSTree
		r.set(span{max(ring.low, in.typical*0.917), in.typical * 0.98, min(tree.high, in.high*1.03)})
		r.Path = "NVLS in each node and a tree between them (NVLSTree), " + m.nics()
		r.ring, r.tree = ring.typical, true
		r.Others = append(r.Others, fmt.Sprintf("as a ring %.0f: what the NICs carry", ring.typical))
		return
	case tree.typical > in.typical:
		r.set(span{ring.low * 0.93, max(ring.typical, min(in.typical*0.9, tree.typical)), min(tree.high, max(in.high, wire.high))})
	default:
		r.set(span{ring.low, tree.typical, min(tree.high, in.high)})
		r.tree = true
	}
	r.ring = 0
	if r.Typical > wire.high {
		r.tree = true
	}
	if r.tree && !r.tcp {
		r.Others = append(r.Others, fmt.Sprintf("as a ring %s (the wire); by a tree %s: on two nodes busbw may be up to %.2f times what the wire carries", figure(ring.typical), figure(r.Typical), factor))
	}
}

// at returns busbw that a size should reach: no less than low, no more than high.
func (r *Reference) at(bytes int64) (low, high float64) {
	moved := float64(bytes) * r.factor / 1e9 // GB over the slowest link
	if moved == 0 {
		return 0, 0
	}
	const us = 1e-6
	most := (60 + 4*float64(r.group-1)) * us
	least := 3 * us
	knee := (240 + 6*max(0, r.uses-8)) * us
	if r.between {
		// A ring waits for each node, a tree for each level.
		most = (120 + 25*math.Log2(r.steps+1) + 4*float64(r.group-1)) * us
		least = 6 * us
		knee = (350 + 30*r.steps) * us
		if r.tcp {
			most, knee = most*8, knee*8
		}
		if r.efa || r.tree && r.ring > 0 { // of NVLSTree, too, mid sizes differ much between healthy clusters
			knee *= 2.5
		}
	}
	slow := moved/r.Low + most
	slow += min(knee, 0.8*moved/r.Low+most)
	return moved / slow, moved / (moved/r.High + least)
}

// small says that a size is too small to judge: latency decides.
func (r *Reference) small(bytes int64) bool {
	low, _ := r.at(bytes)
	return low < 0.5*r.Low
}

// exact writes a measured figure with four digits.
func exact(v float64) string {
	if v >= 99.95 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	}
	return figure(v)
}

// figure writes GB/s with about three digits.
func figure(v float64) string {
	switch {
	case v >= 99.5:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
