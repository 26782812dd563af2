package history

import (
	"math"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/stat"
)

// changes returns all changes of a sample, by time: after each step the two parts are searched anew.
func (s *sample) changes(p *prior) []change {
	c, ok := s.find(p)
	limit := p.threshold(len(s.y))
	if ok && c.gain <= limit && c.shape == step && !p.pooled && s.likely() {
		limit = c.gain - closer
	}
	if !ok || c.gain <= limit {
		return nil
	}
	if s.confirm(&c, p) <= limit-slack || c.gain <= limit*s.uneven(&c) {
		return nil
	}
	out := s.slice(0, c.at).changes(p)
	if len(out) > 0 {
		c.from = out[len(out)-1].at
	}
	if c.shape == ramp {
		return append(out, c)
	}
	after := s.slice(c.at, len(s.y)).changes(p)
	for i := range after {
		after[i].from += c.at
		after[i].at += c.at
		after[i].until += c.at
		after[i].near[0] += c.at
		after[i].near[1] += c.at
	}
	if len(after) > 0 {
		c.until = after[0].at
		if after[0].shape == ramp {
			c.until = max(c.at+1, after[0].at-1)
		}
	}
	return append(append(out, c), after...)
}

// nearby is the number of certificates at an end that say how large the noise is there.
const nearby = 12

// uneven returns by how much the variance of a change's size is larger than it would be with the same
// noise everywhere; 1 if that is not much.
func (s *sample) uneven(c *change) float64 {
	r := s.rest([]change{*c})
	n := len(r)
	mean := func(v []float64) float64 { return dot(v, v) / float64(len(v)) }
	all := mean(r)
	if all == 0 {
		return 1
	}
	before, after := float64(c.at), float64(n-c.at)
	sum := max(all, mean(r[:min(n, max(c.at, nearby))]))/before + max(all, mean(r[max(0, min(c.at, n-nearby)):]))/after
	if f := sum / (all/before + all/after); f > 1.3 {
		return f
	}
	return 1
}

// noise returns the restricted likelihood of a sample without a change, for each correlation, and the
// variance of the innovations. The likelihood itself would favour small correlations in short series.
func (s *sample) noise() (none, square profile) {
	n := float64(len(s.y))
	for r, rho := range rhos {
		w := s.whiten(rho)
		rss := max(w.rss, n*s.floor*s.floor)
		if rho == 0 && rss > w.rss { // nothing is known but that it is less than the floor
			for i := range square {
				square[i] = s.floor * s.floor
			}
			return none, square
		}
		free := n - 1
		square[r] = rss / free
		none[r] = free*math.Log(square[r]) + w.logdet + math.Log(dot(w.one, w.one))
	}
	return none, square
}

// power is how many standard errors a change is above what is just found, so that it is found with a
// probability of 95 %. It is more than the 1.645 of a normal distribution, since the noise is known
// from the same few values.
const power = 2

// soon is the number of certificates after a change within which it is to be found.
const soon = 8

// visible returns the smallest step that is found within eight certificates with a probability of
// 95 %, relative to the value, or half of the certificates if there are fewer than 16; 0 if there
// are too few for any.
func (s *sample) visible(p *prior, tolerance float64) float64 {
	n := len(s.y)
	if n < minPoints {
		return 0
	}
	at := n - min(soon, n/2)
	var rss, xx, logdet profile
	for r, rho := range rhos {
		w := s.whiten(rho)
		rss[r], logdet[r] = w.rss, w.logdet
		w.gains(s.at, func(kind shape, k int, _, square float64) {
			if kind == step && k == at {
				xx[r] = square
			}
		})
	}
	weight := float64(n) + p.weight
	cost := func(r int, rss float64) float64 {
		rss = max(rss, float64(n)*s.floor*s.floor)
		return weight*math.Log((rss+p.weight*p.square[r])/weight) + logdet[r] + p.rho[r]
	}
	one, likely := math.Inf(1), 0
	for r := range rhos {
		if c := cost(r, rss[r]) + doubt[r]; c < one {
			one, likely = c, r
		}
	}
	if xx[likely] <= 0 {
		return 0
	}
	gain := func(size float64) float64 {
		none := math.Inf(1)
		for r := range rhos {
			none = min(none, cost(r, rss[r]+size*size*xx[r]))
		}
		return none - one
	}
	low, high := 0.0, 1e-9
	limit := math.Pow(math.Sqrt(p.threshold(n)+edge(step, at, n))+power, 2)
	for gain(high) < limit {
		if low, high = high, 2*high; high > 1e3 {
			return 0
		}
	}
	for range 20 {
		if mid := (low + high) / 2; gain(mid) < limit {
			low = mid
		} else {
			high = mid
		}
	}
	return max(high, tolerance+power*math.Sqrt(max(rss[likely], float64(n)*s.floor*s.floor)/float64(n-2)/xx[likely]))
}

// level returns the value before (-1) or after (+1) a change: the median of the certificates there,
// or for a slope the end of the line that is nearest to the values.
func (t *track) level(s *sample, kept []int, all []change, c change, side int) float64 {
	if c.shape == step {
		part := kept[c.from:c.at]
		if side > 0 {
			part = kept[c.at:c.until]
		}
		var v []float64
		for _, i := range part {
			v = append(v, t.value(i))
		}
		return stat.Median(v)
	}
	var base []float64
	begin, long := s.at[c.at-1], s.at[c.until-1]-s.at[c.at-1]
	for i := c.from; i < c.until; i++ {
		base = append(base, s.y[i]-c.size*max(0, s.at[i]-begin)/long)
	}
	at := stat.Median(base)
	if side > 0 {
		at += c.size
	}
	return t.absolute(at)
}

// A NoiseChange is a change of the noise of a series, which is no drift.
type NoiseChange struct {
	At     time.Time `json:"at"`     // the first certificate after it
	Before float64   `json:"before"` // two standard deviations, relative to the value
	After  float64   `json:"after"`
}

// noiseZ is the number of standard deviations that a change of noise is above chance, at any of its
// possible times; noiseFactor is how much the noise must change.
const (
	noiseZ      = 4.2
	noiseFactor = 2
)

// noiseChange looks for a change of the noise in what changes and correlation leave.
func (t *track) noiseChange(s *sample, all []change, kept []int) *NoiseChange {
	rest := s.rest(all)
	var before, now float64
	for i := 1; i < len(rest); i++ {
		before, now = before+rest[i-1]*rest[i-1], now+rest[i]*rest[i-1]
	}
	rho := 0.0
	if before > 0 {
		rho = min(max(now/before, 0), 0.98)
	}
	e := make([]float64, 0, len(rest))
	for i := 1; i < len(rest); i++ {
		e = append(e, rest[i]-rho*rest[i-1])
	}
	at, z := noisier(e)
	if math.Abs(z) < noiseZ {
		return nil
	}
	a, b := max(stat.Deviation(e[:at]), s.floor), max(stat.Deviation(e[at:]), s.floor)
	if max(a, b) < noiseFactor*min(a, b) {
		return nil
	}
	out := &NoiseChange{Before: 2 * a, After: 2 * b}
	if t.s != nil {
		out.At = t.s.points[kept[at+1]].At
	}
	return out
}

// rest returns what peers and changes leave of a sample.
func (s *sample) rest(all []change) []float64 {
	r := slices.Clone(s.y)
	from := 0
	level := func(until int) {
		if until <= from {
			return
		}
		m := stat.Median(r[from:until])
		for i := from; i < until; i++ {
			r[i] -= m
		}
		from = until
	}
	for _, c := range all {
		if c.shape == step {
			level(c.at)
			continue
		}
		begin, long := s.at[c.at-1], s.at[c.until-1]-s.at[c.at-1]
		for i := c.at; i < c.until; i++ {
			r[i] -= c.size * (s.at[i] - begin) / long
		}
	}
	level(len(r))
	return r
}
