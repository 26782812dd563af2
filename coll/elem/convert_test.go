package elem

import (
	"math"
	"math/rand/v2"
	"testing"
)

var narrowTypes = []Type{Float16, BFloat16, Float8E4M3, Float8E5M2}

// TestWiden tries every pattern of every narrow type.
func TestWiden(t *testing.T) {
	for _, ty := range narrowTypes {
		f := floatFormats[ty]
		for i := range uint64(1) << (8 * ty.Size()) {
			var b [2]byte
			var got [1]float32
			put(ty, b[:], 0, i)
			widen(ty, got[:], b[:])
			want := f.decode(i)
			if math.IsNaN(want) && got[0] != got[0] {
				continue
			}
			if math.Float64bits(float64(got[0])) != math.Float64bits(want) {
				t.Fatalf("%v %#x = %v; want %v", ty, i, got[0], want)
			}
		}
	}
}

// TestNarrow tries each number of a type, the middle between it and the next,
// the float32 neighbours of both, and random patterns.
func TestNarrow(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, ty := range narrowTypes {
		f := floatFormats[ty]
		var in []float32
		near := func(x float64) {
			v := float32(x)
			in = append(in, v, -v, math.Nextafter32(v, 1e38), math.Nextafter32(v, -1e38))
		}
		for i := range f.largest() {
			near(f.decode(i))
			near((f.decode(i) + f.decode(i+1)) / 2)
		}
		top := f.decode(f.largest())
		near(top)
		near(top + (top-f.decode(f.largest()-1))/2)
		in = append(in, math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e-45)
		for range 20000 {
			in = append(in, math.Float32frombits(r.Uint32()))
		}
		out := make([]byte, len(in)*ty.Size())
		narrow(ty, out, in)
		for i, x := range in {
			if got, want := get(ty, out, i), f.encode(float64(x)); got != want {
				t.Fatalf("%v of %v (%#x) = %#x; want %#x", ty, x, math.Float32bits(x), got, want)
			}
		}
	}
}
