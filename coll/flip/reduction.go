package flip

import (
	"math"
	"math/bits"

	"github.com/assay-hpc/assay/coll/elem"
)

// A Wrong is an element that is not what it must be.
type Wrong struct {
	Rank    int    `json:"rank"`
	Sent    bool   `json:"sent,omitempty"` // in the rank's input, behind the operation
	Element int64  `json:"element"`        // of the vector that all ranks' inputs have
	Got     uint64 `json:"got"`            // its bits
	Want    uint64 `json:"want"`
}

// A Reduction is a reduction of known inputs in the order of the ranks.
type Reduction struct {
	Ranks int
	Type  elem.Type
	Op    elem.Op
	// Has is how many ranks get each element.
	Has int
	// Owner returns the rank that reduces an element, Itself if each rank that gets it does.
	Owner func(element int64) int
	// Input returns the bits of a rank's element.
	Input func(rank int, element int64) uint64
}

// Adds reports whether Explain can add a type by an operation.
func Adds(t elem.Type, o elem.Op) bool {
	switch t {
	case elem.Float32, elem.Float64, elem.Uint32, elem.Uint64, elem.Int32, elem.Int64:
		return o == elem.Sum || o == elem.Prod
	}
	return false
}

// Explain returns, for each element that is wrong somewhere, who may have flipped one bit of it.
//
// A product of odd integers says most: a flipped bit of one rank's factor changes it by a multiple of all
// others', which no other flip does, unless the bit is among the highest. In a sum the same bit of several
// addends, and of the sum, may come to the same.
func (d *Reduction) Explain(wrong []Wrong) (all [][]Suspect) {
	var order []int64
	by := map[int64][]Wrong{}
	for _, w := range wrong {
		if by[w.Element] == nil {
			order = append(order, w.Element)
		}
		by[w.Element] = append(by[w.Element], w)
	}
	for _, e := range order {
		all = append(all, d.explain(by[e])...)
	}
	return all
}

// explain explains what is wrong with one element.
func (d *Reduction) explain(wrong []Wrong) (all [][]Suspect) {
	var results []Wrong
	for _, w := range wrong {
		if w.Sent { // what was added was wrong already, or it became so later
			return [][]Suspect{{{w.Rank, Itself}}}
		}
		results = append(results, w)
	}
	first, equal := results[0], true
	for _, w := range results {
		equal = equal && w.Got == first.Got
	}
	owner := d.Owner(first.Element)
	everywhere := len(results) == d.Has && equal
	switch {
	case owner == Itself && everywhere && d.Has > 1: // all had the same addend
		var s []Suspect
		for _, j := range d.flipped(first) {
			s = set(s, Suspect{j, Itself})
		}
		if s != nil {
			return [][]Suspect{s}
		}
	case owner == Itself:
	case everywhere: // it was wrong before it was sent to all
		s := d.made(owner, first)
		if d.Has == 1 && first.Rank != owner { // a Reduce
			s = set(s, Suspect{first.Rank, owner})
		}
		return [][]Suspect{s}
	default:
		for _, w := range results {
			s := Suspect{w.Rank, owner}
			if w.Rank == owner {
				s.From = Itself
			}
			all = append(all, []Suspect{s})
		}
		return all
	}
	for _, w := range results {
		all = append(all, d.made(w.Rank, w))
	}
	return all
}

// made returns who may be at fault for an element that a rank has made.
func (d *Reduction) made(by int, w Wrong) (all []Suspect) {
	for _, j := range d.flipped(w) {
		if j == by {
			all = set(all, Suspect{by, Itself})
		} else {
			all = set(all, Suspect{by, j})
		}
	}
	if d.between(w) || len(all) == 0 {
		all = set(all, Suspect{by, Itself})
	}
	return all
}

// flipped returns the ranks one bit of whose addend may have been flipped.
func (d *Reduction) flipped(w Wrong) (ranks []int) {
	in := d.inputs(w.Element)
	for j := range in {
		for b := range 8 * d.Type.Size() {
			in[j] ^= 1 << b
			same := d.fold(in) == w.Got
			in[j] ^= 1 << b
			if same {
				ranks = append(ranks, j)
				break
			}
		}
	}
	return ranks
}

// between reports whether a bit of a sum of the first ranks, or of all, may have been flipped.
func (d *Reduction) between(w Wrong) bool {
	in := d.inputs(w.Element)
	for k := 2; k <= len(in); k++ {
		rest := append([]uint64{0}, in[k:]...)
		for b := range 8 * d.Type.Size() {
			rest[0] = d.fold(in[:k]) ^ 1<<b
			if d.fold(rest) == w.Got {
				return true
			}
		}
	}
	return false
}

func (d *Reduction) inputs(element int64) []uint64 {
	in := make([]uint64, d.Ranks)
	for r := range in {
		in[r] = d.Input(r, element)
	}
	return in
}

func (d *Reduction) fold(in []uint64) uint64 {
	acc := in[0]
	for _, v := range in[1:] {
		acc = d.combine(acc, v)
	}
	return acc
}

func (d *Reduction) combine(a, b uint64) uint64 {
	product := d.Op == elem.Prod
	switch d.Type {
	case elem.Float32:
		x, y := math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b))
		if product {
			return uint64(math.Float32bits(x * y))
		}
		return uint64(math.Float32bits(x + y))
	case elem.Float64:
		x, y := math.Float64frombits(a), math.Float64frombits(b)
		if product {
			return math.Float64bits(x * y)
		}
		return math.Float64bits(x + y)
	}
	v := a + b
	if product {
		_, v = bits.Mul64(a, b)
	}
	if d.Type.Size() == 4 {
		v &= math.MaxUint32
	}
	return v
}
