package perf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
)

// reduceIn combines inputs with the engine's loops in an order, as a tree whose
// shape the random numbers choose.
func reduceIn(t elem.Type, red Reduction, inputs [][]byte, rng *rand.Rand) []byte {
	n := len(inputs)
	work := make([][]byte, n)
	for r, in := range inputs {
		work[r] = bytes.Clone(in)
		switch {
		case red.Mulsum:
			elem.Scale(t, work[r], in, float64(mulsumScalar(r)))
		case red.Op == elem.Avg && t.Float():
			elem.Scale(t, work[r], in, 1/float64(n))
		}
	}
	rng.Shuffle(n, func(i, j int) { work[i], work[j] = work[j], work[i] })
	for len(work) > 1 {
		i := rng.IntN(len(work) - 1)
		elem.Reduce(t, red.Op, work[i], work[i], work[i+1])
		work = append(work[:i+1], work[i+2:]...)
	}
	if red.Op == elem.Avg && !t.Float() {
		elem.Divide(t, work[0], n)
	}
	return work[0]
}

// TestAnyOrderIsExact: whatever the order of reduction, the engine's arithmetic
// gives what the generator foretells, for every type and reduction.
func TestAnyOrderIsExact(t *testing.T) {
	sizes := []int{1, 2, 3, 4, 7, 8, 16, 33, 64}
	if !testing.Short() {
		sizes = append(sizes, 128, 257, 1440)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, typ := range elem.Types {
		for _, red := range Reductions {
			for _, n := range sizes {
				period := max(61, 509/n)
				g := generator{t: typ, red: red, n: n, seed: uint64(n)}
				want := &pattern{t: typ, data: g.want(period)}
				if !g.exact() {
					want.slack = 2
				}
				inputs := make([][]byte, n)
				for r := range inputs {
					inputs[r] = g.input(r, period)
				}
				got := reduceIn(typ, red, inputs, rng)
				if bad := want.wrong(got, want.data); bad != 0 {
					t.Errorf("%v %s of %d ranks: %d of %d elements are wrong", typ, red.Name, n, bad, period)
				}
			}
		}
	}
}

// TestLostContributionShows: without any one rank's data, and with any rank's
// data twice, the result differs.
func TestLostContributionShows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const period, n = 509, 5
	for _, typ := range elem.Types {
		for _, red := range Reductions {
			g := generator{t: typ, red: red, n: n, seed: 7}
			want := &pattern{t: typ, data: g.want(period), slack: 2}
			for lost := range n {
				var inputs [][]byte
				for r := range n {
					in := g.input(r, period)
					if r == lost { // a neighbour's instead
						in = g.input((r+2)%n, period)
					}
					inputs = append(inputs, in)
				}
				got := reduceIn(typ, red, inputs, rng)
				if bad := want.wrong(got, want.data); bad < period/20 {
					t.Errorf("%v %s with rank %d's data lost: only %d of %d elements are wrong", typ, red.Name, lost, bad, period)
				}
			}
		}
	}
}

// TestEncode: what the formats encode is what the engine's conversion makes.
func TestEncode(t *testing.T) {
	for typ, f := range floatFormats {
		one := generator{t: typ}
		for h := range uint64(2000) {
			v := randomFloat(f, hash(1, h, 2))
			bits := f.encode(v)
			if got := f.decode(bits); got != v {
				t.Errorf("%v: decode(encode(%v)) = %v", typ, v, got)
			}
			// v as the engine scales 1 by it.
			b := elem.AppendBits(nil, typ, f.encode(1))
			got := make([]byte, typ.Size())
			elem.Scale(typ, got, b, v)
			if want := elem.AppendBits(nil, typ, bits); !bytes.Equal(got, want) {
				t.Errorf("%v: encode(%v) = % x; the engine has % x", typ, v, want, got)
			}
		}
		for _, v := range []float64{0, 1.0 / 3, 1.0 / 7, 1.0 / 1440, 3, 0.1} { // rounded, and subnormal
			b := elem.AppendBits(nil, typ, f.encode(1))
			got := make([]byte, typ.Size())
			elem.Scale(typ, got, b, v)
			if want := elem.AppendBits(nil, typ, one.bits(element{f: v})); !bytes.Equal(got, want) {
				t.Errorf("%v: encode(%v) = % x; the engine has % x", typ, v, want, got)
			}
		}
	}
}

// TestMovedDataTellsRanksApart: no rank's data is another's, at any place that
// matters.
func TestMovedDataTellsRanksApart(t *testing.T) {
	for _, n := range []int{2, 8, 64, 1440} {
		p := period(1<<30, n)
		seen := map[int]bool{}
		for r := range n {
			seen[stride(r, p)] = true
		}
		if len(seen) != n {
			t.Errorf("%d ranks have %d strides at a period of %d", n, len(seen), p)
		}
	}
	p := moves(elem.Int32, 1, 8191)
	if bytes.Equal(p[:4096], p[4096:8192]) || bytes.Equal(p, moves(elem.Int32, 2, 8191)) {
		t.Error("data repeats within a period, or does not depend on the seed")
	}
}

func TestPeriod(t *testing.T) {
	for _, tt := range []struct {
		elements int64
		ranks    int
		want     int
	}{{1, 1, 61}, {61, 4, 61}, {62, 4, 1021}, {61, 40, 1021}, {1 << 30, 4, 65521}, {1 << 30, 65, 8191}, {1 << 30, 5000, 65521}} {
		if got := period(tt.elements, tt.ranks); got != tt.want {
			t.Errorf("period(%d, %d) = %d; want %d", tt.elements, tt.ranks, got, tt.want)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, typ := range []elem.Type{elem.Int8, elem.Float32} {
		b.Run(fmt.Sprint(typ), func(b *testing.B) {
			g := generator{t: typ, red: Reductions[0], n: 4, seed: 1}
			p := &pattern{t: typ, data: g.want(65521)}
			im := layout{{p, 5, int64((1 << 24) / typ.Size())}}
			mem := make([]byte, im.bytes())
			b.SetBytes(int64(2 * len(mem)))
			for b.Loop() {
				im.fill(mem)
				if im.wrong(mem) != 0 {
					b.Fatal("wrong")
				}
			}
		})
	}
}

// TestRoundedShowsTheOrder: the bits of rounded data's sums are those of the engine's arithmetic in
// the order of the ranks, and other orders give others.
func TestRoundedShowsTheOrder(t *testing.T) {
	const period = 1021
	for _, typ := range []elem.Type{elem.Float32, elem.Float64} {
		for _, n := range []int{2, 3, 8} {
			g := generator{t: typ, red: Reductions[0], n: n, seed: 1, rounded: true}
			want := &pattern{t: typ, data: g.want(period)}
			sum := func(order ...int) []byte {
				out := g.input(order[0], period)
				for _, r := range order[1:] {
					elem.Reduce(typ, elem.Sum, out, out, g.input(r, period))
				}
				return out
			}
			order := make([]int, n)
			for i := range order {
				order[i] = i
			}
			if bad := want.wrong(sum(order...), want.data); bad != 0 {
				t.Errorf("%v, %d ranks: %d of %d sums in the order of the ranks are wrong", typ, n, bad, period)
			}
			rotated := append(order[1:], order[0])
			if bad := want.wrong(sum(rotated...), want.data); n > 2 && bad < period/8 {
				t.Errorf("%v, %d ranks: rotated, only %d of %d sums differ", typ, n, bad, period)
			}
		}
	}
}
