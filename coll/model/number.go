package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sort"
	"sync"
)

// A Type is the type of an element, with the values of ncclDataType_t.
type Type uint8

// The types.
const (
	Int8 Type = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16
	Float8E4M3
	Float8E5M2
	NumTypes
)

// Size is the size of an element in bytes.
func (t Type) Size() int { return [NumTypes]int{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}[t] }

// Float reports whether t is a type of floating-point numbers.
func (t Type) Float() bool { return t >= Float16 }

func (t Type) signed() bool { return t == Int8 || t == Int32 || t == Int64 }

// A Red is a reduction, with the values of ncclRedOp_t.
type Red uint8

// The reductions.
const (
	Sum Red = iota
	Prod
	Max
	Min
	Avg
	NumReds
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

var formats = [NumTypes]*format{
	Float16:    {expBits: 5, manBits: 10, infinities: true},
	BFloat16:   {expBits: 8, manBits: 7, infinities: true},
	Float8E4M3: {expBits: 4, manBits: 3},
	Float8E5M2: {expBits: 5, manBits: 2, infinities: true},
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

// Precision is the number of bits in a float type's significand, including the leading one:
// integers up to 2^Precision are exact.
func (t Type) Precision() int {
	switch t {
	case Float32:
		return 24
	case Float64:
		return 53
	}
	return formats[t].manBits + 1
}

// largest is the type's largest finite number, and smallest its smallest positive one.
func (t Type) largest() float64 {
	switch t {
	case Float32:
		return math.MaxFloat32
	case Float64:
		return math.MaxFloat64
	}
	nums := formats[t].numbers()
	return nums[len(nums)-1]
}

func (t Type) smallest() float64 {
	switch t {
	case Float32:
		return math.SmallestNonzeroFloat32
	case Float64:
		return math.SmallestNonzeroFloat64
	}
	return formats[t].numbers()[1]
}

// normal is the smallest number with all bits of the significand.
func (t Type) normal() float64 { return math.Ldexp(t.smallest(), t.Precision()-1) }

// Round returns the bit pattern of x in a float type, rounded to nearest even. In types of 8 and
// 16 bits x must be within the range.
func (t Type) Round(x float64) uint64 {
	switch t {
	case Float32:
		return uint64(math.Float32bits(float32(x)))
	case Float64:
		return math.Float64bits(x)
	}
	return formats[t].nearest(x)
}

// Number returns the value of a bit pattern of a float type; NaN if it is not finite.
func (t Type) Number(bits uint64) float64 {
	x := math.NaN()
	switch t {
	case Float32:
		x = float64(math.Float32frombits(uint32(bits)))
	case Float64:
		x = math.Float64frombits(bits)
	default:
		f := formats[t]
		sign := uint64(1) << (f.expBits + f.manBits)
		if i := bits &^ sign; i < uint64(len(f.numbers())) {
			x = f.numbers()[i]
		}
		if bits&sign != 0 {
			x = -x
		}
	}
	if math.IsInf(x, 0) {
		return math.NaN()
	}
	return x
}

// Exact returns the bit pattern of x, which the type must be able to represent.
func (t Type) Exact(x float64) uint64 {
	bits := t.Round(x)
	if t.Number(bits) != x {
		panic(fmt.Sprintf("%v is not exact in type %d", x, t))
	}
	return bits
}

// load and store read and write the bits of an element.
func (t Type) load(b []byte) uint64 {
	var word [8]byte
	copy(word[:], b[:t.Size()])
	return binary.LittleEndian.Uint64(word[:])
}

func (t Type) store(b []byte, bits uint64) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], bits)
	copy(b[:t.Size()], word[:])
}

// extend returns the value of a signed integer.
func (t Type) extend(bits uint64) int64 {
	unused := 64 - 8*t.Size()
	return int64(bits<<unused) >> unused
}

// integers reduces the elements of all ranks. Sums and products wrap around; an average is the
// sum, divided and cut toward zero.
func (t Type) integers(red Red, in []uint64) uint64 {
	acc := in[0]
	for _, x := range in[1:] {
		less := x < acc
		if t.signed() {
			less = t.extend(x) < t.extend(acc)
		}
		switch {
		case red == Prod:
			acc *= x
		case red == Sum || red == Avg:
			acc += x
		case less == (red == Min):
			acc = x
		}
	}
	switch {
	case red == Avg && t.signed():
		return uint64(t.extend(acc) / int64(len(in)))
	case red == Avg:
		return acc << (64 - 8*t.Size()) >> (64 - 8*t.Size()) / uint64(len(in))
	}
	return acc
}

// A float is a number that a computation gives, and by how much another order of the same
// computation, or more precision in between, may differ from it.
type float struct{ x, err float64 }

// unknown is the result where that is not bounded: beyond the type's range it may saturate or be
// infinite, and not only in the end.
var unknown = float{math.NaN(), math.Inf(1)}

func (f float) known() bool { return !math.IsInf(f.err, 1) && !math.IsNaN(f.x) }

// floats reduces the elements of all ranks in any order.
func (t Type) floats(red Red, in []float) float {
	n := float64(len(in))
	for _, v := range in {
		if !v.known() {
			return unknown
		}
	}
	if len(in) == 1 {
		return in[0]
	}
	var out float
	switch red {
	case Max, Min:
		out = in[0]
		for _, v := range in[1:] {
			if v.x != out.x && (v.x > out.x) == (red == Max) {
				out.x = v.x
			}
			out.err = max(out.err, v.err)
		}
	case Prod:
		out = t.product(in)
	case Avg:
		scaled := make([]float, len(in))
		for i, v := range in {
			scaled[i] = t.scaled(v, 1/n)
		}
		out = t.sum(scaled)
		out.err += n * t.smallest() // sums first may round otherwise
		if t.sum(in).err == 0 && out.err < math.Inf(1) && exactly(scaled) && t.sum(scaled).err == 0 {
			out.err = 0
		}
	default:
		out = t.sum(in)
	}
	if math.Abs(out.x)+out.err > t.largest() {
		return unknown
	}
	return out
}

func exactly(in []float) bool {
	for _, v := range in {
		if v.err != 0 {
			return false
		}
	}
	return true
}

// sum is exact where every partial sum is a number of the type.
func (t Type) sum(in []float) float {
	var out float
	size, step := 0.0, math.Inf(1) // what all are multiples of
	for _, v := range in {
		out.x += v.x
		out.err += v.err
		size += math.Abs(v.x)
		step = min(step, lowest(v.x))
	}
	if exactly(in) && size <= math.Ldexp(step, t.Precision()) && size <= t.largest() {
		return out
	}
	if size+out.err > t.largest() {
		return unknown
	}
	out.err += float64(len(in)) * (t.unit()*(size+out.err) + t.smallest())
	return out
}

// unit is how much rounding changes a number at most, as a share of it; twice that, so that
// bounds need no second thought.
func (t Type) unit() float64 { return math.Ldexp(1, 1-t.Precision()) }

// lowest is the value of the lowest bit that is set; +Inf for 0.
func lowest(x float64) float64 {
	if x == 0 {
		return math.Inf(1)
	}
	m, e := math.Frexp(math.Abs(x))
	i := uint64(math.Ldexp(m, 53))
	return math.Ldexp(1, e-53+bits.TrailingZeros64(i))
}

// product is exact where every partial product is a number of the type.
func (t Type) product(in []float) float {
	out, most, least, odd := float{x: 1}, 1.0, 1.0, 1.0
	largest := 1.0
	for _, v := range in {
		a := math.Abs(v.x)
		out.x *= v.x
		largest *= a + v.err
		if a > 1 {
			most *= a
		} else if a > 0 {
			least *= a
		}
		if a > 0 {
			odd *= a / lowest(a)
		}
	}
	switch inRange := most <= t.largest() && least >= t.normal(); {
	case exactly(in) && inRange && odd < math.Ldexp(1, t.Precision()):
		return out
	case exactly(in) && inRange:
		out.err = math.Abs(out.x)*(math.Pow(1+t.unit(), float64(len(in)))-1) + t.smallest()
		return out
	}
	return unknown
}

// scaled multiplies by a factor that is rounded to the type before.
func (t Type) scaled(v float, factor float64) float {
	if !v.known() {
		return unknown
	}
	out := float{v.x * factor, v.err * math.Abs(factor)}
	if math.Abs(out.x)+out.err > t.largest() || math.Abs(factor) > t.largest() {
		return unknown
	}
	frac, _ := math.Frexp(math.Abs(factor))
	if power := frac == 0.5 || factor == 0; !power || lowest(out.x) < t.smallest() || v.err > 0 {
		out.err = out.err*(1+4*t.unit()) + 2*t.unit()*math.Abs(out.x) + 2*t.smallest()
	}
	return out
}

// inOrder reduces the elements by the order of the ranks: with ASSAY_SAME_BITS=1 every result has
// these bits. Types of 8 and 16 bits are computed in float32, and rounded after each step on host
// memory but once on GPUs: where that makes a difference, the result is not known.
func (t Type) inOrder(red Red, in []float) float {
	each, once := in[0], in[0].x
	for _, v := range in[1:] {
		if !each.known() || !v.known() || each.err+v.err > 0 {
			return unknown
		}
		each.x, once = t.Number(t.Round(t.step(red, each.x, v.x))), t.step(red, once, v.x)
		if out := max(math.Abs(each.x), math.Abs(once)); !(out <= t.largest()) { // or NaN
			return unknown
		}
	}
	if t.Round(once) != t.Round(each.x) {
		return unknown
	}
	return each
}

// step is one addition or multiplication, in the type that it is computed in.
func (t Type) step(red Red, a, b float64) float64 {
	x := a + b
	if red == Prod {
		x = a * b
	}
	if t != Float64 {
		x = float64(float32(x))
	}
	return x
}
