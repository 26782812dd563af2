package topology

import (
	"cmp"
	"slices"
	"sort"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// bestRing returns the single ring of GPUs between which NVLinks form no ring: the ring
// with the highest bandwidth on its narrowest path. Among such rings, it uses NVLinks
// where it can, and otherwise follows the order of the PCI tree.
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
	best := upTo(len(order)) // the order of the tree, if nothing else is found in time
	// A ring that is wide enough for one width is also wide enough for lower ones.
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

// compare orders functions as in a walk through the PCI tree.
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

// preferred lists, for each GPU, the GPUs to try next: those over NVLinks first, then
// near ones.
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

// wideEnough returns one link for each path with a bandwidth of at least least.
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
