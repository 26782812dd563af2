package elem

import "testing"

func TestFloat(t *testing.T) {
	for _, typ := range Types {
		for _, want := range []float64{0, 1, 2, 96} {
			b := make([]byte, 8)
			one := make([]byte, 8)
			size := typ.Size()
			storeOne(typ, one[:size])
			Scale(typ, b[:size], one[:size], want)
			if got := Float(typ, b[:size]); got != want {
				t.Errorf("Float(%v, %x) = %v; want %v", typ, b[:size], got, want)
			}
		}
	}
}

// storeOne stores a one, little end first.
func storeOne(typ Type, b []byte) {
	switch typ {
	case Float16:
		b[1] = 0x3c
	case BFloat16:
		b[0], b[1] = 0x80, 0x3f
	case Float32:
		b[2], b[3] = 0x80, 0x3f
	case Float64:
		b[6], b[7] = 0xf0, 0x3f
	case Float8E4M3:
		b[0] = 0x38
	case Float8E5M2:
		b[0] = 0x3c
	default:
		b[0] = 1
	}
}
