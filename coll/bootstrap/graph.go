package bootstrap

import "slices"

// fanout is the fan-out of the tree. With 4, 1,024 ranks are 5 levels deep and no rank
// has more than 7 links; each link takes 2 file descriptors, one at each end, so 1,024
// ranks in one process need about 4,100 of them for their links.
const fanout = 4

// parent returns the rank above r in the tree, or -1 for rank 0.
func parent(r int) int {
	if r == 0 {
		return -1
	}
	return (r - 1) / fanout
}

// children returns the ranks below r in the tree of n.
func children(r, n int) []int {
	var out []int
	for c := fanout*r + 1; c <= fanout*r+fanout && c < n; c++ {
		out = append(out, c)
	}
	return out
}

// subtree returns the number of ranks in the subtree of r, including r.
func subtree(r, n int) int {
	total := 0
	for first, width := r, 1; first < n; first, width = fanout*first+1, width*fanout {
		total += min(width, n-first)
	}
	return total
}

// neighbours returns the ranks that r has links with, in the tree and in the ring,
// sorted. A rank out of range has none.
func neighbours(r, n int) []int {
	if r < 0 || r >= n {
		return nil
	}
	out := append(children(r, n), (r+1)%n, (r+n-1)%n)
	if r > 0 {
		out = append(out, parent(r))
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(p int) bool { return p == r })
}
