package stat

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// A Sketch stores the distribution of any number of values of at least 0 in little memory.
// Quantiles are within SketchError of the true ones. The sketches of several machines can be
// merged in any order with the same result. It uses buckets with bounds in geometric progression
// (Masson, Rim and Lee, DDSketch, PVLDB 12, 2019). Count, Min and Max are exact.
//
// The zero value is ready to use. Its JSON consists of its fields.
type Sketch struct {
	Count   uint64           `json:"count"`
	Min     float64          `json:"min"`
	Max     float64          `json:"max"`
	Zeros   uint64           `json:"zeros,omitempty"`
	Buckets map[int32]uint64 `json:"buckets,omitempty"` // exponent of sketchBase → number of values up to it and above the previous one
}

// SketchError is the relative error of a quantile.
const SketchError = 0.01

var sketchLog = math.Log((1 + SketchError) / (1 - SketchError))

// maxBuckets is the number of buckets for the range of float64 with SketchError, from the
// smallest normal number up.
const maxBuckets = 72000

// Add adds a value. It refuses negative values, infinities and NaN.
func (s *Sketch) Add(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return fmt.Errorf("a sketch cannot hold %v", v)
	}
	if s.Count == 0 {
		s.Min, s.Max = v, v
	}
	s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	s.Count++
	if v < 0x1p-1022 {
		s.Zeros++
		return nil
	}
	if s.Buckets == nil {
		s.Buckets = map[int32]uint64{}
	}
	s.Buckets[int32(math.Ceil(math.Log(v)/sketchLog))]++
	return nil
}

// Merge adds the values of another sketch.
func (s *Sketch) Merge(o *Sketch) {
	if o.Count == 0 {
		return
	}
	if s.Count == 0 {
		s.Min, s.Max = o.Min, o.Max
	}
	s.Min, s.Max = min(s.Min, o.Min), max(s.Max, o.Max)
	s.Count += o.Count
	s.Zeros += o.Zeros
	if s.Buckets == nil {
		s.Buckets = make(map[int32]uint64, len(o.Buckets))
	}
	for k, n := range o.Buckets {
		s.Buckets[k] += n
	}
}

// Quantile returns the value below which the share q of all values lies; 0 for an empty sketch.
func (s *Sketch) Quantile(q float64) float64 {
	if s.Count == 0 {
		return 0
	}
	rank := uint64(q * float64(s.Count-1))
	if rank < s.Zeros {
		return s.Min
	}
	seen := s.Zeros
	keys := make([]int32, 0, len(s.Buckets))
	for k := range s.Buckets {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if seen += s.Buckets[k]; seen > rank {
			mid := 2 * math.Exp(float64(k)*sketchLog) / (math.Exp(sketchLog) + 1)
			return min(max(mid, s.Min), s.Max)
		}
	}
	return s.Max
}

// Validate checks a sketch that was received: counts must add up, and bounds must be in order.
func (s *Sketch) Validate() error {
	if len(s.Buckets) > maxBuckets {
		return fmt.Errorf("a sketch of %d buckets", len(s.Buckets))
	}
	total := s.Zeros
	for _, n := range s.Buckets {
		if n == 0 || total+n < total {
			return errors.New("a sketch with an empty bucket, or with too many values")
		}
		total += n
	}
	switch {
	case total != s.Count:
		return fmt.Errorf("a sketch of %d values whose buckets hold %d", s.Count, total)
	case math.IsNaN(s.Min) || math.IsInf(s.Max, 0) || s.Min < 0 || s.Min > s.Max:
		return fmt.Errorf("a sketch from %v to %v", s.Min, s.Max)
	}
	return nil
}
