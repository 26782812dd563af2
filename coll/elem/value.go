package elem

import "encoding/binary"

// Float reads the element at the start of b. Integers of 64 bits are rounded.
func Float(t Type, b []byte) float64 {
	switch t {
	case Int8:
		return float64(int8(b[0]))
	case Uint8:
		return float64(b[0])
	case Int32:
		return float64(view[int32](b[:4])[0])
	case Uint32:
		return float64(view[uint32](b[:4])[0])
	case Int64:
		return float64(view[int64](b[:8])[0])
	case Uint64:
		return float64(view[uint64](b[:8])[0])
	case Float32:
		return float64(view[float32](b[:4])[0])
	case Float64:
		return view[float64](b[:8])[0]
	}
	var one [1]float32
	widen(t, one[:], b[:t.Size()])
	return float64(one[0])
}

// Bits returns the bits of element i of b, from the lowest on.
func Bits(b []byte, t Type, i int) uint64 {
	switch t.Size() {
	case 1:
		return uint64(b[i])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b[2*i:]))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return binary.NativeEndian.Uint64(b[8*i:])
}

// AppendBits appends an element with the lowest of these bits.
func AppendBits(b []byte, t Type, bits uint64) []byte {
	switch t.Size() {
	case 1:
		return append(b, byte(bits))
	case 2:
		return binary.NativeEndian.AppendUint16(b, uint16(bits))
	case 4:
		return binary.NativeEndian.AppendUint32(b, uint32(bits))
	}
	return binary.NativeEndian.AppendUint64(b, bits)
}
