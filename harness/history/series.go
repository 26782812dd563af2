package history

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/stat"
)

// finish returns a series with what was found about it.
func (t *track) finish(g *group, v verdict, facts []Change) Series {
	s := t.s
	n := len(s.points)
	values := make([]float64, n)
	for i, p := range s.points {
		values[i] = p.Value
	}
	out := Series{
		Thing: s.thing, Points: n, First: values[0], Last: values[n-1], Median: finite(stat.Median(values)), Seen: v.seen, NoiseChange: v.noise,
		Better: s.better, Limit: s.limit, Values: s.points,
	}
	out.Noise = finite(2 * t.deviation(v.changes, t.y, out.Median))
	out.Outliers = t.outliers(out.Noise)
	peers := 0
	if t.ref != nil {
		peers = len(g.tracks) - 1
	}
	for _, d := range t.drifts(g, v, out.Noise) {
		d.Thing, d.Peers = s.thing, peers
		for _, c := range facts {
			// What all got does not explain what one of them did.
			if d.explains(c) && (peers == 0 || c.of(s.thing)) {
				d.With = append(d.With, c)
			}
		}
		out.Drifts = append(out.Drifts, d)
	}
	return out
}

// deviation returns the standard deviation of y around the levels between changes, as a difference
// of values of this size.
func (t *track) deviation(all []change, y []float64, size float64) float64 {
	s := &sample{y: y, at: make([]float64, len(y))}
	for i := range s.at {
		s.at[i] = float64(i)
	}
	sigma := max(stat.Deviation(s.rest(all)), t.floor)
	if t.log {
		return sigma * math.Abs(size)
	}
	return sigma * t.scale
}

// drifts returns a track's changes, without those that were over later and without their ends.
func (t *track) drifts(g *group, v verdict, noise float64) (out []Drift) {
	s := &sample{y: t.y, at: make([]float64, len(t.y))}
	all := make([]int, len(t.y))
	for i, k := range t.when {
		s.at[i], all[i] = g.at[k], i
	}
	ends := map[int]bool{}
	for i, c := range v.changes {
		if ends[i] {
			continue
		}
		d := Drift{Kind: Step, Before: t.level(s, all, v.changes, c, -1), After: t.level(s, all, v.changes, c, 1), Noise: noise}
		d.From, d.To = g.times[t.when[c.at-1]], g.times[t.when[c.at]]
		d.earliest, d.latest = g.times[t.when[max(c.near[0]-1, 0)]], g.times[t.when[c.near[1]]]
		if c.shape == ramp {
			d.Kind, d.To = Slope, g.times[t.when[c.until-1]]
		}
		d.Before, d.After = finite(d.Before), finite(d.After)
		d.Change = finite(t.relative(c.size, d.Before))
		if d.Before == 0 {
			d.Change = 0
		}
		d.Better = t.s != nil && improved(0, c.size, t.s.better)
		if end := back(v.changes, i); end > 0 {
			ends[end] = true
			d.Until = &g.times[t.when[v.changes[end].at]]
		}
		out = append(out, d)
	}
	return out
}

// back returns the index of the change that ends the i-th: the value is then as before, but for a
// quarter of the change at most. It is 0 if there is none.
func back(all []change, i int) int {
	if all[i].shape == ramp {
		return 0
	}
	size := all[i].size
	for k := i + 1; k < len(all) && all[k].shape == step; k++ {
		if size += all[k].size; math.Abs(size) <= math.Abs(all[i].size)/4 {
			return k
		}
	}
	return 0
}

// explains reports whether a version changed when the drift began, as far as that is known.
func (d *Drift) explains(c Change) bool { return c.At.After(d.earliest) && !c.At.After(d.latest) }

// of reports whether a version is that of a thing alone.
func (c Change) of(t Thing) bool {
	_, part, ok := strings.Cut(c.What, " of ")
	return ok && (part == t.ID || part == t.Object)
}

// An Outlier is a certificate or two that differ from those before and after, which is no drift.
type Outlier struct {
	At    time.Time `json:"at"`
	Value float64   `json:"value"`
	Usual float64   `json:"usual"`
	Last  bool      `json:"last,omitempty"` // nothing came after it: it may be the beginning of a change
}

// outliers returns the outliers that differ by more than the noise from the values around them.
func (t *track) outliers(noise float64) (out []Outlier) {
	n := len(t.odd)
	for i, odd := range t.odd {
		if !odd {
			continue
		}
		var near []float64
		for j := max(0, i-minSide-1); j < min(n, i+minSide+2); j++ {
			if !t.odd[j] {
				near = append(near, t.value(j))
			}
		}
		o := Outlier{At: t.s.points[i].At, Value: t.value(i), Last: !slices.Contains(t.odd[i:], false)}
		if len(near) > 0 {
			o.Usual = finite(stat.Median(near))
		}
		if math.Abs(o.Value-o.Usual) > noise {
			out = append(out, o)
		}
	}
	return out
}

// finishCommon returns the changes that the things of a group have in common.
func (g *group) finishCommon(v verdict, facts []Change) (out []Drift) {
	first := g.tracks[0].s
	t := first.thing
	for _, d := range g.common.drifts(g, v, finite(2*g.common.deviation(v.changes, g.common.y, g.common.absolute(0)))) {
		d.Thing = Thing{Suite: t.Suite, Check: t.Check, Quantity: t.Quantity, Unit: t.Unit}
		d.Things, d.All = plural(t), len(g.tracks)
		d.Better = improved(d.Before, d.After, first.better)
		for _, s := range g.tracks {
			if s.changed {
				d.All--
			}
		}
		for _, c := range facts {
			if d.explains(c) {
				d.With = append(d.With, c)
			}
		}
		out = append(out, d)
	}
	return out
}

// plural says what kind of things some are: "GPUs", "pairs", "ports".
func plural(t Thing) string {
	switch {
	case t.Peer != "":
		return "pairs"
	case strings.HasPrefix(t.Object, "GPU "):
		return "GPUs"
	case strings.Contains(t.Object, "/"):
		return "ports"
	}
	return "things"
}

// sortDrifts puts what became worse first, then the larger change.
func sortDrifts(all []Drift) {
	slices.SortStableFunc(all, func(a, b Drift) int {
		return cmp.Or(boolInt(a.quiet())-boolInt(b.quiet()), cmp.Compare(math.Abs(b.Change), math.Abs(a.Change)))
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
