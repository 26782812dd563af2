package elem

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sort"
)

// floatFormat describes a float by its definition; its methods are slow and
// share nothing with the code under test.
type floatFormat struct {
	exponent, fraction int // bits
	bias               int
	nans               int  // how many of the largest positive patterns are NaN
	infinity           bool // whether the pattern below those is infinity
	saturate           bool // whether a conversion stops at the largest number

	values []float64 // of all positive patterns, made by init
}

var floatFormats = [numTypes]*floatFormat{
	Float16:    {5, 10, 15, 1<<10 - 1, true, false, nil},
	BFloat16:   {8, 7, 127, 1<<7 - 1, true, false, nil},
	Float8E4M3: {4, 3, 7, 1, false, true, nil},
	Float8E5M2: {5, 2, 15, 3, true, true, nil},
}

func (f *floatFormat) sign() uint64 { return 1 << (f.exponent + f.fraction) }

// largest is the pattern of the largest finite number.
func (f *floatFormat) largest() uint64 {
	n := f.sign() - 1 - uint64(f.nans)
	if f.infinity {
		n--
	}
	return n
}

// decode gives the value of a pattern.
func (f *floatFormat) decode(bits uint64) float64 {
	if bits&f.sign() != 0 {
		return -f.values[bits&^f.sign()]
	}
	return f.values[bits]
}

func init() {
	for _, f := range floatFormats {
		if f != nil {
			for i := range f.sign() {
				f.values = append(f.values, f.value(i))
			}
		}
	}
}

// value is decode for positive numbers, from the definition.
func (f *floatFormat) value(abs uint64) float64 {
	frac := float64(abs & (1<<f.fraction - 1))
	exp := int(abs >> f.fraction)
	switch {
	case f.infinity && abs == f.largest()+1:
		return math.Inf(1)
	case abs > f.largest():
		return math.NaN()
	case exp == 0:
		return math.Ldexp(frac, 1-f.bias-f.fraction)
	}
	return math.Ldexp(frac+float64(uint64(1)<<f.fraction), exp-f.bias-f.fraction)
}

// encode finds the nearest pattern by search.
func (f *floatFormat) encode(x float64) uint64 {
	if math.IsNaN(x) {
		return f.sign() - 1
	}
	var sign uint64
	if math.Signbit(x) {
		sign, x = f.sign(), -x
	}
	top := f.largest()
	above := uint64(sort.SearchFloat64s(f.values[:top+1], x))
	switch {
	case above == 0:
		return sign
	case above > top:
		step := f.decode(top) - f.decode(top-1)
		if !f.saturate && x >= f.decode(top)+step/2 {
			return sign | (top + 1)
		}
		return sign | top
	}
	down, up := x-f.decode(above-1), f.decode(above)-x
	if down < up || down == up && above%2 == 1 {
		above--
	}
	return sign | above
}

// toFloat and fromFloat convert any float type's bits.
func toFloat(t Type, bits uint64) float64 {
	switch t {
	case Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case Float64:
		return math.Float64frombits(bits)
	}
	return floatFormats[t].decode(bits)
}

func fromFloat(t Type, x float64) uint64 {
	switch {
	case t == Float32 && x != x:
		return 0x7fffffff
	case t == Float64 && x != x:
		return 0x7fffffffffffffff
	case t == Float32:
		return uint64(math.Float32bits(float32(x)))
	case t == Float64:
		return math.Float64bits(x)
	}
	return floatFormats[t].encode(x)
}

// floatRef is x op y in float64, from which every narrower result rounds as
// the exact one does.
func floatRef(op Op, x, y float64) float64 {
	less := func(x, y float64) bool { return x < y || x == y && math.Signbit(x) && !math.Signbit(y) }
	switch op {
	case Prod:
		return x * y
	case Max, Min:
		if x != x {
			return y
		}
		if y != y || less(x, y) == (op == Min) {
			return x
		}
		return y
	}
	return x + y
}

func signed(t Type) bool { return t == Int8 || t == Int32 || t == Int64 }

// extend makes an integer of t's bits.
func extend(t Type, bits uint64) uint64 {
	shift := 64 - 8*t.Size()
	if signed(t) {
		return uint64(int64(bits<<shift) >> shift)
	}
	return bits << shift >> shift
}

func reduceRef(t Type, op Op, x, y uint64) uint64 {
	if t.Float() {
		return fromFloat(t, floatRef(op, toFloat(t, x), toFloat(t, y)))
	}
	x, y = extend(t, x), extend(t, y)
	less := x < y
	if signed(t) {
		less = int64(x) < int64(y)
	}
	switch {
	case op == Prod:
		return x * y
	case op == Max && less, op == Min && !less:
		return y
	case op == Max, op == Min:
		return x
	}
	return x + y
}

func get(t Type, b []byte, i int) uint64 {
	var w [8]byte
	copy(w[:], b[i*t.Size():(i+1)*t.Size()])
	return binary.LittleEndian.Uint64(w[:])
}

func put(t Type, b []byte, i int, v uint64) {
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], v)
	copy(b[i*t.Size():(i+1)*t.Size()], w[:])
}

// fill writes random patterns, one in four a float's special value or an
// integer's limit.
func fill(r *rand.Rand, t Type, b []byte) {
	bits := 8 * t.Size()
	for i := range len(b) / t.Size() {
		v := r.Uint64()
		if r.IntN(4) == 0 {
			v = special(r, t)
		} else if t == Float32 || t == Float64 || t == BFloat16 {
			// Numbers of like size: sums and products that round.
			v = fromFloat(t, math.Ldexp(r.Float64()*2-1, r.IntN(9)-4))
		}
		put(t, b, i, v<<(64-bits)>>(64-bits))
	}
}

func special(r *rand.Rand, t Type) uint64 {
	top := uint64(1) << (8*t.Size() - 1)
	v := []uint64{0, 1, top - 1, top - 2, 3}[r.IntN(5)]
	if t.Float() {
		nums := []float64{0, 1, math.Inf(1), math.NaN(), 0x1p-14, 0x1p-126, 0x1p-1022, 0x1p-20, 3e38, 65504, 240}
		v = fromFloat(t, nums[r.IntN(len(nums))])
		if r.IntN(8) == 0 {
			v |= 1 // another NaN, or a neighbour
		}
	}
	return v | top*uint64(r.IntN(2))
}
