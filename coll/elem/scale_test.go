package elem

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// scalar is the multiplier's bits in a type, from its definition.
func scalar(ty Type, s float64) uint64 {
	switch {
	case ty == Float64:
		return math.Float64bits(s)
	case ty.Float():
		return fromFloat(ty, float64(float32(s)))
	}
	return uint64(int64(s))
}

func TestScale(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand, l set, ty Type) {
		defer l.use()()
		for i, s := range []float64{1, 2, 3, 0.5, 1.0 / 3, 1.0 / 7, 100.75, 0, 1e-3} {
			for n := range 45 {
				dst, x, y := newGuarded(r, n*ty.Size()), newGuarded(r, n*ty.Size()), newGuarded(r, n*ty.Size())
				fill(r, ty, x.b)
				fill(r, ty, y.b)
				a, b := clone(x.b), clone(y.b)
				product := func(i int) uint64 { return reduceRef(ty, Prod, get(ty, b, i), scalar(ty, s)) }
				sum := func(i int) uint64 { return reduceRef(ty, Sum, get(ty, a, i), product(i)) }
				what := fmt.Sprintf("%d elements by %v", n, s)
				Scale(ty, dst.b, y.b, s)
				check(t, what, ty, dst.b, product)
				ReduceScaled(ty, dst.b, x.b, y.b, s)
				check(t, what+", added", ty, dst.b, sum)
				dst.check(t)
				in := x.b
				if i%2 == 0 {
					in = y.b
				}
				ReduceScaled(ty, in, x.b, y.b, s)
				check(t, what+", added in place", ty, in, sum)
				copy(y.b, b)
				Scale(ty, y.b, y.b, s)
				check(t, what+", in place", ty, y.b, product)
			}
		}
	})
}

// TestScalar is the conversion of the multiplier, at and beyond the limits.
func TestScalar(t *testing.T) {
	for _, tt := range []struct {
		ty    Type
		scale float64
		want  uint64
	}{
		{Int8, -2.9, 0xfefefefefefefefe},
		{Int8, 1000, 0x7f7f7f7f7f7f7f7f},
		{Int8, -1000, 0x8080808080808080},
		{Uint8, -3, 0},
		{Uint8, 300, 0xffffffffffffffff},
		{Int32, 7, 0x0000000700000007},
		{Uint32, 4e9, 0xee6b2800ee6b2800},
		{Int64, 1e30, math.MaxInt64},
		{Int64, math.NaN(), 0},
		{Uint64, 1e30, math.MaxUint64},
		{Uint64, 1 << 63, 1 << 63},
		{Uint64, math.NaN(), 0},
		{Float16, 1.0 / 3, 0x3555355535553555},
		{BFloat16, 1.0 / 3, 0x3eab3eab3eab3eab},
		{Float8E4M3, 1.0 / 3, 0x2b2b2b2b2b2b2b2b},
		{Float8E5M2, 1e9, 0x7b7b7b7b7b7b7b7b},
		{Float32, 0.5, 0x3f0000003f000000},
		{Float64, 0.5, 0x3fe0000000000000},
	} {
		if got := repeat(tt.ty, tt.scale); got != tt.want {
			t.Errorf("%v of %v = %#x; want %#x", tt.ty, tt.scale, got, tt.want)
		}
	}
}

func TestDivide(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, ty := range Types {
		if ty.Float() {
			continue
		}
		for _, n := range []int{1, 2, 3, 7, 8, 100, 1440, 65537, 1<<31 - 1, 1 << 40} {
			x := newGuarded(r, 500*ty.Size())
			fill(r, ty, x.b)
			for i := range 200 { // multiples of n and their neighbours
				put(ty, x.b, i, uint64(n)*uint64(i-20)+uint64(i%3)-1)
			}
			a := clone(x.b)
			Divide(ty, x.b, n)
			check(t, fmt.Sprintf("%v / %d", ty, n), ty, x.b, func(i int) uint64 {
				v := extend(ty, get(ty, a, i))
				if signed(ty) {
					return uint64(int64(v) / int64(n))
				}
				return v / uint64(n)
			})
			x.check(t)
		}
	}
}

// TestDivideExhaustive tries all there is of the narrowest types.
func TestDivideExhaustive(t *testing.T) {
	b := make([]byte, 256)
	for n := 1; n < 300; n++ {
		for i := range b {
			b[i] = byte(i)
		}
		Divide(Int8, b, n)
		for i, v := range b {
			if want := int(int8(i)) / n; int(int8(v)) != want {
				t.Fatalf("%d / %d = %d; want %d", int8(i), n, int8(v), want)
			}
		}
	}
}

func TestCopy(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	lens := []int{0, 1, 31, 32, 33, 4096, 3<<20 + 17}
	for i := range 300 {
		lens = append(lens, copyMin-50+i)
	}
	for name, f := range map[string]func(dst, src []byte){"Copy": Copy, "CopyNT": CopyNT} {
		for _, n := range lens {
			dst, src := newGuarded(r, n), newGuarded(r, n)
			for i := range src.b {
				src.b[i] = byte(i * 0x9e3779b1 >> 13)
			}
			f(dst.b, src.b)
			if !bytes.Equal(dst.b, src.b) {
				t.Errorf("%s: %d bytes differ", name, n)
			}
			dst.check(t)
			f(src.b, src.b)
			if !bytes.Equal(dst.b, src.b) {
				t.Errorf("%s: %d bytes differ after a copy onto themselves", name, n)
			}
		}
	}
}
