package elem

import "math"

// A format is a float format narrower than float32 with subnormal numbers: half and the
// 8-bit formats.
type format struct {
	fraction uint32 // bits
	bias     uint32
	max      float32 // the largest finite number
}

var (
	formatHalf = format{10, 15, 65504}
	formatE4M3 = format{3, 7, 448}
	formatE5M2 = format{2, 15, 57344}
)

// round returns the bits of |x| in the format, rounded to nearest even. x must not be
// NaN, and must be at most the format's largest number or round to it. Normal numbers are
// rounded on their bits; subnormal numbers by adding a number with a last place that is
// the format's smallest step.
func (f format) round(x float32) uint32 {
	abs := math.Float32bits(x) &^ (1 << 31)
	if smallest := (128 - f.bias) << 23; abs < smallest {
		magic := math.Float32frombits((127 + 23 + 1 - f.bias - f.fraction) << 23)
		return math.Float32bits(math.Float32frombits(abs)+magic) - math.Float32bits(magic)
	}
	shift := 23 - f.fraction
	abs += 1<<(shift-1) - 1 + abs>>shift&1
	return (abs - (127-f.bias)<<23) >> shift
}

// The NaNs that are stored, see Reduce.
const (
	nan32 = 0x7fffffff
	nan64 = 0x7fffffffffffffff
)

func toHalf(x float32) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	switch abs := math.Float32frombits(math.Float32bits(x) &^ (1 << 31)); {
	case x != x:
		return 0x7fff
	case abs >= 65520: // half-way between the largest number and the next power
		return sign | 0x7c00
	default:
		return sign | uint16(formatHalf.round(abs))
	}
}

// fromHalf corrects the exponent by a multiplication, which also normalises subnormal
// numbers.
func fromHalf(h uint16) float32 {
	abs := uint32(h&0x7fff) << 13
	if h&0x7c00 == 0x7c00 {
		abs |= 0xff << 23
	} else {
		abs = math.Float32bits(math.Float32frombits(abs) * (1 << 112))
	}
	return math.Float32frombits(abs | uint32(h&0x8000)<<16)
}

func toBFloat16(x float32) uint16 {
	if x != x {
		return 0x7fff
	}
	b := math.Float32bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func fromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// to8 saturates: see Reduce.
func (f format) to8(x float32) uint8 {
	if x != x {
		return 0x7f
	}
	sign := uint8(math.Float32bits(x) >> 24 & 0x80)
	abs := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	return sign | uint8(f.round(min(abs, f.max)))
}

// The 8-bit floats' values.
var fromE4M3, fromE5M2 = decodeTables()

func decodeTables() (e4m3, e5m2 [256]float32) {
	for i := range 256 {
		e5m2[i] = fromHalf(uint16(i) << 8)
		// A half with e4m3's bits has an exponent that is 8 too small.
		e4m3[i] = fromHalf(uint16(i&0x80)<<8|uint16(i&0x7f)<<7) * 256
		if i&0x7f == 0x7f {
			e4m3[i] = math.Float32frombits(nan32)
		}
	}
	return e4m3, e5m2
}

// widen converts len(dst) elements of a 16- or 8-bit float type to float32. It uses a
// switch, not a table, so that the compiler sees that dst does not escape.
func widen(t Type, dst []float32, src []byte) {
	switch t {
	case Float16:
		for i, v := range view[uint16](src)[:len(dst)] {
			dst[i] = fromHalf(v)
		}
	case BFloat16:
		for i, v := range view[uint16](src)[:len(dst)] {
			dst[i] = fromBFloat16(v)
		}
	case Float8E4M3:
		for i, v := range src[:len(dst)] {
			dst[i] = fromE4M3[v]
		}
	case Float8E5M2:
		for i, v := range src[:len(dst)] {
			dst[i] = fromE5M2[v]
		}
	}
}

// narrow rounds len(src) numbers to a 16- or 8-bit float type.
func narrow(t Type, dst []byte, src []float32) {
	switch t {
	case Float16:
		out := view[uint16](dst)[:len(src)]
		for i, v := range src {
			out[i] = toHalf(v)
		}
	case BFloat16:
		out := view[uint16](dst)[:len(src)]
		for i, v := range src {
			out[i] = toBFloat16(v)
		}
	case Float8E4M3:
		out := dst[:len(src)]
		for i, v := range src {
			out[i] = formatE4M3.to8(v)
		}
	case Float8E5M2:
		out := dst[:len(src)]
		for i, v := range src {
			out[i] = formatE5M2.to8(v)
		}
	}
}
