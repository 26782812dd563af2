package topology

import (
	"cmp"
	"slices"
)

// A Ring is a cycle through GPUs, each of which sends to the next, and the
// last one to the first.
type Ring struct {
	GPUs []int   `json:"gpus"`  // places in System.GPUs
	GBps float64 `json:"gbps"`  // the narrowest link, when all the rings are in use
	Over Class   `json:"class"` // the worst class of path on it
}

// Limits of the search. Machines have 16 GPUs at most, and what has links of
// its own between GPUs 8: a DGX-1 takes some hundred steps. Other graphs may
// take any number.
const (
	maxRings  = 16
	ringSteps = 20_000
)

// Rings finds rings, 16 at most, that can be used at the same time, with the highest
// bandwidth together.
//
// Where NVLinks join the GPUs directly, a ring takes one link, in one
// direction, of each bond that it goes over; a link serves a ring each way. So
// a graph of bonds of n links may hold n rings of the same order, and the
// uneven mesh of a DGX-1 six. Behind NVSwitches rings are as many as links,
// in one order, with starts that take turns (a ring's first GPU is where it
// would go on to another machine). Where NVLinks make no ring, there is one,
// over what is best: NVLinks where there are some, and otherwise neighbours
// in the PCI tree, so that each link of the tree is crossed once each way.
//
// It is deterministic. One GPU, or none, makes no ring.
func (s *System) Rings() []Ring { return s.rings(upTo(len(s.GPUs)), maxRings) }

// rings is Rings for some of the GPUs, and so many rings at most.
func (s *System) rings(gpus []int, most int) []Ring {
	if len(gpus) < 2 {
		return nil
	}
	if rings := s.switchRings(gpus, most); rings != nil {
		return rings
	}
	if rings := s.meshRings(gpus, most); rings != nil {
		return rings
	}
	return []Ring{s.bestRing(gpus)}
}

// switchRings are those of GPUs that all hang on NVSwitches.
func (s *System) switchRings(gpus []int, most int) []Ring {
	links, gbps := 1<<30, float64(localGBps)
	for _, i := range gpus {
		_, n := s.GPUs[i].linksTo(s.GPUs[i].BusID)
		links, gbps = min(links, n), min(gbps, float64(n)*NVLinkGBps(s.GPUs[i].SM))
	}
	if links == 0 {
		return nil
	}
	n := min(links, most)
	rings := make([]Ring, n)
	for r := range rings {
		start := r % len(gpus)
		rings[r] = Ring{GPUs: slices.Concat(gpus[start:], gpus[:start]), GBps: gbps / float64(n), Over: NVL}
	}
	return rings
}

// nvlinkCounts are the numbers of NVLinks that bond some GPUs: row k is of gpus[k].
func (s *System) nvlinkCounts(gpus []int) (counts [][]int) {
	for _, i := range gpus {
		row := make([]int, len(gpus))
		for k, j := range gpus {
			if i != j {
				row[k], _ = s.bond(i, j)
			}
		}
		counts = append(counts, row)
	}
	return counts
}

// meshRings are those over direct NVLinks.
func (s *System) meshRings(gpus []int, most int) []Ring {
	m := newMesh(s.nvlinkCounts(gpus))
	var rings []Ring
	for _, order := range m.rings(most) {
		ring := Ring{GBps: localGBps, Over: NVL}
		for k, i := range order {
			ring.GPUs = append(ring.GPUs, gpus[i])
			p, _ := s.nvlinkPath(gpus[i], gpus[order[(k+1)%len(order)]])
			ring.GBps = min(ring.GBps, p.GBps/float64(p.Links))
		}
		rings = append(rings, ring)
	}
	return vary(rings)
}

// vary puts rings of one order apart, so that a plan which uses the first few
// only uses many of the links.
func vary(rings []Ring) []Ring {
	nth := func(r int) int { // how many rings before r have its order
		n := 0
		for _, q := range rings[:r] {
			if slices.Equal(q.GPUs, rings[r].GPUs) {
				n++
			}
		}
		return n
	}
	order := upTo(len(rings))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(nth(a), nth(b)) })
	var out []Ring
	for _, r := range order {
		out = append(out, rings[r])
	}
	return out
}
