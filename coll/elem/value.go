package elem

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
