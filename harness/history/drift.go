package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/stat"
)

// Requirements for a drift. The package comment explains them.
const (
	minBefore, minAfter = 3, 2
	minTrend            = 8
	sigmas              = 3
	trendZ              = 3.29 // 99.9 %, two-sided
	reportZ             = 1.96 // 95 %
)

// stepZ returns how many standard errors a step must exceed.
func stepZ(before, after int) float64 { return 5 + 24/float64(min(before, after)) }

// finish judges a series.
func (s *series) finish(tolerance float64, changes []Change) Series {
	slices.SortFunc(s.points, func(a, b Value) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Value, b.Value)) })
	n := len(s.points)
	t0 := s.points[0].At
	days, values := make([]float64, n), make([]float64, n)
	for i, p := range s.points {
		days[i], values[i] = p.At.Sub(t0).Hours()/24, p.Value
	}
	out := Series{Thing: s.thing, Points: n, First: values[0], Last: values[n-1], Median: stat.Median(values), Better: s.better, Limit: s.limit, Values: s.points}
	floor := s.floor(values)
	flat := make([]float64, n)
	for i, v := range values {
		flat[i] = v - out.Median
	}
	sigma := max(stat.Deviation(flat), successive(values), floor)
	if d, fit := s.step(values, tolerance, floor); d != nil {
		out.Drift, sigma = d, fit
	}
	if n > 2 {
		if l, ok := theilSen(days, values, reportZ); ok {
			out.Trend = &Trend{PerDay: l.slope}
			if !math.IsInf(l.low, 0) && !math.IsInf(l.high, 0) {
				out.Trend.Low, out.Trend.High = &l.low, &l.high
			}
		}
	}
	if d, fit := s.trend(days, values, tolerance, floor); d != nil && (out.Drift == nil || fit < sigma) {
		out.Drift, sigma = d, fit
	}
	out.Noise = 2 * sigma
	if out.Drift != nil {
		for _, c := range changes {
			if c.At.After(out.Drift.From) && !c.At.After(out.Drift.To) {
				out.Drift.With = append(out.Drift.With, c)
			}
		}
	}
	return out
}

// floor returns the lower bound of the noise: from the spreads that certificates state, and from
// how values were rounded.
func (s *series) floor(values []float64) float64 {
	half := make([]float64, len(s.points))
	for i, p := range s.points {
		half[i] = p.spread
	}
	return max(stat.Median(half)/2, resolution(values)/2)
}

// step returns a drift if there is a step, and the noise around its levels.
func (s *series) step(values []float64, tolerance, floor float64) (*Drift, float64) {
	st, ok := findStep(values, minBefore, minAfter)
	if !ok {
		return nil, 0
	}
	sigma := max(stat.Deviation(st.residuals(values)), successive(values), floor)
	n := len(values)
	if !significant(st.before, st.after, tolerance, sigma) || st.significance(n, sigma) <= stepZ(st.at, n-st.at) {
		return nil, 0
	}
	return s.drift(Step, st.before, st.after, sigma, s.points[st.at-1].At, s.points[st.at].At), sigma
}

// trend returns a drift if there is a slope, and the noise around its line.
func (s *series) trend(days, values []float64, tolerance, floor float64) (*Drift, float64) {
	n := len(values)
	if n < minTrend {
		return nil, 0
	}
	l, ok := theilSen(days, values, trendZ)
	if !ok || l.low <= 0 && l.high >= 0 {
		return nil, 0
	}
	rest := make([]float64, n)
	for i := range values {
		rest[i] = values[i] - l.at0 - l.slope*days[i]
	}
	sigma := max(stat.Deviation(rest), successive(values), floor)
	before, after := l.at0+l.slope*days[0], l.at0+l.slope*days[n-1]
	if !significant(before, after, tolerance, sigma) {
		return nil, 0
	}
	return s.drift(Slope, before, after, sigma, s.points[0].At, s.points[n-1].At), sigma
}

// significant reports whether a change is larger than both tolerance and noise.
func significant(before, after, tolerance, sigma float64) bool {
	d := math.Abs(after - before)
	return d > tolerance*math.Abs(before) && d > sigmas*sigma
}

func (s *series) drift(k DriftKind, before, after, sigma float64, from, to time.Time) *Drift {
	return &Drift{
		Thing: s.thing, Kind: k, Before: before, After: after, Change: relative(before, after), Noise: 2 * sigma,
		From: from, To: to, Better: improved(before, after, s.better),
	}
}

// relative returns a change relative to the value before; 0 if that is 0.
func relative(before, after float64) float64 {
	if before == 0 {
		return 0
	}
	return (after - before) / math.Abs(before)
}
