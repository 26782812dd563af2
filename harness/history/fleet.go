package history

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/stat"
)

// A Shared is a change that several machines have in common with a version: what all things of a
// kind did, or a figure of the machine itself.
type Shared struct {
	Thing             // without an object
	Things   string   `json:"things,omitempty"` // what they are: "GPUs", "ports", "pairs"
	With     []Change `json:"with"`             // what these machines changed, and when the first did
	Machines int      `json:"machines"`         // number of machines that show the change
	Of       int      `json:"of"`               // number of machines that changed the version, and have certificates before and after
	Change   float64  `json:"change"`           // relative; the median of these machines
	Low      float64  `json:"low"`              // smallest and largest of the machines that show it
	High     float64  `json:"high"`
	Better   bool     `json:"better"`
}

// minMachines is the number of machines that must show a change together if none shows it alone.
const minMachines = 4

// An effect is what a figure of one machine did when a version changed.
type effect struct {
	machine int
	change  Change
	size    float64 // relative
	drifts  []*Drift
}

// A transition is a change of a version, wherever it happens.
type transition struct{ what, from, to string }

func (c Change) transition() transition {
	what, _, _ := strings.Cut(c.What, " of ") // each part's has the part's name
	return transition{what, c.From, c.To}
}

// share finds the changes that machines share. Versions that the same machines changed cannot be told
// apart, and stand together.
func (h *History) share(groups [][]*group) {
	var order []kind
	figures := map[kind]map[transition][]effect{}
	for i := range h.Machines {
		for _, g := range groups[i] {
			t := g.common
			if t == nil && len(g.tracks) == 1 && g.kind.things == " " {
				t = g.tracks[0]
			}
			if t == nil {
				continue
			}
			if figures[g.kind] == nil {
				figures[g.kind] = map[transition][]effect{}
				order = append(order, g.kind)
			}
			for _, e := range h.Machines[i].effects(i, g, t) {
				at := e.change.transition()
				figures[g.kind][at] = append(figures[g.kind][at], e)
			}
		}
	}
	for _, k := range order {
		h.shareOf(k, figures[k])
	}
	slices.SortStableFunc(h.Shared, func(a, b Shared) int {
		return cmp.Or(boolInt(a.Better)-boolInt(b.Better), cmp.Compare(math.Abs(b.Change), math.Abs(a.Change)))
	})
}

// effects returns what a figure did at each change of a version: the difference between the medians
// of up to eight certificates before and after it.
func (m *Machine) effects(index int, g *group, t *track) (out []effect) {
	seen := map[transition]bool{}
	for _, c := range m.Changes {
		if at := c.transition(); seen[at] {
			continue
		} else {
			seen[at] = true
		}
		var before, after []float64
		for i, k := range t.when {
			if t.odd != nil && t.odd[i] {
				continue
			}
			if g.times[k].Before(c.At) {
				before = append(before, t.y[i])
			} else {
				after = append(after, t.y[i])
			}
		}
		before, after = before[max(0, len(before)-soon):], after[:min(soon, len(after))]
		if len(before) < minSide || len(after) < minSide {
			continue
		}
		e := effect{machine: index, change: c, size: finite(t.relative(stat.Median(after)-stat.Median(before), t.absolute(stat.Median(before))))}
		for _, d := range m.together(g.kind) {
			if d.explains(c) {
				e.drifts = append(e.drifts, d)
			}
		}
		out = append(out, e)
	}
	return out
}

// together returns the drifts of all things of a kind together.
func (m *Machine) together(k kind) (out []*Drift) {
	is := func(d *Drift) bool {
		return d.Suite == k.suite && d.Check == k.check && d.Quantity == k.quantity && d.Unit == k.unit
	}
	for i := range m.Common {
		if d := &m.Common[i]; is(d) {
			out = append(out, d)
		}
	}
	for i := range m.Series {
		for l := range m.Series[i].Drifts {
			if d := &m.Series[i].Drifts[l]; d.Object == "" && d.Peer == "" && is(d) {
				out = append(out, d)
			}
		}
	}
	return out
}

// shareOf finds which versions explain the changes of one kind, the one that most machines show first.
func (h *History) shareOf(k kind, by map[transition][]effect) {
	all := make([]transition, 0, len(by))
	for at := range by {
		all = append(all, at)
	}
	showing := func(at transition) int { return len(h.show(by[at])) }
	slices.SortFunc(all, func(a, b transition) int {
		return cmp.Or(showing(b)-showing(a), len(by[a])-len(by[b]), strings.Compare(a.what, b.what), strings.Compare(a.from, b.from), strings.Compare(a.to, b.to))
	})
	done := map[int]bool{} // machines
	for i, at := range all {
		effects := by[at]
		shown := h.show(effects)
		if len(shown) == 0 || slices.ContainsFunc(shown, func(e effect) bool { return done[e.machine] }) {
			continue
		}
		out := Shared{Machines: len(shown), Of: len(effects)}
		for _, other := range all[i:] {
			if sameMachines(by[other], effects) {
				first := slices.MinFunc(by[other], func(a, b effect) int { return a.change.At.Compare(b.change.At) })
				out.With = append(out.With, Change{first.change.At, other.what, other.from, other.to})
			}
		}
		var sizes []float64
		for _, e := range shown {
			done[e.machine] = true
			sizes = append(sizes, e.size)
			for _, d := range e.drifts {
				d.Shared = true
			}
		}
		out.Change, out.Low, out.High = stat.Median(sizes), slices.Min(sizes), slices.Max(sizes)
		out.Thing = Thing{Suite: k.suite, Check: k.check, Quantity: k.quantity, Unit: k.unit}
		s := h.Machines[shown[0].machine].one(k)
		if s.Object != "" {
			out.Things = plural(s.Thing)
		}
		out.Better = improved(0, out.Change, s.Better)
		h.Shared = append(h.Shared, out)
	}
}

// one returns a series of a kind.
func (m *Machine) one(k kind) *Series {
	i := slices.IndexFunc(m.Series, func(s Series) bool {
		return (&series{thing: s.Thing}).kind() == kind{k.suite, k.check, k.quantity, k.unit, k.things, ""}
	})
	return &m.Series[i]
}

func sameMachines(a, b []effect) bool {
	return slices.EqualFunc(a, b, func(x, y effect) bool { return x.machine == y.machine })
}

// show returns the machines that show a change with a version, all in one direction; none if too few
// do. Either most of those that have it drifted, and two at least, or their effects together are
// larger than what differs between machines, by the likelihood ratio that single machines are judged
// by.
func (h *History) show(effects []effect) (out []effect) {
	var sizes []float64
	for _, e := range effects {
		sizes = append(sizes, e.size)
	}
	way := stat.Median(sizes)
	drifted := 0
	for _, e := range effects {
		if e.size*way <= 0 {
			continue
		}
		if len(e.drifts) > 0 {
			drifted++
		}
		if len(e.drifts) > 0 || math.Abs(e.size) > h.Tolerance {
			out = append(out, e)
		}
	}
	n := float64(len(sizes))
	if drifted >= 2 && 2*drifted >= len(sizes) {
		return out
	}
	if len(sizes) < minMachines || math.Abs(way) <= h.Tolerance {
		return nil
	}
	mean, deviation := stat.Moments(sizes)
	if n*math.Log1p(mean*mean/max(deviation*deviation, 1e-18)) > (&prior{pooled: true}).threshold(len(sizes)) {
		return out
	}
	return nil
}
