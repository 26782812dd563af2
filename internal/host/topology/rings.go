package topology

import (
	"cmp"
	"slices"
)

// A Ring is a cycle through GPUs: each sends to the next, and the last to the first.
type Ring struct {
	GPUs []int   `json:"gpus"`  // indices in System.GPUs
	GBps float64 `json:"gbps"`  // of the narrowest link, when all rings are in use
	Over Class   `json:"class"` // the worst class of its paths
}

// Limits of the search. Machines have at most 16 GPUs, and machines with direct links
// between GPUs at most 8: a DGX-1 takes some hundred steps. Other graphs may take any
// number of steps.
const (
	maxRings  = 16
	ringSteps = 20_000
)

// Rings finds at most 16 rings that can be used at the same time, with the highest total
// bandwidth.
//
// Where NVLinks connect the GPUs directly, a ring uses one link, in one direction, of
// each bond that it crosses; a link serves one ring in each direction. So a graph with
// bonds of n links may contain n rings of the same order, and the uneven mesh of a DGX-1
// six. Behind NVSwitches there are as many rings as links, in one order, with rotating
// starts (a ring's first GPU is where it would continue to another machine). Where
// NVLinks form no ring, there is one ring over the best paths: NVLinks where there are
// some, and otherwise neighbours in the PCI tree, so that each link of the tree is
// crossed once in each direction.
//
// The result is deterministic. Fewer than two GPUs have no ring.
func (s *System) Rings() []Ring { return s.rings(upTo(len(s.GPUs)), maxRings) }

// rings is Rings for some of the GPUs, with up to most rings.
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

// switchRings returns the rings of GPUs that are all connected to NVSwitches.
func (s *System) switchRings(gpus []int, most int) []Ring {
	links, gbps := 1<<30, float64(localGBps)
	for _, i := range gpus {
		_, n := s.GPUs[i].linksTo(s.GPUs[i].BusID)
		links, gbps = min(links, n), min(gbps, float64(n)*nvlinkBandwidth(s.GPUs[i].SM))
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

// nvlinkCounts returns the number of NVLinks between each two of the GPUs: row k belongs
// to gpus[k].
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

// meshRings returns the rings over direct NVLinks.
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

// vary separates rings of the same order, so that a plan that uses only the first few
// rings uses many of the links.
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
