package history

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/stat"
)

// A kind is what several figures have in common that are peers: those of the GPUs of a node, its
// ports, its pairs.
type kind struct{ suite, check, quantity, unit, things, model string }

func (s *series) kind() kind {
	return kind{s.thing.Suite, s.thing.Check, s.thing.Quantity, s.thing.Unit, class(s.thing.Object) + " " + class(s.thing.Peer), s.model}
}

// class returns an object's name without its number.
func class(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, name)
}

// minPeers is the number of others without which a figure is judged alone: of three, one may be
// arbitrary.
const minPeers = 3

// A group is the figures of one kind of one machine.
type group struct {
	kind   kind
	times  []time.Time // of all its values
	at     []float64   // times, in units of the median gap
	tracks []*track
	common *track  // what all tracks have in common; nil with too few
	share  float64 // how much of it is in each track's noise, 0 to 1
}

// A track is a series in the form in which it is judged.
type track struct {
	s       *series
	log     bool      // y is the logarithm of the values; else a share of scale
	scale   float64   // only if not log
	when    []int     // indices of its values in the group's times
	y       []float64 // without its median
	mid     float64   // the median that y is without, as y
	floor   float64   // of the noise, in units of y
	grain   float64   // what values are rounded to, in units of y
	ref     []float64 // what peers did; nil if it is judged alone
	odd     []bool    // which values are single outliers
	changed bool      // it is no reference for others
	none    profile   // of its sample, without a change
	square  profile   // variance of the sample's innovations
}

// newGroup prepares the figures of one kind.
func newGroup(k kind, all []*series) *group {
	g := &group{kind: k}
	for _, s := range all {
		for _, p := range s.points {
			g.times = append(g.times, p.At)
		}
	}
	slices.SortFunc(g.times, time.Time.Compare)
	g.times = slices.CompactFunc(g.times, time.Time.Equal)
	g.at = make([]float64, len(g.times))
	var gaps []float64
	for i := range g.times {
		g.at[i] = g.times[i].Sub(g.times[0]).Hours()
		if i > 0 {
			gaps = append(gaps, g.at[i]-g.at[i-1])
		}
	}
	if len(gaps) > 0 {
		for i, unit := 0, stat.Median(gaps); i < len(g.at); i++ {
			g.at[i] /= unit
		}
	}
	for _, s := range all {
		g.tracks = append(g.tracks, g.track(s))
	}
	return g
}

func (g *group) track(s *series) *track {
	t := &track{s: s, log: true}
	var values, half []float64
	for _, p := range s.points {
		i, _ := slices.BinarySearchFunc(g.times, p.At, time.Time.Compare)
		t.when = append(t.when, i)
		values, half = append(values, p.Value), append(half, p.spread)
		t.log = t.log && p.Value > 0
	}
	middle := finite(math.Abs(stat.Median(values)))
	t.scale = cmp.Or(middle, 1)
	// Rounding adds noise, of 1/√12 of the last digit, and the noise is not less than what the
	// certificates say.
	t.grain = resolution(values) / t.scale
	t.floor = max(stat.Median(half)/2/t.scale, 0.29*t.grain, 1e-9)
	for _, v := range values {
		if t.log {
			t.y = append(t.y, math.Log(v))
		} else {
			t.y = append(t.y, min(max(v/t.scale, -enormous), enormous))
		}
	}
	t.center()
	return t
}

// enormous is as far as a value counts, in units of the median.
const enormous = 1e9

// finite returns v, or the nearest number that JSON has.
func finite(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return min(max(v, -math.MaxFloat64), math.MaxFloat64)
}

func (t *track) center() {
	t.mid = stat.Median(t.y)
	for i := range t.y {
		t.y[i] -= t.mid
	}
}

// refer sets the references: for each track the median of the others at the same time, without
// those that changed themselves. It also makes the common track.
func (g *group) refer() {
	at := make([][]float64, len(g.times)) // of each time the references' values, in order
	half := 0                             // how many references are at most times
	for _, t := range g.tracks {
		if t.changed {
			continue
		}
		half++
		for i, k := range t.when {
			at[k] = append(at[k], t.y[i])
		}
	}
	half = (half + 1) / 2
	g.common = nil
	c := &track{log: g.tracks[0].log, scale: g.tracks[0].scale}
	for k := range at {
		slices.Sort(at[k])
		if len(at[k]) >= max(minPeers, half) {
			c.when, c.y = append(c.when, k), append(c.y, middle(at[k], math.NaN()))
		}
	}
	if len(g.tracks) > minPeers && len(c.y) > 0 {
		g.common = c
		var mids []float64
		for _, t := range g.tracks {
			c.floor, c.grain, mids = max(c.floor, t.floor), max(c.grain, t.grain), append(mids, t.mid)
		}
		c.center()
		c.mid += stat.Median(mids)
	}
	for _, t := range g.tracks {
		t.ref = nil
		if len(g.tracks) <= minPeers {
			continue
		}
		ref, known := make([]float64, len(t.y)), 0
		for i, k := range t.when {
			own := t.y[i]
			if t.changed {
				own = math.NaN()
			}
			if ref[i] = middle(at[k], own); !math.IsNaN(ref[i]) {
				known++
			}
		}
		if 2*known > len(ref) {
			t.ref = ref
		}
	}
}

// middle returns the median of sorted values without one of them, unless that is NaN; NaN if there
// are fewer than minPeers.
func middle(sorted []float64, without float64) float64 {
	n := len(sorted)
	skip := n
	if !math.IsNaN(without) {
		skip, _ = slices.BinarySearch(sorted, without)
		n--
	}
	if n < minPeers {
		return math.NaN()
	}
	pick := func(i int) float64 {
		if i >= skip {
			i++
		}
		return sorted[i]
	}
	return (pick((n-1)/2) + pick(n/2)) / 2
}

// residuals returns the values without a share of what peers did; NaN where that is not known.
func (t *track) residuals(share float64) []float64 {
	r := slices.Clone(t.y)
	for i := range t.ref {
		r[i] -= share * t.ref[i]
	}
	return r
}

// couple estimates which share of a thing's noise its peers have: the regression of differences between
// neighbours, which a change of level hardly affects, from 0 to 1. To subtract more than that would
// only add the peers' own noise.
func (g *group) couple() {
	var own, ref []float64
	for _, t := range g.tracks {
		for i := 1; i < len(t.ref); i++ {
			if d := t.ref[i] - t.ref[i-1]; !math.IsNaN(d) {
				own, ref = append(own, t.y[i]-t.y[i-1]), append(ref, d)
			}
		}
	}
	g.share = 1
	if len(ref) == 0 {
		return
	}
	cap := func(v []float64) float64 { return 3 * stat.Deviation(v) }
	limit, most := cap(own), cap(ref)
	var xy, xx float64
	for i, x := range ref {
		x = min(max(x, -most), most)
		xy, xx = xy+x*min(max(own[i], -limit), limit), xx+x*x
	}
	if xx > 0 {
		g.share = min(max(xy/xx, 0), 1)
	}
}

// sample returns the values to judge, without a share of what peers did, and their indices: not the
// outliers, nor what has no reference although there is one for most.
func (t *track) sample(at []float64, share float64) (*sample, []int) {
	s := &sample{floor: t.floor}
	var kept []int
	for i, y := range t.residuals(share) {
		if t.odd != nil && t.odd[i] || math.IsNaN(y) {
			continue
		}
		kept = append(kept, i)
		s.at, s.y = append(s.at, at[t.when[i]]), append(s.y, y)
	}
	return s, kept
}

// value returns the i-th value, which of a common track is relative to what is usual.
func (t *track) value(i int) float64 {
	if t.s == nil {
		return t.absolute(t.y[i])
	}
	return t.s.points[i].Value
}

// absolute returns y as a value.
func (t *track) absolute(y float64) float64 {
	if t.log {
		return math.Exp(y + t.mid)
	}
	return (y + t.mid) * t.scale
}

// relative returns a difference of y as a relative change of the value.
func (t *track) relative(d, before float64) float64 {
	switch {
	case t.log:
		return math.Expm1(d)
	case before == 0:
		return 0
	}
	return d * t.scale / math.Abs(before)
}
