package topology

import (
	"cmp"
	"slices"
	"sort"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// bestRing is the one ring of GPUs that NVLinks do not join to one: that with
// the widest narrowest place. Among those it keeps to the order of the PCI
// tree and goes over NVLinks where it can.
func (s *System) bestRing(gpus []int) Ring {
	order := slices.Clone(gpus)
	slices.SortStableFunc(order, func(a, b int) int { return s.GPUs[a].compare(&s.GPUs[b].PCI) })
	paths := make([][]Path, len(order))
	var widths []float64
	for i, a := range order {
		for _, b := range order {
			p := s.Path(a, b)
			paths[i] = append(paths[i], p)
			if a != b {
				widths = append(widths, p.GBps)
			}
		}
	}
	slices.Sort(widths)
	widths = slices.Compact(widths)
	slices.Reverse(widths)
	best := make([]int, len(order)) // that of the tree's order, if nothing else is found in time
	for i := range best {
		best[i] = i
	}
	// A ring that is wide enough for one width is so for the lower ones.
	b := newBuilder(paths)
	sort.Search(len(widths), func(i int) bool {
		ring := b.ring(widths[i])
		if ring != nil {
			best = ring
		}
		return ring != nil
	})
	return s.describe(order, paths, best)
}

// compare orders functions as they come in a walk through the PCI tree.
func (p *PCI) compare(q *PCI) int {
	return cmp.Or(
		cmp.Compare(p.NUMA, q.NUMA), cmp.Compare(p.HostBridge, q.HostBridge),
		slices.CompareFunc(p.Switches, q.Switches, sysfs.BusID.Compare), p.BusID.Compare(q.BusID),
	)
}

func (s *System) describe(order []int, paths [][]Path, ring []int) Ring {
	out := Ring{GBps: localGBps}
	for k, i := range ring {
		p := paths[i][ring[(k+1)%len(ring)]]
		out.GPUs = append(out.GPUs, order[i])
		out.GBps, out.Over = min(out.GBps, p.GBps), max(out.Over, p.Class)
	}
	return out
}

// A builder looks for a ring over paths of some width.
type builder struct {
	paths [][]Path
	next  [][]int // from each GPU, those to go on to: NVLinks first, then near ones
	least float64
	steps int
	used  []bool
}

func newBuilder(paths [][]Path) *builder {
	b := &builder{paths: paths}
	for at := range paths {
		order := make([]int, len(paths))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(x, y int) int {
			return cmp.Or(cmp.Compare(paths[at][x].Class, paths[at][y].Class), cmp.Compare(paths[at][y].GBps, paths[at][x].GBps))
		})
		b.next = append(b.next, order)
	}
	return b
}

// ring is a ring whose paths are all that wide, or nil.
func (b *builder) ring(least float64) []int {
	b.least, b.steps, b.used = least, ringSteps, make([]bool, len(b.paths))
	b.used[0] = true
	return b.extend([]int{0})
}

func (b *builder) extend(path []int) []int {
	if b.steps--; b.steps < 0 {
		return nil
	}
	at := path[len(path)-1]
	if len(path) == len(b.paths) {
		if b.paths[at][path[0]].GBps >= b.least {
			return path
		}
		return nil
	}
	for _, next := range b.next[at] {
		if b.used[next] || b.paths[at][next].GBps < b.least {
			continue
		}
		b.used[next] = true
		if ring := b.extend(append(path, next)); ring != nil {
			return ring
		}
		b.used[next] = false
	}
	return nil
}
