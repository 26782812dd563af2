package elem

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestAsOnNVIDIA compares with digests of what a GPU gave for the same inputs
// (testdata/nvidia.py made them): the same bits, in rounding, signs of zero, NaN
// and saturation. Of float64 the GPU keeps a NaN's payload, the only difference:
// there the digest is of any NaN as this package's.
func TestAsOnNVIDIA(t *testing.T) {
	text, err := os.ReadFile("testdata/h200.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		ty, ok := ParseType(f[0])
		op := Op(slices.Index(opNames[:], f[1]))
		if !ok || !op.Valid() {
			t.Fatalf("testdata/h200.txt: %q", line)
		}
		a, b := gpuInputs(ty)
		for _, l := range implementations() {
			dst := make([]byte, len(a))
			l.loops[ty].reduce[op](dst, a, b)
			if sum := sha256.Sum256(dst); hex.EncodeToString(sum[:]) != f[2] {
				t.Errorf("%s: %v %v differs from the GPU's", l.name, ty, op)
			}
		}
		n++
	}
	if n != 24 {
		t.Errorf("%d digests; want 6 types by 4 reductions", n)
	}
}

// gpuInputs are those of testdata/nvidia.py: for 8-bit types every pair, else
// hashed bits with special values strewn in.
func gpuInputs(ty Type) (a, b []byte) {
	const n = 1 << 16
	a, b = make([]byte, n*ty.Size()), make([]byte, n*ty.Size())
	if ty.Size() == 1 {
		for i := range n {
			a[i], b[i] = byte(i>>8), byte(i)
		}
		return a, b
	}
	special := map[int][]uint64{
		2: {0, 0x8000, 0x7c00, 0xfc00, 0x7e01, 0xfe00, 0x7c01, 0x3c00, 1, 0x8001, 0x7f80, 0xff80, 0x7fc0, 0x3f80},
		4: {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc00000, 0x7f800001, 0x3f800000, 1, 0x80000001},
		8: {0, 1 << 63, 0x7ff << 52, 0xfff << 52, 0x7ff8000000000001, 0xfff8000000000000, 0x3ff0000000000000, 1},
	}[ty.Size()]
	for which, s := range [][]byte{a, b} {
		period := 5 + 2*which
		for i := range n {
			v := mix(uint64(2*i + which))
			if i%period == 0 {
				v = special[i/period%len(special)]
			}
			put(ty, s, i, v)
		}
	}
	return a, b
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
