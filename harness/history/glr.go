package history

import (
	"math"
	"slices"
)

// A sample is a series that is ready to be tested: times in units of the median gap, and values,
// mostly logarithms.
type sample struct {
	at, y []float64
	floor float64 // the noise is at least this, in units of y
}

func (s *sample) slice(from, to int) *sample {
	return &sample{at: s.at[from:to], y: s.y[from:to], floor: s.floor}
}

// rhos are the correlations from one certificate to the next that noise may have.
var rhos = [...]float64{0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94, 0.98}

// A profile has a number for each of rhos: twice the negative logarithm of a likelihood.
type profile [len(rhos)]float64

// doubt is how much more a change must explain if what is left of the noise is correlated, which
// wanders by itself. It and the thresholds are from simulation: docs/certificate.md has the result,
// and TestFalse repeats a part of it.
var doubt = profile{0, 0, 1, 2, 3, 4, 5, 7, 10}

// sure is the threshold where the noise is known to be uncorrelated, and slack by how much less a
// change may explain if noise is Student's t.
const (
	sure  = 17.5
	slack = 1.5
)

// edge is how much more a change must explain if fewer than a quarter of n certificates are on its
// shorter side: there are more such changes that noise can look like.
func edge(kind shape, k, n int) float64 {
	short := min(k, n-k)
	if kind == ramp {
		short = n - k
	}
	return 3 * max(0, math.Log(float64(n)/4/float64(short)))
}

// threshold is the gain above which a change is one. Alone, the noise's correlation must be learned
// from the series itself, in which a change looks like correlation and the reverse; peers show it.
func (p *prior) threshold(n int) float64 {
	alone := max(24, 28-float64(n)/20)
	if !p.pooled {
		return alone
	}
	likely := 0
	for r := range rhos {
		if p.rho[r] < p.rho[likely] {
			likely = r
		}
	}
	return sure + (alone-sure)*min(1, rhos[likely]/0.6)
}

// minSide is the number of certificates that a level needs, minRamp that a slope needs.
const (
	minSide = 3
	minRamp = 5
)

// shape is how a value changes.
type shape int

const (
	step shape = iota
	ramp
)

// A change is the most likely change of a sample.
type change struct {
	shape shape
	at    int     // the first point after it
	size  float64 // of a step; of a ramp until the last point
	gain  float64 // twice the logarithm of the likelihood ratio against no change
	near  [2]int  // the confidence set of at lies between these, both included

	from, until int // the part of the series that it was found in
}

// minPoints is the number of certificates below which no change is found.
const minPoints = 2 * minSide

// prior is what is known from peers about a sample's noise: their profile, and their variance of
// innovations for each of rhos, worth so many values.
type prior struct {
	rho    profile
	weight float64
	square profile
	pooled bool // there are enough peers
}

// whitened is a sample from which a first-order autocorrelation was removed, and which is orthogonal to
// bases: the constant and, if that was asked for, another regressor.
type whitened struct {
	y      []float64
	bases  [][]float64 // orthonormal
	one    []float64   // the constant, whitened
	time   []float64
	first  []float64 // weight of a step's first point
	logdet float64
	rss    float64
}

// whiten removes the correlation. Between certificates that are g gaps apart it is rho^g, so a hole
// in a series weakens it.
func (s *sample) whiten(rho float64, more ...[]float64) *whitened {
	n := len(s.y)
	buf := make([]float64, 5*n)
	w := &whitened{y: buf[:n], one: buf[n : 2*n], time: buf[2*n : 3*n], first: buf[3*n : 4*n]}
	extra := buf[4*n:]
	for i := range n {
		phi, v := 0.0, 1/(1-rho*rho)
		if i > 0 {
			if rho > 0 {
				phi = math.Pow(rho, max(s.at[i]-s.at[i-1], 0.25))
			}
			v *= 1 - phi*phi
		}
		inv := 1 / math.Sqrt(v)
		w.logdet += math.Log(v)
		clear := func(x []float64) float64 {
			if i == 0 {
				return inv * x[0]
			}
			return inv * (x[i] - phi*x[i-1])
		}
		w.y[i], w.time[i], w.one[i], w.first[i] = clear(s.y), clear(s.at), inv*(1-phi), inv
		for _, x := range more {
			extra[i] = clear(x)
		}
	}
	w.base(w.one)
	if more != nil {
		w.base(extra)
	}
	w.rss = dot(w.y, w.y)
	for _, q := range w.bases {
		d := dot(w.y, q)
		w.rss -= d * d
	}
	w.rss = max(w.rss, 1e-300)
	return w
}

// base adds x to the bases, unless it is in the span of them.
func (w *whitened) base(x []float64) {
	q := slices.Clone(x)
	was := dot(q, q)
	for _, b := range w.bases {
		d := dot(q, b)
		for i := range q {
			q[i] -= d * b[i]
		}
	}
	length := dot(q, q)
	if length <= 1e-9*was {
		return
	}
	for i := range q {
		q[i] /= math.Sqrt(length)
	}
	w.bases = append(w.bases, q)
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// gains calls f for each possible change with its regressor's product with the values and with
// itself, both without the constant: the sum of squares falls by xy²/xx. All of them take one pass,
// from the end, since a whitened step is the whitened constant from there on but for its first point,
// and a ramp is the time minus a constant.
func (w *whitened) gains(at []float64, f func(s shape, k int, xy, xx float64)) {
	n, q := len(w.y), w.bases[0]
	mean := dot(w.y, q)
	var oy, oo, ty, tt, to, oq, tq float64
	for k := n - 1; k >= 1; k-- {
		one, time := w.one[k], w.time[k]
		if h := w.first[k]; k >= minSide && n-k >= minSide {
			p := oq + h*q[k]
			f(step, k, oy+h*w.y[k]-p*mean, oo+h*h-p*p)
		}
		oy, oo, oq = oy+one*w.y[k], oo+one*one, oq+one*q[k]
		ty, tt, tq, to = ty+time*w.y[k], tt+time*time, tq+time*q[k], to+time*one
		if n-k >= minRamp {
			t := at[k-1] // where it begins
			p := tq - t*oq
			f(ramp, k, ty-t*oy-p*mean, tt-2*t*to+t*t*oo-p*p)
		}
	}
}

// Without peers a step that explains less than the threshold is one, too, if the logarithm of its odds
// is above even, where there are enough certificates for that to tell more; closer is by how much less
// it may then explain if noise is Student's t, above slack. A step is expected to be expected standard
// deviations large. The numbers are from simulation, like the thresholds.
const (
	even     = 4.4
	enough   = 20
	closer   = 4
	expected = 4
)

// likely reports whether a step with uncorrelated noise is more probable than no step, with the
// correlation that makes it most probable: a Bayes factor (Kass and Raftery, J. Amer. Statist. Assoc.
// 90, 1995). Level and size of the noise may be any (Jeffreys' priors), the time too, and the step is
// normally distributed around 0. Unlike the likelihood ratio, it counts that a step must have its time
// and size by chance, which what wanders has several of.
func (s *sample) likely() bool {
	n := float64(len(s.y))
	if n < enough {
		return false
	}
	least := n * s.floor * s.floor
	none := math.Inf(-1)
	var steps []float64 // logarithms of likelihoods
	for r, rho := range rhos {
		w := s.whiten(rho)
		known := w.logdet + math.Log(dot(w.one, w.one))
		none = max(none, -(known+(n-1)*math.Log(max(w.rss, least)))/2)
		if r > 0 {
			continue
		}
		w.gains(s.at, func(kind shape, _ int, xy, xx float64) {
			if kind == step {
				wider := 1 + expected*expected*xx
				rss := w.rss - expected*expected*xy*xy/wider
				steps = append(steps, -(known+math.Log(wider)+(n-1)*math.Log(max(rss, least)))/2)
			}
		})
	}
	sum := 0.0
	for _, l := range steps {
		sum += math.Exp(l - none)
	}
	return math.Log(sum/float64(len(steps))) > even
}

// confidence is how much less likely a time of the change may be than the most likely one, in
// twice the logarithm of the likelihood: the quantile of chi-squared with one degree of freedom
// for 99 %.
const confidence = 6.63

// find returns the most likely change: the generalised likelihood ratio over its time, its shape
// and the noise's correlation and size (Basseville and Nikiforov, Detection of Abrupt Changes,
// 1993, 2.4), for Gaussian noise. Without a change the correlation may be another than with one, so
// what wanders is explained by correlation unless a change explains it much better.
func (s *sample) find(p *prior) (best change, ok bool) {
	n := len(s.y)
	if n < minPoints {
		return change{}, false
	}
	weight := float64(n) + p.weight
	cost := func(r int, rss, logdet float64) float64 {
		rss = max(rss, float64(n)*s.floor*s.floor)
		return weight*math.Log((rss+p.weight*p.square[r])/weight) + logdet + p.rho[r]
	}
	type found struct{ cost, xy, xx float64 }
	at := [2][]found{make([]found, n), make([]found, n)}
	for _, a := range at {
		for k := range a {
			a[k].cost = math.Inf(1)
		}
	}
	lowest, none := math.Inf(1), math.Inf(1)
	for r, rho := range rhos {
		w := s.whiten(rho)
		none = min(none, cost(r, w.rss, w.logdet))
		w.gains(s.at, func(kind shape, k int, xy, xx float64) {
			if xx <= 1e-9*float64(n) {
				return
			}
			rest := max(w.rss-xy*xy/xx, 1e-300)
			c := cost(r, rest, w.logdet) + doubt[r] + edge(kind, k, n)
			if c < at[kind][k].cost {
				at[kind][k] = found{c, xy, xx}
			}
			if c < lowest {
				lowest, best.shape, best.at = c, kind, k
			}
		})
	}
	if math.IsInf(lowest, 1) {
		return change{}, false
	}
	f := at[best.shape][best.at]
	best.gain, best.size, best.until = none-lowest, f.xy/f.xx, n
	if best.shape == ramp {
		best.size *= s.at[n-1] - s.at[best.at-1]
	}
	best.near = [2]int{best.at, best.at}
	for k, f := range at[best.shape] {
		if f.cost <= lowest+confidence {
			best.near = [2]int{min(best.near[0], k), max(best.near[1], k)}
		}
	}
	return best, true
}
