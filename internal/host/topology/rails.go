package topology

import (
	"cmp"
	"slices"
)

// Nearest lists the NICs, the nearest to a GPU first: by the class of the PCI path, with
// nvidia-smi's NODE before SYS, then by bandwidth.
func (s *System) Nearest(gpu int) []int {
	order := upTo(len(s.NICs))
	paths := make([]Path, len(s.NICs))
	for i := range paths {
		paths[i] = s.PCIPath(gpu, len(s.GPUs)+i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(distance(paths[a])-distance(paths[b]), cmp.Compare(paths[b].GBps, paths[a].GBps))
	})
	return order
}

// distance ranks a path by its label: lower is nearer.
func distance(p Path) int {
	return slices.Index([]string{"X", "PIX", "PXB", "PHB", "NODE", "SYS"}, p.Label)
}

// Rails assigns each GPU one NIC for traffic between machines, or -1 if there is none:
// the nearest, and of equally near NICs the one that serves the fewest GPUs so far. If
// there are RDMA devices, only they count; a port that is down does not count. Machines
// of one kind get the same rails.
func (s *System) Rails() []int {
	usable := func(n NIC) bool {
		return n.State == "" || n.State == "ACTIVE" || n.State == "up" || n.State == "unknown"
	}
	rdma := slices.ContainsFunc(s.NICs, func(n NIC) bool { return n.RDMA && usable(n) })
	load := make([]int, len(s.NICs))
	out := make([]int, len(s.GPUs))
	for g := range s.GPUs {
		out[g] = -1
		var best Path
		for _, n := range s.Nearest(g) {
			p := s.PCIPath(g, len(s.GPUs)+n)
			if !usable(s.NICs[n]) || s.NICs[n].RDMA != rdma {
				continue
			}
			if out[g] < 0 {
				out[g], best = n, p
			}
			if distance(p) == distance(best) && p.GBps == best.GBps && load[n] < load[out[g]] {
				out[g] = n
			}
		}
		if out[g] >= 0 {
			load[out[g]]++
		}
	}
	return out
}
