package perf

import (
	"math"

	"github.com/assay-hpc/assay/coll/elem"
)

// Test data is a pure function of seed, element index and rank, so that every rank knows the data
// of every other one without communication. Values repeat after period elements: a period is
// generated once and then copied and compared at the speed of memory. The period is a prime, so
// that blocks that swap places do not look alike.
//
// As in nccl-tests the values of floats are chosen so that every order of reduction, and every
// partial result, is exact; only the average is compared with a tolerance, of two units in the
// last place. For --same-bits it is the other way: sums are rounded, and their bits tell in which
// order they were made.

// periods are the primes to choose from: the first that is not shorter than the data (or as large
// as is worth its memory), nor than twice the number of ranks.
var periods = []int{61, 1021, 8191, 65521}

func period(elements int64, ranks int) int {
	for _, p := range periods {
		enough := int64(p) >= elements || ranks > 64 && p == 8191
		if enough && p >= 2*ranks {
			return p
		}
	}
	return periods[len(periods)-1]
}

// hash mixes seed, index and rank: the finalizer of SplitMix64 (Steele, Lea,
// Flood, "Fast splittable pseudorandom number generators", 2014).
func hash(seed, index, rank uint64) uint64 {
	z := seed*0x9e3779b97f4a7c15 + index*0xd1b54a32d192ed03 + rank*0x8cb92ba72f3d8dd7 + 0x2545f4914f6cdd1d
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// A generator generates the data of one reduction of one type among n ranks.
type generator struct {
	t    elem.Type
	red  Reduction
	n    int
	seed uint64
	// rounded data is for sums whose bits depend on the order of the ranks.
	rounded bool
}

// exact reports whether results are compared bit for bit.
func (g generator) exact() bool { return g.n == 1 || g.red.Op != elem.Avg || !g.t.Float() }

// moves returns a period of random data that is only moved. The data of rank r is the same,
// starting stride(r) elements later.
func moves(t elem.Type, seed uint64, period int) []byte {
	b := make([]byte, 0, period*t.Size())
	for i := range uint64(period) {
		b = elem.AppendBits(b, t, randomBits(t, hash(seed, i, 1<<40)))
	}
	return b
}

// stride is the number of elements by which a rank's moved data is ahead of rank 0's.
func stride(rank, period int) int { return rank * (period*5/13 | 1) % period }

// input returns a period of a rank's input to the reduction.
func (g generator) input(rank, period int) []byte {
	b := make([]byte, 0, period*g.t.Size())
	for i := range uint64(period) {
		b = elem.AppendBits(b, g.t, g.bits(g.value(i, rank)))
	}
	return b
}

// want returns a period of the reduction's result.
func (g generator) want(period int) []byte {
	b := make([]byte, 0, period*g.t.Size())
	for i := range uint64(period) {
		acc := g.scaled(i, 0)
		for r := 1; r < g.n; r++ {
			acc = g.combine(acc, g.scaled(i, r))
			if g.rounded {
				f := floatFormats[g.t]
				acc.f = f.decode(f.encode(acc.f))
			}
		}
		b = elem.AppendBits(b, g.t, g.bits(g.finish(acc)))
	}
	return b
}

// An element is a value: i of an integer type (sign-extended where
// the type has a sign), f of a float.
type element struct {
	i uint64
	f float64
}

// value returns an element of a rank's input.
func (g generator) value(i uint64, rank int) element {
	h := hash(g.seed, i, uint64(rank))
	if !g.t.Float() {
		if g.red.Op == elem.Prod {
			h |= 1 // a product of odd numbers never becomes 0
		}
		return element{i: g.wrap(h)}
	}
	f := floatFormats[g.t]
	if g.rounded { // exponents differ by up to 15: mantissas overlap in part
		return element{f: math.Copysign(math.Ldexp(mantissa(f, h), int(h>>60)), float64(int64(h<<1)))}
	}
	common := hash(g.seed, i, 1<<41) // the same on all ranks
	first := int(common >> 8 % uint64(g.n))
	turn := (rank - first + g.n) % g.n
	switch {
	case g.n == 1:
		return element{f: randomFloat(f, h)}
	case g.red.Op == elem.Prod:
		return element{f: factor(f, h, rank == int(common>>40%uint64(g.n)), turn < 4)}
	case g.red.Op == elem.Avg:
		if turn > 1 {
			return element{}
		}
		return element{f: math.Copysign(math.Ldexp(mantissa(f, h), f.avgExp), float64(int64(common)))}
	case g.red.Op == elem.Sum:
		return element{f: g.addend(f, h, common, turn)}
	}
	return element{f: randomFloat(f, h)}
}

// addend is an integer scaled by a power of two that all ranks share. The number of ranks with an
// addend other than zero, and the size of the addends, are limited so that all partial sums fit a
// mantissa.
func (g generator) addend(f floatFormat, h, common uint64, turn int) float64 {
	limit := uint64(1) << (f.mbits + 1)
	if g.red.Mulsum {
		limit /= 2 // scalars are 1 and 2
	}
	if uint64(turn) >= limit {
		return 0
	}
	k := 1 + h>>1%max(1, limit/uint64(g.n))
	scale := f.minScale + int(common%uint64(f.maxScale-f.minScale+1))
	v := math.Ldexp(float64(k), scale)
	if h&1 != 0 {
		v = -v
	}
	return v
}

// factor is one rank's factor of a product that is exact in any order: one rank has a random
// mantissa, four have a power of two, the others ±1.
func factor(f floatFormat, h uint64, carrier, power bool) float64 {
	v := 1.0
	if carrier {
		v = mantissa(f, h)
	}
	if power {
		v = math.Ldexp(v, int(h>>60&2)-1)
	}
	if h>>59&1 != 0 {
		v = -v
	}
	return v
}

// mantissa is a random number in [1, 2).
func mantissa(f floatFormat, h uint64) float64 {
	return 1 + math.Ldexp(float64(h>>3&(1<<f.mbits-1)), -f.mbits)
}

// randomFloat has a random sign and mantissa, and an exponent from the middle
// half of the range: no infinities, no NaN, no subnormals, no zeros.
func randomFloat(f floatFormat, h uint64) float64 {
	half := f.bias() / 2
	v := math.Ldexp(mantissa(f, h), int(h>>56)*(2*half+1)>>8-half)
	if h&1 != 0 {
		v = -v
	}
	return v
}

// randomBits returns the bits of an element that is only moved.
func randomBits(t elem.Type, h uint64) uint64 {
	if f, ok := floatFormats[t]; ok {
		return f.encode(randomFloat(f, h))
	}
	return h
}

// mulsumScalar is the scalar of -o mulsum: 1 on even ranks, 2 on odd ones.
func mulsumScalar(rank int) uint64 { return uint64(rank&1) + 1 }

// scaled returns a rank's input, multiplied by its scalar if the reduction has one.
func (g generator) scaled(i uint64, rank int) element {
	v := g.value(i, rank)
	if g.red.Mulsum {
		s := mulsumScalar(rank)
		v = element{i: g.wrap(v.i * s), f: v.f * float64(s)}
	}
	return v
}

func (g generator) combine(a, b element) element {
	switch op := g.red.Op; {
	case g.t.Float():
		return element{f: combine(op, a.f, b.f)}
	case g.t.Signed():
		return element{i: g.wrap(uint64(combine(op, int64(a.i), int64(b.i))))}
	default:
		return element{i: g.wrap(combine(op, a.i, b.i))}
	}
}

func combine[T uint64 | int64 | float64](op elem.Op, a, b T) T {
	switch op {
	case elem.Prod:
		return a * b
	case elem.Max:
		return max(a, b)
	case elem.Min:
		return min(a, b)
	}
	return a + b
}

// finish divides for the average. As NCCL defines it, floats are multiplied by 1/n, rounded to
// their type: with many ranks and 8 bits that is far from the exact average.
func (g generator) finish(v element) element {
	if g.red.Op != elem.Avg {
		return v
	}
	if f, ok := floatFormats[g.t]; ok {
		return element{f: v.f*f.decode(f.encode(1/float64(g.n))) + 0} // + 0: -0 becomes +0, because most ranks add +0
	}
	if g.t.Signed() {
		return element{i: uint64(int64(v.i) / int64(g.n))}
	}
	return element{i: v.i / uint64(g.n)}
}

// wrap cuts an integer to the type's width.
func (g generator) wrap(v uint64) uint64 {
	shift := 64 - 8*g.t.Size()
	if g.t.Signed() {
		return uint64(int64(v<<shift) >> shift)
	}
	return v << shift >> shift
}

func (g generator) bits(v element) uint64 {
	if g.t.Float() {
		return floatFormats[g.t].encode(v.f)
	}
	return v.i
}
