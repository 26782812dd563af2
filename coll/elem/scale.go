package elem

import (
	"encoding/binary"
	"math"
)

// repeat converts a multiplier to t and fills 8 bytes with it.
func repeat(t Type, scale float64) uint64 {
	var v uint64
	switch t {
	case Int8:
		v = uint64(truncate(scale, math.MinInt8, math.MaxInt8))
	case Uint8:
		v = truncateUnsigned(scale, math.MaxUint8)
	case Int32:
		v = uint64(truncate(scale, math.MinInt32, math.MaxInt32))
	case Uint32:
		v = truncateUnsigned(scale, math.MaxUint32)
	case Int64:
		v = uint64(truncate(scale, math.MinInt64, math.MaxInt64))
	case Uint64:
		v = truncateUnsigned(scale, math.MaxUint64)
	case Float32:
		v = uint64(math.Float32bits(float32(scale)))
	case Float64:
		v = math.Float64bits(scale)
	default:
		// Through float32, as NCCL does.
		var one [2]byte
		narrow(t, one[:t.Size()], []float32{float32(scale)})
		v = uint64(binary.NativeEndian.Uint16(one[:]))
	}
	switch t.Size() {
	case 1:
		return v & 0xff * 0x0101010101010101
	case 2:
		return v & 0xffff * 0x0001000100010001
	case 4:
		return v & 0xffffffff * 0x0000000100000001
	}
	return v
}

// truncate converts towards zero. Values out of range become the limit, and NaN becomes
// 0; Go leaves both to the machine.
func truncate(x float64, lo, hi int64) int64 {
	switch {
	case x != x:
		return 0
	case x <= float64(lo):
		return lo
	case x >= float64(hi):
		return hi
	}
	return int64(x)
}

func truncateUnsigned(x float64, hi uint64) uint64 {
	switch {
	case !(x > 0):
		return 0
	case x >= float64(hi):
		return hi
	}
	return uint64(x)
}

// Divide divides every element by n in place: the second half of an integer
// average. Signed quotients are truncated towards zero. Floats are averaged by
// ReduceScaled; Divide panics on them, and when n is not positive.
func Divide(t Type, dst []byte, n int) {
	if n <= 0 {
		panic("elem: division by a count of ranks that is not positive")
	}
	if t.Size() == 0 || len(dst)%t.Size() != 0 {
		badLength()
	}
	switch t {
	case Int8:
		divide32(view[int8](dst), n)
	case Uint8:
		divide32(view[uint8](dst), n)
	case Int32:
		divide32(view[int32](dst), n)
	case Uint32:
		divide32(view[uint32](dst), n)
	case Int64:
		divide64(view[int64](dst), int64(n))
	case Uint64:
		divide64(view[uint64](dst), uint64(n))
	default:
		panic("elem: integer division of " + t.String())
	}
}

// divide32 multiplies by the reciprocal in float64 and truncates. A quotient of integers
// below 2^32 is at least 1/n below the next integer, unless it is exact. The two
// roundings move it by less than 2^-52 of itself, so increasing the reciprocal by as much
// keeps exact quotients at or above their integer, and the others below the next.
func divide32[T int8 | uint8 | int32 | uint32](s []T, n int) {
	r := reciprocal(n)
	for i, v := range s {
		s[i] = T(int64(float64(v) * r))
	}
}

func reciprocal(n int) float64 { return math.Nextafter(1/float64(n), 1) }

func divide64[T int64 | uint64](s []T, n T) {
	for i, v := range s {
		s[i] = v / n
	}
}
