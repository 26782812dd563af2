package colltest

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/assay-hpc/assay/coll/elem"
)

// mix is the finalizer of splitmix64 (Steele, Lea, Flood 2014): it turns a counter into bits that
// look random.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hash(seed uint64, rank, i int) uint64 {
	return mix(mix(seed+uint64(rank)<<40) + uint64(i))
}

// mask cuts bits to a type's size.
func mask(t elem.Type, bits uint64) uint64 {
	if t.Size() == 8 {
		return bits
	}
	return bits & (1<<(8*t.Size()) - 1)
}

// A data is the input of n ranks to an operation: a pure function of rank and index, so that
// ranks know it without communication.
type data struct {
	seed uint64
	t    elem.Type
	op   elem.Op
	n    int
	move bool     // nothing is reduced: all bit patterns are valid, NaNs too
	bits []uint64 // the reduction, if it has been computed
}

// at is element i of a rank's input.
func (d data) at(rank, i int) uint64 {
	h := hash(d.seed, rank, i)
	switch {
	case d.move:
		return mask(d.t, h)
	case !d.t.Float():
		if d.op == elem.Prod {
			h |= 1 // an even factor or two would soon make it 0
		}
		return mask(d.t, h)
	}
	switch d.op {
	case elem.Sum:
		return d.summand(rank, i, h)
	case elem.Prod:
		return d.factor(rank, i, h)
	case elem.Avg:
		return d.averaged(rank, i, h)
	default:
		return exact(d.t, sign(h)*math.Ldexp(d.significand(h), int(h>>8%7)-3))
	}
}

func sign(h uint64) float64 { return 1 - 2*float64(h>>63) }

// significand is in [1, 2), with all of the type's bits.
func (d data) significand(h uint64) float64 {
	p := precision(d.t) - 1
	return 1 + float64(h>>3&(1<<p-1))/float64(uint64(1)<<p)
}

// summand is a small integer times a power of two, such that the sum of any of them is exact: if
// not even n ones fit, some ranks contribute 0.
func (d data) summand(rank, i int, h uint64) uint64 {
	room := 1 << min(precision(d.t), 24)
	if (rank+i)%d.n >= room {
		return 0
	}
	most := uint64(max(1, room/d.n))
	return exact(d.t, sign(h)*math.Ldexp(float64(1+h%most), i%3-1))
}

// factor is a random significand at one rank, 2 and ½ at two others, and ±1 at the rest: in any
// order, the product is exact and stays in range.
func (d data) factor(rank, i int, h uint64) uint64 {
	x := sign(h)
	switch (rank + i) % d.n {
	case 0:
		x *= d.significand(h)
	case 1:
		x *= 2
	case 2:
		x /= 2
	}
	return exact(d.t, x)
}

// averaged is positive at two ranks and 0 at the others, and far from where the smallest type
// underflows.
func (d data) averaged(rank, i int, h uint64) uint64 {
	if (rank+i)%d.n > 1 {
		return 0
	}
	return exact(d.t, 8*d.significand(h))
}

// reduced is element i of the reduction over all ranks.
func (d data) reduced(i int) uint64 {
	n := 1 // what the sum is divided by
	if d.op == elem.Avg {
		n = d.n
	}
	switch {
	case d.bits != nil:
		return d.bits[i]
	case d.t.Float(): // float64 represents the result exactly; averages are rounded once
		x := ofAll(d, i, func(bits uint64) float64 { return toFloat(d.t, bits) })
		if d.op == elem.Avg {
			return round(d.t, x/float64(n))
		}
		return exact(d.t, x)
	case d.t.Signed():
		x := ofAll(d, i, d.extend)
		return mask(d.t, uint64(d.extend(uint64(x))/int64(n)))
	}
	x := ofAll(d, i, func(bits uint64) uint64 { return bits })
	return mask(d.t, x) / uint64(n)
}

// ofAll combines element i of all ranks, as converted by value. An average is a sum here, and
// integers may have more bits than their type.
func ofAll[T uint64 | int64 | float64](d data, i int, value func(bits uint64) T) T {
	acc := value(d.at(0, i))
	for r := 1; r < d.n; r++ {
		x := value(d.at(r, i))
		switch d.op {
		case elem.Sum, elem.Avg:
			acc += x
		case elem.Prod:
			acc *= x
		case elem.Max:
			acc = max(acc, x)
		case elem.Min:
			acc = min(acc, x)
		}
	}
	return acc
}

// extend returns the value of a signed integer.
func (d data) extend(bits uint64) int64 {
	unused := 64 - 8*d.t.Size()
	return int64(bits<<unused) >> unused
}

// An answer is the reduction of an operation. The rank that needs it first computes it for all;
// the last one to release it frees it.
type answer struct {
	once sync.Once
	bits []uint64
	uses atomic.Int32
}

// get returns the first count elements of d's reduction. Afterwards each rank calls put,
// including those that did not need any elements.
func (a *answer) get(d data, count int) []uint64 {
	a.once.Do(func() {
		a.bits = make([]uint64, count)
		parallel(count, func(from, to int) {
			for i := from; i < to; i++ {
				a.bits[i] = d.reduced(i)
			}
		})
	})
	return a.bits
}

func (a *answer) put(d data) {
	if int(a.uses.Add(1)) == d.n {
		a.bits = nil
	}
}

// ulps is the tolerance: by how much bit patterns may differ.
func (d data) ulps() uint64 {
	if d.op == elem.Avg && d.t.Float() && !d.move {
		return 2
	}
	return 0
}
