package perf

import (
	"math"

	"github.com/assay-hpc/assay/coll/elem"
)

// A floatFormat is a binary floating-point layout: sign, exponent, mantissa. It is independent of
// the engine, so that verification finds mistakes in the engine's conversions.
type floatFormat struct {
	ebits, mbits int
	// minScale and maxScale bound the powers of two by which the integers of a sum are scaled:
	// each integer and the sum of all of them stay normal numbers.
	minScale, maxScale int
	// avgExp is the exponent of the values that are averaged: a value divided by 1,440 ranks is
	// still normal, and twice the value is still finite.
	avgExp int
}

var floatFormats = map[elem.Type]floatFormat{
	elem.Float16:    {5, 10, -8, 3, 0},
	elem.Float32:    {8, 23, -20, 20, 0},
	elem.Float64:    {11, 52, -100, 100, 0},
	elem.BFloat16:   {8, 7, -20, 20, 0},
	elem.Float8E4M3: {4, 3, -3, 3, 6},
	elem.Float8E5M2: {5, 2, -6, 6, 8},
}

func (f floatFormat) bias() int { return 1<<(f.ebits-1) - 1 }

// encode rounds v to nearest even. v must be finite and not above the normal range.
func (f floatFormat) encode(v float64) uint64 {
	var sign uint64
	if math.Signbit(v) {
		sign = 1 << (f.ebits + f.mbits)
		v = -v
	}
	if v == 0 {
		return sign
	}
	_, e := math.Frexp(v)
	e = max(e-1, 1-f.bias()) // v = m × 2^e, m in [1, 2) unless v is subnormal
	q := uint64(math.RoundToEven(math.Ldexp(v, f.mbits-e)))
	if q>>(f.mbits+1) != 0 { // rounded up to the next power of two
		e, q = e+1, q>>1
	}
	if q>>f.mbits == 0 {
		return sign | q
	}
	return sign | uint64(e+f.bias())<<f.mbits | q&(1<<f.mbits-1)
}

// decode returns the value of a bit pattern that is neither infinite nor NaN.
func (f floatFormat) decode(bits uint64) float64 {
	m, e := bits&(1<<f.mbits-1), int(bits>>f.mbits&(1<<f.ebits-1))
	if e == 0 {
		e = 1 // subnormal
	} else {
		m |= 1 << f.mbits
	}
	v := math.Ldexp(float64(m), e-f.bias()-f.mbits)
	if bits>>(f.ebits+f.mbits)&1 != 0 {
		v = -v
	}
	return v
}

// ulps is how far apart two bit patterns are as unsigned integers.
func ulps(a, b uint64) uint64 { return max(a, b) - min(a, b) }
