package probe

import (
	"math"
	"math/bits"
)

// A histogram counts times in buckets whose width grows with the value: exact
// to the nanosecond below 128 ns, to less than 1 % above, up to 18 minutes,
// in 18 KiB however many are counted. So percentiles are to be had of a test
// of any length. The zero value is empty.
type histogram struct {
	counts  [buckets]uint64
	n       uint64
	least   int64 // of the values, ns
	most    int64
	sum     float64
	squares float64 // of the differences from the first value
	first   float64
}

// A value's bucket is its position of the highest bit and the subBits below
// that.
const (
	subBits = 6
	exact   = 2 << subBits // below this each value has a bucket
	topBits = 40           // values above 2^40 ns count as that
	buckets = exact + (topBits-subBits-1)<<subBits
)

// Add counts a time in nanoseconds. A negative one, from a clock that went
// back, counts as 0.
func (h *histogram) Add(ns int64) { h.addMany(ns, 1) }

// addMany counts a time n times.
func (h *histogram) addMany(ns int64, n uint64) {
	ns = min(max(ns, 0), 1<<topBits-1)
	if h.n == 0 {
		h.least, h.most, h.first = ns, ns, float64(ns)
	}
	h.least, h.most = min(h.least, ns), max(h.most, ns)
	h.counts[bucket(uint64(ns))] += n
	h.n += n
	h.sum += float64(ns) * float64(n)
	d := float64(ns) - h.first
	h.squares += d * d * float64(n)
}

func bucket(v uint64) int {
	if v < exact {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// bounds are a bucket's first value and the next bucket's.
func bounds(i int) (from, to int64) {
	if i < exact {
		return int64(i), int64(i) + 1
	}
	shift := i>>subBits - 1
	sub := int64(i&(1<<subBits-1) | 1<<subBits)
	return sub << shift, (sub + 1) << shift
}

// Count is how many times were added.
func (h *histogram) Count() uint64 { return h.n }

// Quantile is the least time that a fraction q of all do not exceed, in
// nanoseconds, within the buckets' width; 0 if nothing was added.
func (h *histogram) Quantile(q float64) float64 {
	if h.n == 0 {
		return 0
	}
	rank := uint64(max(1, math.Ceil(q*float64(h.n))))
	switch { // the ends are known exactly
	case rank == 1:
		return float64(h.least)
	case rank >= h.n:
		return float64(h.most)
	}
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			from, to := bounds(i)
			middle := float64(from+to-1) / 2
			return min(max(middle, float64(h.least)), float64(h.most))
		}
	}
	return float64(h.most)
}

// Mean is the exact mean, in nanoseconds.
func (h *histogram) Mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// Stdev is the exact standard deviation of what was added, in nanoseconds.
func (h *histogram) Stdev() float64 {
	if h.n == 0 {
		return 0
	}
	d := h.Mean() - h.first
	return math.Sqrt(max(0, h.squares/float64(h.n)-d*d))
}

// A bin is how many times lie from From to less than To nanoseconds.
type bin struct {
	From, To float64
	Count    uint64
}

// Buckets are those that are not empty, merged to at most eight for each
// doubling, so that they fit a screen. scale divides the times: 2 for a test
// whose samples are round trips.
func (h *histogram) Buckets(scale int) (out []bin) {
	const coarse = 3 // bits
	s := float64(scale)
	for i, c := range h.counts {
		if c == 0 {
			continue
		}
		from, to := bounds(i)
		if drop := bits.Len64(uint64(from)) - coarse - 1; drop > 0 {
			from = from >> drop << drop
			to = from + 1<<drop
		}
		if n := len(out); n > 0 && out[n-1].From == float64(from)/s {
			out[n-1].Count += c
			continue
		}
		out = append(out, bin{float64(from) / s, float64(to) / s, c})
	}
	return out
}
