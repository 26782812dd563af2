package hunt

import (
	"cmp"
	"math"
	"slices"

	"github.com/assay-hpc/assay/internal/stat"
)

// A charge is an accusation against a node.
type charge struct {
	p [2]float64 // by way; 0: not accused in this direction
}

func (c *charge) is(w way) bool { return c != nil && c.p[w] > 0 }

// A route is from one switch to another or, among few nodes, from one node to another (as -1-node).
type route struct{ from, to int }

// verdicts are the conclusions so far.
type verdicts struct {
	accused map[int]*charge
	cleared [2]map[int]bool // by way
	routes  map[route]float64
	seen    *view // the last look
	least   float64
	find    float64
	met     map[route]bool
}

// alone reports whether only two nodes are left, in pairs: they can be compared only with each
// other.
func (h *hunt) alone() bool { return len(h.living()) == 2 && h.o.GroupSize == 2 }

// explained reports whether an existing charge already explains a value.
func (h *hunt) explained(v *value) bool { return h.explainedBut(v, -1) }

// explainedBut is explained without the charges against one node.
func (h *hunt) explainedBut(v *value, but int) bool {
	for i, node := range v.group {
		if !h.alive[node] {
			return true
		}
		c := h.accused[node]
		if c == nil || node == but {
			continue
		}
		if v.from < 0 || v.from == i && c.is(sends) || v.to == i && c.is(receives) {
			return true
		}
	}
	return v.from >= 0 && (h.routes[h.routeOf(v)] > 0 || h.routes[wayOf(v)] > 0)
}

// wayOf is the way from a value's one node to its other.
func wayOf(v *value) route { return route{-1 - v.group[v.from], -1 - v.group[v.to]} }

// onlyOwnCharge returns whether nothing except the node's own charge explains a value.
func (h *hunt) onlyOwnCharge(node int) func(*value) bool {
	return func(v *value) bool { return !h.explainedBut(v, node) }
}

// switchOf is a node's switch; -1 where that is not known.
func (h *hunt) switchOf(node int) int {
	if h.o.Switch == nil {
		return -1
	}
	return h.o.Switch[node]
}

func (h *hunt) routeOf(v *value) route {
	return route{h.switchOf(v.group[v.from]), h.switchOf(v.group[v.to])}
}

// class distinguishes values within a switch (0) from those between switches (1).
func (h *hunt) class(v *value) int {
	for _, node := range v.group {
		if h.switchOf(node) != h.switchOf(v.group[0]) {
			return 1
		}
	}
	return 0
}

// judge runs all tests again, with the evidence added since. Each look gets a part of the error
// probabilities: 1/2, 1/6, 1/12, … add up to 1 for any number of looks. All tests of a look share
// its part. part is the share of the error probabilities that is available for these tests.
func (h *hunt) judge(look int, part float64) {
	if h.accused == nil {
		h.accused, h.routes, h.met = map[int]*charge{}, map[route]float64{}, map[route]bool{}
		h.cleared = [2]map[int]bool{{}, {}}
	}
	living := h.living()
	questions := len(h.all.ways())*len(living) + len(h.plan.switches)*len(h.plan.switches)
	if h.byPair(living) {
		questions += len(living) * (len(living) - 1)
	}
	share := part / float64(look*(look+1)*max(questions, 1))
	for {
		h.seen = h.all.viewAfter(h.stratum(), h.explained, h.class)
		h.limits(living)
		n := h.accuse(living, h.o.Alpha*share)
		n += h.accuseRoutes(h.o.Alpha * share)
		if n == 0 {
			break
		}
	}
	// If find has grown beyond the requested value, clearing waits until half of the rounds are
	// over: only then is a better chance ruled out.
	if h.find <= -math.Log1p(-h.o.Find)+1e-9 || 2*h.rounds >= h.o.MaxRounds {
		h.clear(living, h.o.Beta*share)
	}
}

// limits sets least, the difference that is too small to be distinguished from the nodes' normal
// spread, and find, the one that can be distinguished.
func (h *hunt) limits(living []int) {
	fence := 0.0
	if len(living) >= fewNodes {
		// The farthest of n normal values is this far out.
		fence = math.Sqrt(2*math.Log(float64(len(living))/h.o.Alpha)) * h.seen.spread(living)
	}
	h.least = max(-math.Log1p(-h.o.Least), fence)
	h.find = max(-math.Log1p(-h.o.Find), 1.5*fence)
}

// accuse returns the number of new charges. Among few nodes a slow node takes part in many of all
// values, so the values are evaluated again after each charge.
func (h *hunt) accuse(living []int, level float64) int {
	if h.alone() {
		return h.accuseEither(level)
	}
	type candidate struct {
		node int
		p    [2]float64
	}
	var found []candidate
	for _, node := range living {
		c := candidate{node: node}
		hit := false
		for _, d := range h.seen.ways() {
			if h.accused[node].is(d) {
				continue
			}
			slower, _ := h.seen.question(node, d, h.onlyOwnCharge(node), h.least, h.find)
			if p := slower.p(); p <= level {
				c.p[d], hit = p, true
			}
		}
		if hit {
			found = append(found, c)
		}
	}
	if h.byPair(living) {
		lowest := 1.0
		for _, c := range found {
			lowest = min(lowest, least(c.p))
		}
		if r, p := h.slowestWay(); p <= level && p < lowest {
			h.routes[r] = p
			return 1
		}
	}
	if len(found) == 0 {
		return 0
	}
	if len(living) < fewNodes {
		found = []candidate{slices.MinFunc(found, func(a, b candidate) int { return cmp.Compare(least(a.p), least(b.p)) })}
	}
	for _, c := range found {
		if h.accused[c.node] == nil {
			h.accused[c.node] = &charge{}
		}
		for d, p := range c.p {
			if p > 0 {
				h.accused[c.node].p[d] = p
			}
		}
	}
	return len(found)
}

// byPair reports whether so few nodes are measured in pairs that each pair is, again and again.
func (h *hunt) byPair(living []int) bool {
	return h.pairs && len(living) >= 3 && len(living) < fewNodes && h.all.directed
}

// slowestWay returns the way from a node to another whose values have the lowest probability if it is
// at most least slower than all others.
func (h *hunt) slowestWay() (slowest route, p float64) {
	tallies := map[route]*tally{}
	for s := range h.seen.values {
		of := map[route][]float64{}
		for i := range h.seen.values[s] {
			if v := &h.seen.values[s][i]; v.from >= 0 && !h.seen.gone[s][i] {
				of[wayOf(v)] = append(of[wayOf(v)], h.seen.residual(s, i))
			}
		}
		for _, r := range sortedRoutes(of) {
			var others []float64
			for q, values := range of {
				if q != r {
					others = append(others, values...)
				}
			}
			if len(others) == 0 {
				continue
			}
			if tallies[r] == nil {
				tallies[r] = &tally{}
			}
			tallies[r].add(stat.Below(shifted(of[r], h.least), others))
		}
	}
	p = 1
	for _, r := range sortedRoutes(tallies) {
		if q := tallies[r].p(); q < p {
			slowest, p = r, q
		}
	}
	return slowest, p
}

// least returns the smaller of the values above 0.
func least(p [2]float64) float64 {
	if p[0] == 0 || p[1] > 0 && p[1] < p[0] {
		return p[1]
	}
	return p[0]
}

// accuseEither compares the two directions of a pair that is alone.
func (h *hunt) accuseEither(level float64) (found int) {
	living := h.living()
	for i, node := range living {
		r := route{-1 - node, -1 - living[1-i]}
		if slower, _ := h.either(node); h.routes[r] == 0 && slower.p() <= level {
			h.routes[r] = slower.p()
			found++
		}
	}
	return found
}

func (h *hunt) either(node int) (slower, faster tally) {
	for s := range h.seen.values {
		var there, back []float64
		for _, i := range h.seen.byNode[s][node] {
			if v := &h.seen.values[s][i]; slices.ContainsFunc(v.group, func(n int) bool { return !h.alive[n] }) {
				continue
			} else if v.from >= 0 && v.of(node, sends) {
				there = append(there, v.x)
			} else if v.from >= 0 {
				back = append(back, v.x)
			}
		}
		if len(there) == 0 || len(back) == 0 {
			continue
		}
		slower.add(stat.Below(shifted(there, h.least), back))
		faster.add(stat.Below(shifted(back, -h.find), there))
	}
	return slower, faster
}

func shifted(values []float64, by float64) []float64 {
	out := slices.Clone(values)
	for i := range out {
		out[i] += by
	}
	return out
}

// clear finds the nodes that are not slower by find.
func (h *hunt) clear(living []int, level float64) {
	alone := h.alone()
	for _, d := range h.all.ways() {
		for _, node := range living {
			if h.cleared[d][node] || h.accused[node].is(d) {
				continue
			}
			var faster tally
			if alone {
				_, faster = h.either(node)
			} else {
				_, faster = h.seen.question(node, d, h.onlyOwnCharge(node), h.least, h.find)
			}
			if faster.p() <= level {
				h.cleared[d][node] = true
			}
		}
	}
}

// undecided returns the living nodes that are neither accused nor cleared in some direction. If
// at most two nodes are not accused, they count as decided: the others were compared with them.
func (h *hunt) undecided() (out []int) {
	left := len(h.accused) > 0 && len(h.rest()) <= 2
	slow := map[int]bool{} // if only two nodes are left, those that send slowly
	for r := range h.routes {
		if r.from < 0 && h.alone() {
			slow[-1-r.from] = true
		}
	}
	for _, node := range h.living() {
		if left && h.accused[node] == nil || h.loss.accused[node] != nil || h.oddNode(node) {
			continue // the bandwidth of a node that is lossy, or comes and goes, does not matter
		}
		for _, d := range h.all.ways() {
			if !h.accused[node].is(d) && !h.cleared[d][node] && !slow[node] {
				out = append(out, node)
				break
			}
		}
	}
	return out
}
