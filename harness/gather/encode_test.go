package gather

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
)

// rich is a part in which every field is used.
func rich(t testing.TB) *packedSummary {
	sum := summary(t, 1)
	for _, r := range []int{2, 7, 1007} {
		sum.Merge(summary(t, r))
	}
	var wide stat.Sketch
	for _, v := range []float64{0, math.SmallestNonzeroFloat64, 1e-300, 1, 1e300, math.MaxFloat64} {
		if err := wide.Add(v); err != nil {
			t.Fatal(err)
		}
	}
	sum.Checks["wide"] = &Check{Verdicts: map[result.Verdict]int{result.Skip: 4}, Unit: "s", Values: &wide}
	sum.Checks["empty"] = &Check{Verdicts: map[result.Verdict]int{}}
	sum.Checks["below zero"] = &Check{Verdicts: map[result.Verdict]int{result.Error: 1}, Worst: []Worst{
		{Rank: 3, Object: "GPU 1 → GPU 2", Verdict: result.Error, Reason: "it broke", Value: -1.5, Score: math.Inf(-1)},
	}}
	sum.Checks["below zero"].Worst[0].Score = -3
	sum.Missing = []Missing{{Rank: 5, Host: "node5", Reason: "no answer within 3s"}, {Rank: 9, Reason: "no answer within 3s"}}
	return &packedSummary{Covers: [][2]int{{1, 2}, {7, 7}, {1007, 1007}}, Summary: sum}
}

func TestEncode(t *testing.T) {
	for name, p := range map[string]*packedSummary{
		"all fields": rich(t),
		"nothing":    {Covers: [][2]int{}, Summary: &Summary{Verdicts: map[result.Verdict]int{}, Checks: map[string]*Check{}}},
	} {
		b := p.encode()
		got, err := decode(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%s: %+v became %+v", name, p, got)
		}
		if !bytes.Equal(got.encode(), b) {
			t.Errorf("%s: it is written in another way the second time", name)
		}
		for n := range b {
			if _, err := decode(b[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes are accepted", name, n, len(b))
			}
		}
		if _, err := decode(append(b, 0)); err == nil || !strings.Contains(err.Error(), "1 bytes too many") {
			t.Errorf("%s: with another byte: %v", name, err)
		}
	}
}

// TestDecodeErrors: each sentence that a decoder says of what it does not take.
func TestDecodeErrors(t *testing.T) {
	numbers := func(n ...uint64) []byte {
		b := []byte{partVersion}
		for _, v := range n {
			b = binary.AppendUvarint(b, v)
		}
		return b
	}
	// Two strings "b" and "a"; no covers; 1 rank, no verdicts; two checks.
	checks := func(first, second uint64) []byte {
		b := append([]byte{partVersion, 2, 1, 'b', 1, 'a'}, 0, 1, 0, 0, 0, 0, 0, 2)
		for _, id := range []uint64{first, second} {
			b = binary.AppendUvarint(b, id)
			b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // verdicts, unit, no sketch, no worst
		}
		return append(b, 0)
	}
	nan := append([]byte{partVersion, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}, 0x7f, 0xf8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	for _, tt := range []struct {
		b    []byte
		want string
	}{
		{nil, "it ends too early"},
		{[]byte{2}, "format 2, and this program reads 1"},
		{numbers(1 << 40), "strings; at most"},
		{numbers(1<<20, 1), "it ends too early"},
		{numbers(0, 1<<30), "ranges of ranks; at most"},
		{numbers(0, 1, 1<<30, 0), "ranks between ranges; at most"},
		{numbers(0, 0, 1<<30), "ranks; at most"},
		{numbers(0, 0, 1, 0, 0, 0, 0, 0, 1<<20), "checks; at most"},
		{checks(1, 0), ""},
		{checks(0, 1), `check "a" after "b"`},
		{checks(1, 1), `check "a" after "a"`},
		{checks(1, 2), "string 2 of 2"},
		{nan, "a value that is not a number"},
		{bytes.Repeat([]byte{0xff}, 30), "format 255"},
		{append([]byte{partVersion}, bytes.Repeat([]byte{0xff}, 30)...), "it ends too early"},
	} {
		_, err := decode(tt.b)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("decode(%x): %v; want %q", tt.b, err, tt.want)
		}
	}
}

// TestDecodeMemory: lengths that are lies allocate nothing.
func TestDecodeMemory(t *testing.T) {
	for name, b := range map[string][]byte{
		"strings": {partVersion, 0xff, 0xff, 0x7f},
		"covers":  {partVersion, 0, 0xff, 0xff, 0x3f},
		"missing": {partVersion, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0x3f},
	} {
		got := testing.Benchmark(func(b2 *testing.B) {
			for range b2.N {
				decode(b)
			}
		}).AllocedBytesPerOp()
		if got > 4096 {
			t.Errorf("%s: %d bytes are allocated for %d", name, got, len(b))
		}
	}
}

// FuzzPart: a part that is accepted holds together, merges, and is read again as
// the same.
func FuzzPart(f *testing.F) {
	f.Add([]byte(sent([][2]int{{1, 1}}, 1, 1)))
	f.Add((&packedSummary{Covers: [][2]int{{1, 1}}, Summary: summary(f, 1)}).encode())
	f.Add(rich(f).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePart(b, 1, 100, 4)
		if err != nil {
			return
		}
		again, err := decodePart(p.encode(), 1, 100, 4)
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("%+v is read again as %+v, %v", p, again, err)
		}
		m := merge(0, small(0), []*packedSummary{{Covers: p.Covers, sent: b}}, subtree(0, 100, 4), func(r int) Missing { return Missing{Rank: r, Reason: "x"} })
		if m.Summary.Ranks+len(m.Summary.Missing) != 100 {
			t.Fatalf("%d ranks and %d missing ones", m.Summary.Ranks, len(m.Summary.Missing))
		}
		if err := m.Summary.validate(); err != nil {
			t.Fatal(err)
		}
	})
}
