package diag

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestHalves: numbers of 16 bits.
func TestHalves(t *testing.T) {
	for v, want := range map[float64][2]uint16{
		0: {0, 0}, 1: {0x3f80, 0x3c00}, -1: {0xbf80, 0xbc00}, 0.5: {0x3f00, 0x3800}, -8: {0xc100, 0xc800}, 3: {0x4040, 0x4200},
		1.0 / 3: {0x3eaa, 0x3555}, 0.99999: {0x3f7f, 0x3bff}, 1e-6: {0x3586, 0},
	} {
		if got := [2]uint16{bfloat16(v), float16(v)}; got != want {
			t.Errorf("%v is %#x; want %#x", v, got, want)
		}
	}
}

// TestMismatches: what a kernel should leave, made here, is right, and one wrong
// result is seen; matrices are as wide as kernels read them.
func TestMismatches(t *testing.T) {
	s := shape{6, 10, 64}
	a, b := values(s.rows, s.k, 2, true), values(s.columns, s.k, 3, true)
	if slices.Max(a) != 8 || slices.Min(a) != -8 || slices.Equal(a[:64], b[:64]) {
		t.Errorf("whole numbers from %v to %v", slices.Min(a), slices.Max(a))
	}
	if w := values(6, 64, 2, false); slices.Max(w) > 1 || slices.Min(w) < -1 || slices.Max(w) < 0.9 {
		t.Errorf("numbers from %v to %v", slices.Min(w), slices.Max(w))
	}
	for k, bytes := range map[productKind]int{bf16: 2, fp16: 2, fp32: 4, fp64: 8} {
		if got := len(encode(k, a, s.rows)); got != bytes*s.rows*s.k {
			t.Errorf("%s: %d bytes", k, got)
		}
		var out []byte
		for r := range s.rows {
			for c := range s.columns {
				sum := 0.0
				for i := range s.k {
					sum += a[r*s.k+i] * b[c*s.k+i]
				}
				if k == fp64 {
					out = binary.LittleEndian.AppendUint64(out, math.Float64bits(3*sum))
				} else {
					out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(3*sum)))
				}
			}
		}
		if n, err := mismatches(k, out, s, a, b, 3); n != 0 || err != nil {
			t.Errorf("%s: %d are wrong, %v", k, n, err)
		}
		out[len(out)/2] ^= 1
		if n, err := mismatches(k, out, s, a, b, 3); n != 1 || err != nil {
			t.Errorf("%s, with a wrong bit: %d are wrong, %v", k, n, err)
		}
		if _, err := mismatches(k, out[1:], s, a, b, 3); err == nil {
			t.Errorf("%s: too few results", k)
		}
	}
	// The wide kinds have all rows' first number first.
	if b := encode(fp32, []float64{1, 2, 3, 4, 5, 6}, 2); fmt.Sprint(floats(b)) != "[1 4 2 5 3 6]" {
		t.Errorf("%v", floats(b))
	}
	if s.flops() != 2*6*10*64 {
		t.Errorf("%v operations", s.flops())
	}
}

func floats(b []byte) (out []float32) {
	for ; len(b) >= 4; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out
}

// TestMiscompares: what the kernel leaves is read, kept ones as many as there are.
func TestMiscompares(t *testing.T) {
	b := make([]byte, miscompareBytes)
	for i, v := range []uint64{2, 0x30, 0x7000, 1, 0x11, 0x8000, 2, 0x22} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	m, err := parseMiscompares(b)
	if err != nil || m.Count != 2 || m.Bits != 0x30 || len(m.First) != 2 || m.First[1] != (miscompare{0x8000, 2, 0x22}) {
		t.Errorf("%+v, %v", m, err)
	}
	binary.LittleEndian.PutUint64(b, 1000)
	many, err := parseMiscompares(b)
	if err != nil || many.Count != 1000 || len(many.First) != kept {
		t.Errorf("%+v, %v", many, err)
	}
	m.add(many)
	if m.Count != 1002 || len(m.First) != kept {
		t.Errorf("together: %+v", m)
	}
	if _, err := parseMiscompares(b[1:]); err == nil {
		t.Error("too few bytes")
	}
}
