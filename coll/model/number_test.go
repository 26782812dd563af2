package model

import "testing"

// TestFormats: well-known numbers of the small float types.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		t    Type
		bits uint64
		want float64
	}{
		{Float16, 0x3c00, 1}, {Float16, 0x7bff, 65504}, {Float16, 0x0001, 0x1p-24}, {Float16, 0xc000, -2},
		{BFloat16, 0x3f80, 1}, {BFloat16, 0x7f7f, 0x1.fep127}, {BFloat16, 0x4049, 3.140625},
		{Float8E4M3, 0x38, 1}, {Float8E4M3, 0x7e, 448}, {Float8E4M3, 0x01, 0x1p-9}, {Float8E4M3, 0xb8, -1},
		{Float8E5M2, 0x3c, 1}, {Float8E5M2, 0x7b, 57344}, {Float8E5M2, 0x01, 0x1p-16},
		{Float32, 0x3f800000, 1}, {Float64, 0x4000000000000000, 2},
	} {
		if got := c.t.Number(c.bits); got != c.want {
			t.Errorf("%v: %#x stands for %v; want %v", c.t, c.bits, got, c.want)
		}
		if got := c.t.Exact(c.want); got != c.bits {
			t.Errorf("%v: %v is %#x; want %#x", c.t, c.want, got, c.bits)
		}
	}
	for _, f := range formats {
		if f == nil {
			continue // a type with float32's or float64's bits, or an integer
		}
		for i, x := range f.numbers() {
			if i > 0 && x <= f.numbers()[i-1] {
				t.Fatalf("%+v: numbers are not in order at %d", f, i)
			}
		}
	}
	// Between 2 (0x4000) and the next, 2.001953125: ties go to even.
	for x, want := range map[float64]uint64{2.0009: 0x4000, 2.0009765625: 0x4000, 2.001: 0x4001, 2.0029296875: 0x4002} {
		if got := Float16.Round(x); got != want {
			t.Errorf("%v is rounded to %#x; want %#x", x, got, want)
		}
	}
}
