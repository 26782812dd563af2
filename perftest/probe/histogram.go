package probe

import (
	"math"
	"math/bits"
)

// A histogram counts times in buckets that get wider with the value: exact to the nanosecond below
// 128 ns, and to less than 1 % above, up to 18 minutes. It has a fixed size of 18 KiB, so that
// percentiles are available for tests of any length. The zero value is empty.
type histogram struct {
	counts  [buckets]uint64
	n       uint64
	least   int64 // of the values, ns
	most    int64
	sum     float64
	squares float64 // of the differences from the first value
	first   float64
}

// The bucket of a value is determined by the position of its highest bit and the subBits bits below
// it.
const (
	subBits = 6
	exact   = 2 << subBits // values below it have a bucket each
	topBits = 40           // values above 2^40 ns count as 2^40 ns
	buckets = exact + (topBits-subBits-1)<<subBits
)

// Add counts a time in nanoseconds. A negative time, from a clock that went back, counts as 0.
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

// bounds returns the first value of a bucket and of the next bucket.
func bounds(i int) (from, to int64) {
	if i < exact {
		return int64(i), int64(i) + 1
	}
	shift := i>>subBits - 1
	sub := int64(i&(1<<subBits-1) | 1<<subBits)
	return sub << shift, (sub + 1) << shift
}

// Count is the number of times that were added.
func (h *histogram) Count() uint64 { return h.n }

// Quantile is the smallest time that at least a fraction q of all times do not exceed, in
// nanoseconds, with the precision of the buckets; 0 if nothing was added.
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

// Stdev is the exact standard deviation, in nanoseconds.
func (h *histogram) Stdev() float64 {
	if h.n == 0 {
		return 0
	}
	d := h.Mean() - h.first
	return math.Sqrt(max(0, h.squares/float64(h.n)-d*d))
}

// A bin is the number of times from From to less than To nanoseconds.
type bin struct {
	From, To float64
	Count    uint64
}

// Buckets returns the non-empty buckets, merged to at most eight per power of two, so that they fit
// on a screen. scale divides the times: 2 for a test with round trips as samples.
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
