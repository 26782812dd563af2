package colltest

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
)

// TestAnyOrder: inputs are such that reducing in a random order, rounding each
// step, gives the expected bits.
func TestAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, typ := range elem.Types {
		for _, op := range elem.Ops {
			for _, n := range []int{1, 2, 3, 7, 9, 16, 33, 64} {
				d := data{seed: 7, t: typ, op: op, n: n}
				for i := range 40 {
					var acc uint64
					for k, r := range rng.Perm(n) {
						x := d.at(r, i)
						if op == elem.Avg && typ.Float() {
							x = round(typ, toFloat(typ, x)/float64(n))
						}
						switch {
						case k == 0:
							acc = x
						case op == elem.Avg:
							acc = combine(typ, elem.Sum, acc, x, n)
						default:
							acc = combine(typ, op, acc, x, n)
						}
					}
					if op == elem.Avg && !typ.Float() {
						continue // its division is TestIntegers's
					}
					if want := d.reduced(i); apart(acc, want) > d.ulps() {
						t.Fatalf("%v %v of %d ranks, element %d: %s; want %s", typ, op, n, i, show(typ, acc), show(typ, want))
					}
				}
			}
		}
	}
}

// TestIntegers compares residues with big integers.
func TestIntegers(t *testing.T) {
	for _, typ := range []elem.Type{elem.Int8, elem.Uint8, elem.Int32, elem.Uint32, elem.Int64, elem.Uint64} {
		for _, op := range elem.Ops {
			const n = 9
			d := data{seed: 3, t: typ, op: op, n: n}
			for i := range 50 {
				acc := d.big(d.at(0, i))
				for r := 1; r < n; r++ {
					x := d.big(d.at(r, i))
					switch op {
					case elem.Sum, elem.Avg:
						acc.Add(acc, x)
					case elem.Prod:
						acc.Mul(acc, x)
					case elem.Max:
						if x.Cmp(acc) > 0 {
							acc = x
						}
					case elem.Min:
						if x.Cmp(acc) < 0 {
							acc = x
						}
					}
				}
				bits := residue(typ, acc)
				if op == elem.Avg {
					bits = residue(typ, new(big.Int).Quo(d.big(bits), big.NewInt(n)))
				}
				if got := d.reduced(i); got != bits {
					t.Fatalf("%v %v, element %d: %#x; want %#x", typ, op, i, got, bits)
				}
			}
		}
	}
}

func (d data) big(bits uint64) *big.Int {
	if d.t.Signed() {
		return big.NewInt(d.extend(bits))
	}
	return new(big.Int).SetUint64(bits)
}

func residue(t elem.Type, x *big.Int) uint64 {
	m := new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size()))
	return new(big.Int).Mod(x, m).Uint64() // Mod is Euclidean
}

// TestInputsDiffer: an engine that mixes up ranks or elements is seen.
func TestInputsDiffer(t *testing.T) {
	for _, typ := range elem.Types {
		d := data{seed: 5, t: typ, n: 4, move: true}
		same := 0
		for i := range 256 {
			if d.at(0, i) == d.at(1, i) {
				same++
			}
			if d.at(0, i) == d.at(0, i+1) {
				same++
			}
		}
		if same > 24 { // of 512 pairs of bytes, two are expected
			t.Errorf("%v: %d pairs of inputs are equal", typ, same)
		}
	}
	if math.IsNaN(toFloat(elem.Float32, data{t: elem.Float32, n: 3}.at(1, 1))) {
		t.Error("an input of a sum is not a number")
	}
}
