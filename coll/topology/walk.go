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
	best := upTo(len(order)) // that of the tree's order, if nothing else is found in time
	// A ring that is wide enough for one width is so for the lower ones.
	next := preferred(paths)
	sort.Search(len(widths), func(i int) bool {
		m := newMesh(wideEnough(paths, widths[i]))
		m.next = next
		ring := m.cycle(nil, anyRing)
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

// preferred lists, for each GPU, those to go on to: over NVLinks first, then near ones.
func preferred(paths [][]Path) (next [][]int) {
	for _, row := range paths {
		order := upTo(len(row))
		slices.SortStableFunc(order, func(x, y int) int {
			return cmp.Or(cmp.Compare(row[x].Class, row[y].Class), cmp.Compare(row[y].GBps, row[x].GBps))
		})
		next = append(next, order)
	}
	return next
}

// wideEnough has a link for each path of some width.
func wideEnough(paths [][]Path, least float64) (links [][]int) {
	for _, row := range paths {
		wide := make([]int, len(row))
		for j, p := range row {
			if p.GBps >= least {
				wide[j] = 1
			}
		}
		links = append(links, wide)
	}
	return links
}
