package history

import (
	"math"
	"slices"

	"github.com/assay-hpc/assay/internal/stat"
)

// successive estimates a standard deviation from the differences between neighbours, on which a
// step or a slope has little effect.
func successive(v []float64) float64 {
	if len(v) < 2 {
		return 0
	}
	d := make([]float64, len(v)-1)
	for i := range d {
		d[i] = v[i+1] - v[i]
	}
	return stat.Deviation(d) / math.Sqrt2
}

// resolution returns the step that values were rounded to: the largest power of ten, at most 1,
// of which they are all multiples; 0 for values with more than six decimals.
func resolution(v []float64) float64 {
	for step := 1.0; step > 1e-7; step /= 10 {
		fits := func(x float64) bool {
			k := x / step
			return math.Abs(k-math.Round(k)) < 1e-6*max(1, math.Abs(k)*1e-6)
		}
		if !slices.ContainsFunc(v, func(x float64) bool { return !fits(x) }) {
			return step
		}
	}
	return 0
}

// A line is a robust fit, y = at0 + slope·x, with a confidence interval of the slope.
type line struct{ at0, slope, low, high float64 }

// blocks is the maximum number of points in a fit: the number of pairs grows with its square.
const blocks = 64

// thin reduces a series to at most blocks points, each the median of neighbours.
func thin(x, y []float64) (bx, by []float64) {
	if len(x) <= blocks {
		return x, y
	}
	for i := range blocks {
		from, to := i*len(x)/blocks, (i+1)*len(x)/blocks
		bx, by = append(bx, stat.Median(x[from:to])), append(by, stat.Median(y[from:to]))
	}
	return bx, by
}

// theilSen fits a line by the median of all pairs' slopes (Theil 1950, Sen 1968). The interval is
// Sen's, from the normal approximation of Kendall's S, z deviations wide. It fails if there are
// fewer than two different x.
func theilSen(x, y []float64, z float64) (l line, ok bool) {
	x, y = thin(x, y)
	n := len(x)
	slopes := make([]float64, 0, n*(n-1)/2)
	for i := range x {
		for j := i + 1; j < n; j++ {
			if x[j] != x[i] {
				slopes = append(slopes, (y[j]-y[i])/(x[j]-x[i]))
			}
		}
	}
	if len(slopes) == 0 {
		return line{}, false
	}
	slices.Sort(slopes)
	l.slope = stat.Median(slopes)
	rest := make([]float64, n)
	for i := range x {
		rest[i] = y[i] - l.slope*x[i]
	}
	l.at0 = stat.Median(rest)
	c := z * math.Sqrt(float64(n*(n-1)*(2*n+5))/18)
	m := float64(len(slopes))
	lo, hi := int(math.Floor((m-c)/2)), int(math.Ceil((m+c)/2))
	l.low, l.high = math.Inf(-1), math.Inf(1)
	if lo >= 0 && hi < len(slopes) {
		l.low, l.high = slopes[lo], slopes[hi]
	}
	return l, true
}

// A step is where the median of a series changes: at is the number of points before it.
type step struct {
	at            int
	before, after float64 // medians
}

// findStep returns the best split into two levels: the one with the smallest sum of absolute
// distances from the two medians, which finds the step even if some points are outliers. There
// are at least minBefore points before it and minAfter after it.
func findStep(v []float64, minBefore, minAfter int) (best step, ok bool) {
	n := len(v)
	if n < minBefore+minAfter {
		return step{}, false
	}
	before := costs(v)
	backwards := slices.Clone(v)
	slices.Reverse(backwards)
	after := costs(backwards) // of the last n values
	for k := minBefore; k <= n-minAfter; k++ {
		if cost := before[k] + after[n-k]; !ok || cost < before[best.at]+after[n-best.at] {
			best.at, ok = k, true
		}
	}
	best.before = stat.Median(v[:best.at])
	// Of two middle values take the one nearer to before: with two points, both must have
	// changed.
	last := slices.Sorted(slices.Values(v[best.at:]))
	low, high := last[(len(last)-1)/2], last[len(last)/2]
	if best.after = low; math.Abs(high-best.before) < math.Abs(low-best.before) {
		best.after = high
	}
	return best, true
}

// costs returns, for each n from 0 to all values, the sum of the distances of the first n values
// from their median. One heap contains their lower half, another their upper half.
func costs(v []float64) []float64 {
	out := make([]float64, 1, len(v)+1)
	var lower, upper half // the lower one holds negated values
	for _, x := range v {
		if len(lower.heap) > 0 && x < -lower.heap[0] {
			lower.push(-x)
		} else {
			upper.push(x)
		}
		if len(lower.heap) > len(upper.heap) {
			upper.push(-lower.pop())
		} else if len(upper.heap) > len(lower.heap)+1 {
			lower.push(-upper.pop())
		}
		cost := upper.sum + lower.sum
		if len(upper.heap) > len(lower.heap) {
			cost -= upper.heap[0] // the median itself
		}
		out = append(out, max(cost, 0))
	}
	return out
}

// A half is a min-heap of numbers with their sum.
type half struct {
	heap []float64
	sum  float64
}

func (h *half) push(x float64) {
	h.sum += x
	h.heap = append(h.heap, x)
	for i := len(h.heap) - 1; i > 0 && h.heap[i] < h.heap[(i-1)/2]; i = (i - 1) / 2 {
		h.heap[i], h.heap[(i-1)/2] = h.heap[(i-1)/2], h.heap[i]
	}
}

func (h *half) pop() float64 {
	x, n := h.heap[0], len(h.heap)-1
	h.sum -= x
	h.heap[0] = h.heap[n]
	h.heap = h.heap[:n]
	for i := 0; ; {
		least := i
		for _, c := range []int{2*i + 1, 2*i + 2} {
			if c < n && h.heap[c] < h.heap[least] {
				least = c
			}
		}
		if least == i {
			return x
		}
		h.heap[i], h.heap[least] = h.heap[least], h.heap[i]
		i = least
	}
}

// residuals returns the distances from a step's two levels.
func (s step) residuals(v []float64) []float64 {
	r := make([]float64, len(v))
	for i, x := range v {
		r[i] = x - s.before
		if i >= s.at {
			r[i] = x - s.after
		}
	}
	return r
}

// significance returns the distance between a step's levels in standard errors, for noise of
// sigma. The standard error of a median is √(π/2) times that of a mean.
func (s step) significance(n int, sigma float64) float64 {
	d := math.Abs(s.after - s.before)
	if d == 0 {
		return 0
	}
	return d / (sigma * math.Sqrt(math.Pi/2*(1/float64(s.at)+1/float64(n-s.at))))
}
