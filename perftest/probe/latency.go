package probe

import (
	"math"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/stat"
)

// A LatencyResult is one line of a latency test. Times are in nanoseconds, one way for writes and
// sends, round trip for reads and atomics.
type LatencyResult struct {
	Bytes      uint64
	Iterations uint64
	Min, Max   float64 // Max is the second largest, see newLatency
	Typical    float64 // the median
	Average    float64
	Stdev      float64
	P99, P999  float64
	TPS        float64    // messages and replies per second, with a duration; otherwise 0
	Timed      bool       // of a test with a duration
	Samples    []float64  // in order of arrival, if requested
	Histogram  *histogram // of the measured times, if there is one; each is RoundTrips times a sample
	RoundTrips int        // divisor of the measured times
	Cycles     float64    // of the processor's counter in a nanosecond; 0 if not measured
}

// tail is the number of largest samples that perftest leaves out.
const tail = 2

// newLatency makes a result from the times between messages, in nanoseconds, as perftest does: each
// time is divided by roundTrips, and the two largest are left out, except that Max is the second
// largest. The standard deviation differs: perftest truncates each deviation to whole microseconds
// before it squares it, this function does not. Without any times the result is all zeros.
func newLatency(bytes, iterations uint64, deltas []int64, roundTrips int) LatencyResult {
	r := LatencyResult{Bytes: bytes, Iterations: iterations, RoundTrips: roundTrips, Histogram: new(histogram), Samples: make([]float64, len(deltas))}
	for i, d := range deltas {
		r.Histogram.Add(d)
		r.Samples[i] = float64(d) / float64(roundTrips)
	}
	sorted := slices.Sorted(slices.Values(r.Samples))
	if len(sorted) == 0 {
		return r
	}
	m := len(sorted) - tail
	if m < 1 { // too few samples to leave any out
		m = len(sorted)
	}
	at := func(i int) float64 { return sorted[min(i, len(sorted)-1)] }
	kept := sorted[:m]
	r.Min, r.Max, r.Typical = sorted[0], at(m), stat.Median(kept)
	r.P99, r.P999 = at(int(math.Ceil(0.99*float64(m)))), at(int(math.Ceil(0.999*float64(m))))
	r.Average, r.Stdev = stat.Moments(kept)
	return r
}

// timedLatency makes a result for a test with a duration: the iterations within the window, and the
// histogram of their times. perftest has only the average and the rate.
func timedLatency(bytes, iterations uint64, window time.Duration, h *histogram, roundTrips int) LatencyResult {
	r := LatencyResult{Bytes: bytes, Iterations: iterations, Timed: true, Histogram: h, RoundTrips: roundTrips}
	if iterations > 0 && window > 0 {
		r.Average = float64(window) / float64(iterations) / float64(roundTrips)
		r.TPS = float64(iterations) / window.Seconds()
	}
	if h != nil && h.Count() > 0 {
		s := float64(roundTrips)
		r.Min, r.Max, r.Stdev = float64(h.least)/s, float64(h.most)/s, h.Stdev()/s
		r.Typical, r.P99, r.P999 = r.Quantile(0.5), r.Quantile(0.99), r.Quantile(0.999)
	}
	return r
}

// Quantile is a quantile of the histogram, in the result's unit; NaN without one. Unlike P99 it
// includes all samples.
func (r *LatencyResult) Quantile(q float64) float64 {
	if r.Histogram == nil || r.Histogram.Count() == 0 {
		return math.NaN()
	}
	return r.Histogram.Quantile(q) / float64(max(1, r.RoundTrips))
}
