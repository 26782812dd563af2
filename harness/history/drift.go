package history

import (
	"math"
	"slices"

	"github.com/assay-hpc/assay/internal/stat"
)

// A pool is what tracks of one kind, on all machines, say about the noise.
type pool struct {
	tracks []*track
	sum    profile // of all
	square profile // median of all
}

// poolWeight is the number of series that a pool counts as, however many there are: noise may differ
// between peers. varianceWeight is the number of values that the pool's variance counts as.
const (
	poolWeight     = 4
	varianceWeight = 4
)

func (p *pool) close() {
	all := make([]float64, len(p.tracks))
	for r := range rhos {
		for i, t := range p.tracks {
			p.sum[r] += t.none[r]
			all[i] = t.square[r]
		}
		p.square[r] = stat.Median(all)
	}
}

// prior returns what the pool says about a track's noise without the track itself.
func (p *pool) prior(t *track) *prior {
	others := len(p.tracks)
	own := slices.Contains(p.tracks, t)
	if own {
		others--
	}
	if others < minPeers {
		return &prior{}
	}
	out := &prior{weight: varianceWeight, square: p.square, pooled: true}
	w := min(1, poolWeight/float64(others))
	for r := range rhos {
		sum := p.sum[r]
		if own {
			sum -= t.none[r]
		}
		out.rho[r] = w * sum
	}
	return out
}

// poolKey: figures beside their peers have less noise than those alone.
type poolKey struct {
	kind
	how string
}

func (t *track) poolKey(g *group) poolKey {
	switch {
	case t == g.common:
		return poolKey{g.kind, "common"}
	case t.ref != nil:
		return poolKey{g.kind, "peers"}
	}
	return poolKey{g.kind, "alone"}
}

// A judge decides about groups.
type judge struct {
	tolerance float64
	pools     map[poolKey]*pool
}

// learn adds a group's tracks to the pools.
func (j *judge) learn(g *group) {
	g.refer()
	g.clean()
	g.couple()
	for _, t := range append([]*track{g.common}, g.tracks...) {
		if t == nil {
			continue
		}
		s, _ := t.sample(g.at, g.share)
		if len(s.y) < minPoints {
			continue
		}
		// A change must not look like noise or a correlation to others.
		if all := s.changes(&prior{}); len(all) > 0 {
			s.y = s.rest(all)
			if t == g.common {
				g.share = 1
			}
		}
		t.none, t.square = s.noise()
		k := t.poolKey(g)
		if j.pools[k] == nil {
			j.pools[k] = new(pool)
		}
		j.pools[k].tracks = append(j.pools[k].tracks, t)
	}
}

// clean marks outliers. With few values a track's own deviation is uncertain, so that of most counts
// too.
func (g *group) clean() {
	var all []float64
	rest := make([][]float64, len(g.tracks))
	for i, t := range g.tracks {
		rest[i] = t.residuals(1)
		all = append(all, successive(slices.DeleteFunc(slices.Clone(rest[i]), math.IsNaN)))
	}
	typical := stat.Median(all)
	for i, t := range g.tracks {
		t.mark(rest[i], max(all[i], typical))
	}
	if c := g.common; c != nil {
		c.mark(c.y, successive(c.y))
	}
}

func (t *track) mark(rest []float64, sigma float64) {
	sigma = max(sigma, t.floor)
	t.odd = make([]bool, len(rest))
	var known []float64
	var index []int
	for i, v := range rest {
		if !math.IsNaN(v) {
			known, index = append(known, v), append(index, i)
		}
	}
	for i, odd := range outliers(known, sigma) {
		t.odd[index[i]] = odd
	}
}

// A verdict is what was found about a track.
type verdict struct {
	changes []change // by time; at is an index of the track's values
	gain    float64  // the largest
	agrees  bool     // the value itself changed, and not only its peers
	noise   *NoiseChange
	seen    float64 // smallest relative change that would have been found; 0 if there are too few values
}

// group judges the tracks of a group. What changed most is taken out of the references first, and
// what did change itself before what only looks as if it had, since its peers did: so four slow GPUs
// of eight are those that became slow.
func (j *judge) group(g *group) map[*track]verdict {
	out := map[*track]verdict{}
	for range g.tracks {
		best, agrees := 0.0, false
		for _, t := range g.tracks {
			if t.changed {
				continue
			}
			v := j.track(g, t)
			out[t] = v
			if v.gain > 0 && (v.agrees && !agrees || v.agrees == agrees && v.gain > best) {
				best, agrees = v.gain, v.agrees
			}
		}
		again := false
		for _, t := range g.tracks {
			if v := out[t]; !t.changed && v.gain > 0 && v.agrees == agrees && v.gain >= best/2 {
				t.changed, again = true, t.ref != nil
			}
		}
		if !again {
			break
		}
		g.refer()
		g.clean()
	}
	for _, t := range g.tracks {
		if t.changed && t.ref != nil {
			out[t] = j.track(g, t)
		}
	}
	if g.common != nil {
		out[g.common] = j.track(g, g.common)
	}
	return out
}

// track judges one track.
func (j *judge) track(g *group, t *track) (v verdict) {
	s, kept := t.sample(g.at, g.share)
	p := &prior{}
	if pl := j.pools[t.poolKey(g)]; pl != nil {
		p = pl.prior(t)
	}
	all := s.changes(p)
	if len(all) == 0 {
		v.seen = s.visible(p, j.tolerance)
		if t.log {
			v.seen = -math.Expm1(-v.seen)
		}
		if v.seen > 0.5 {
			v.seen = 0
		}
	}
	v.noise = t.noiseChange(s, all, kept)
	at, raw, beside := make([]float64, len(t.y)), slices.Clone(t.y), t.residuals(1)
	for i, k := range t.when {
		if at[i] = g.at[k]; t.odd[i] {
			raw[i], beside[i] = math.NaN(), math.NaN()
		}
	}
	for _, c := range all {
		if c.shape == step && len(all) > 1 { // it was found beside others
			c.size = c.shift(s.at, s.y)
		}
		before := t.level(s, kept, all, c, -1)
		c = c.of(kept)
		own, other := c.shift(at, raw), c.size
		if t.ref != nil {
			other = c.shift(at, beside)
		}
		if c.size*other <= 0 || math.Abs(other) < math.Abs(c.size)/2 {
			continue // its peers did the same
		}
		if before != 0 && math.Abs(t.relative(c.size, before)) <= j.tolerance || math.Abs(c.size) <= 1.5*t.grain || t.byChance(c) {
			continue
		}
		v.gain = max(v.gain, c.gain)
		v.agrees = v.agrees || own*c.size > 0 && math.Abs(own) >= math.Abs(c.size)/2
		v.changes = append(v.changes, c)
	}
	return v
}

// shift returns by how much values differ because of a change: the regression on its shape, without
// what is not known.
func (c *change) shift(at, y []float64) float64 {
	var n, sx, sy, xx, xy float64
	for i := c.from; i < c.until; i++ {
		x := 0.0
		switch {
		case math.IsNaN(y[i]):
			continue
		case i >= c.at && c.shape == ramp:
			x = (at[i] - at[c.at-1]) / (at[c.until-1] - at[c.at-1])
		case i >= c.at:
			x = 1
		}
		n, sx, sy, xx, xy = n+1, sx+x, sy+y[i], xx+x*x, xy+x*y[i]
	}
	return (n*xy - sx*sy) / (n*xx - sx*sx)
}

// chance is how many runs of outliers may look like the shorter side of a change.
const chance = 0.004

// byChance reports whether a change may be a run of the outliers that the series has.
func (t *track) byChance(c change) bool {
	odd := 0
	for _, o := range t.odd {
		odd += boolInt(o)
	}
	n := float64(len(t.odd))
	return n*math.Pow(float64(odd)/n, float64(min(c.at-c.from, c.until-c.at))) > chance
}

// of returns a change with the indices of a track's values for those of its sample.
func (c change) of(kept []int) change {
	c.from, c.at, c.until = kept[c.from], kept[c.at], kept[c.until-1]+1
	c.near = [2]int{kept[c.near[0]], kept[c.near[1]]}
	return c
}
