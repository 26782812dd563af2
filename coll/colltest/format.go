package colltest

import (
	"fmt"
	"math"
	"sort"
	"sync"

	"github.com/assay-hpc/assay/coll/elem"
)

// A format is a floating-point type of 8 or 16 bits, defined by its numbers: they are decoded
// from the definition and encoded by looking them up, so that there is no rounding code here that
// could be wrong in the same way as an engine's.
type format struct {
	expBits, manBits int
	infinities       bool // the highest exponent is for infinities and NaNs; else only all ones is NaN (OCP E4M3)

	once   sync.Once
	sorted []float64 // the finite numbers from +0 up; the index is the bit pattern
}

var formats = [...]*format{
	elem.Float16:    {expBits: 5, manBits: 10, infinities: true},
	elem.BFloat16:   {expBits: 8, manBits: 7, infinities: true},
	elem.Float8E4M3: {expBits: 4, manBits: 3},
	elem.Float8E5M2: {expBits: 5, manBits: 2, infinities: true},
}

// numbers returns the finite non-negative numbers. The bit patterns of such formats are in the
// order of their values.
func (f *format) numbers() []float64 {
	f.once.Do(func() {
		n := 1 << (f.expBits + f.manBits)
		if f.infinities {
			n -= 1 << f.manBits
		} else {
			n--
		}
		bias := 1<<(f.expBits-1) - 1
		for bits := range n {
			exp, man := bits>>f.manBits, float64(bits&(1<<f.manBits-1))/float64(int(1)<<f.manBits)
			if exp == 0 {
				f.sorted = append(f.sorted, math.Ldexp(man, 1-bias))
			} else {
				f.sorted = append(f.sorted, math.Ldexp(1+man, exp-bias))
			}
		}
	})
	return f.sorted
}

// nearest returns the bit pattern of the number nearest to x, the even one if two are equally
// near. x must be within the format's range.
func (f *format) nearest(x float64) uint64 {
	nums := f.numbers()
	a := math.Abs(x)
	i := sort.SearchFloat64s(nums, a)
	if i == len(nums) {
		i--
	}
	if i > 0 {
		if below, above := a-nums[i-1], nums[i]-a; below < above || below == above && i%2 == 1 {
			i--
		}
	}
	bits := uint64(i)
	if math.Signbit(x) {
		bits |= 1 << (f.expBits + f.manBits)
	}
	return bits
}

// precision is the number of bits in a float type's significand, including the leading one:
// integers up to 2^precision are exact.
func precision(t elem.Type) int {
	switch t {
	case elem.Float32:
		return 24
	case elem.Float64:
		return 53
	}
	return formats[t].manBits + 1
}

// round returns the bit pattern of x in a float type, rounded to nearest even.
func round(t elem.Type, x float64) uint64 {
	switch t {
	case elem.Float32:
		return uint64(math.Float32bits(float32(x)))
	case elem.Float64:
		return math.Float64bits(x)
	}
	return formats[t].nearest(x)
}

// number returns the value of a finite bit pattern of a float type.
func number(t elem.Type, bits uint64) float64 {
	switch t {
	case elem.Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case elem.Float64:
		return math.Float64frombits(bits)
	}
	f := formats[t]
	sign := uint64(1) << (f.expBits + f.manBits)
	x := f.numbers()[bits&^sign]
	if bits&sign != 0 {
		x = -x
	}
	return x
}

// exact returns the bit pattern of x, which the type must be able to represent.
func exact(t elem.Type, x float64) uint64 {
	bits := round(t, x)
	if number(t, bits) != x {
		panic(fmt.Sprintf("colltest: %v is not exact in %v", x, t))
	}
	return bits
}

// store writes element i.
func store(t elem.Type, p []byte, i int, bits uint64) { elem.AppendBits(p[:i*t.Size()], t, bits) }

// Fold computes dst[i] = ((srcs[0][i] op srcs[1][i]) op srcs[2][i]) …, like an engine that has
// all sources available: sums and products of 16- and 8-bit floats are accumulated in float32,
// and rounded once. A single source is copied.
func Fold(t elem.Type, op elem.Op, dst []byte, srcs [][]byte) {
	if copy(dst, srcs[0]); len(srcs) == 1 {
		return
	}
	size := t.Size()
	if !t.Float() || size > 2 || op == elem.Max || op == elem.Min {
		for _, s := range srcs[1:] {
			elem.Reduce(t, op, dst, dst, s)
		}
		return
	}
	one := make([]byte, size)
	store(t, one, 0, exact(t, 1))
	parallel(len(dst)/size, func(from, to int) {
		for at := from * size; at < to*size; at += size {
			acc := float32(elem.Float(t, srcs[0][at:]))
			for _, s := range srcs[1:] {
				if x := float32(elem.Float(t, s[at:])); op == elem.Prod {
					acc *= x
				} else {
					acc += x
				}
			}
			elem.Scale(t, dst[at:at+size], one, float64(acc)) // rounds
		}
	})
}
