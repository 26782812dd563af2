package hunt

import (
	"slices"

	"github.com/assay-hpc/assay/internal/stat"
)

// leastOfRound is the lowest probability that one meeting of two switches can contribute: all its
// values share a path, so one passing event can slow down all of them.
const leastOfRound = 0.01

// suspectMean is a mean probability below which another meeting is worthwhile.
const suspectMean = 0.02

// accuseRoutes tests the paths between switches, and within them, that met in earlier rounds, and makes
// the suspect ones meet again.
func (h *hunt) accuseRoutes(level float64) (found int) {
	if h.plan.meetings == nil {
		return 0
	}
	tallies := map[route]*tally{}
	for s := range h.seen.values {
		h.meetings(s, func(r route, p float64) {
			if tallies[r] == nil {
				tallies[r] = &tally{}
			}
			tallies[r].add(p)
			h.met[r] = true
		})
	}
	h.plan.again = nil
	for _, r := range sortedRoutes(tallies) {
		t := tallies[r]
		if h.routed(r) {
			continue
		}
		if p := t.p(); p <= level {
			h.routes[r] = p
			found++
		} else if m := [2]int{min(r.from, r.to), max(r.from, r.to)}; t.sum < suspectMean*float64(t.strata) && !slices.Contains(h.plan.again, m) {
			h.plan.again = append(h.plan.again, m)
		}
	}
	return found
}

// routed reports whether more paths from the same switch, or to the same one, are accused than should be
// at once. The cause of those is at the switch that they share, and the tests of nodes find it.
func (h *hunt) routed(r route) bool {
	if h.routes[r] > 0 {
		return true
	}
	from, to := 0, 0
	for q := range h.routes {
		if q.from == r.from {
			from++
		}
		if q.to == r.to {
			to++
		}
	}
	return max(from, to) >= maxRouted
}

// maxRouted is how many paths from one switch, or to one, are accused at most.
const maxRouted = 2

// meetings compares each path that a stratum loaded with the others.
func (h *hunt) meetings(s int, each func(r route, p float64)) {
	of := map[route][]float64{}
	for i := range h.seen.values[s] {
		v := &h.seen.values[s][i]
		if v.from < 0 || h.seen.gone[s][i] {
			continue
		}
		r := h.routeOf(v)
		of[r] = append(of[r], h.seen.residual(s, i))
	}
	routes := sortedRoutes(of)
	for _, r := range routes {
		// A few nodes of two switches meet by chance in any round.
		if len(of[r]) < 2 || (1+h.plan.at)*len(of[r]) < min(h.livingAt(r.from), h.livingAt(r.to)) {
			continue
		}
		var others []float64
		for _, q := range routes {
			if (q.from == q.to) == (r.from == r.to) && q.from != r.from && q.from != r.to && q.to != r.from && q.to != r.to {
				others = append(others, of[q]...)
			}
		}
		if len(others) > 0 {
			each(r, max(leastOfRound, stat.Below(shifted(of[r], h.least), others)))
		}
	}
}

func sortedRoutes[V any](m map[route]V) []route {
	out := make([]route, 0, len(m))
	for r := range m {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b route) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return a.to - b.to
	})
	return out
}

func (h *hunt) livingAt(at int) (n int) {
	for _, node := range h.plan.switches[at] {
		if h.alive[node] {
			n++
		}
	}
	return n
}
