package schedule

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// A Bytes is an amount of data that a schedule moves: for AllReduce, Broadcast
// and Reduce as a multiple of the vector's length, for the others of a block's.
// What goes to Everyone counts once.
type Bytes struct {
	Total float64 // sent by all ranks together
	Multi float64 // of that, to Everyone; without multicast n-1 times
	Most  float64 // no rank sends more; without multicast, n-1 times
}

// Volume is how much data an algorithm of this package moves among n ranks, in
// theory. ok is false where it has no such algorithm, and for collnet, where the
// groups decide. Total is exact. Most is a bound; where the table has a dash the
// groups and links decide.
//
//	                                      Total              Most
//	AllReduce   ring                      2(n-1)             2(n-1)/n
//	            recursive                 2(n-1)             2(p-1)/p, +1 ¹
//	            recursive-doubling        p log p + 2(n-p)   log p, +1 ¹
//	            tree                      2(n-1)             3, +1 ²
//	            double-tree               2(n-1)             2, +1 ²
//	            one-shot                  n                  1, to everyone
//	            two-shot                  n                  1, 1/n of it to everyone
//	            hierarchical              2(n-1)             -
//	Broadcast   one-shot                  1                  1, to everyone
//	            two-shot                  2-1/n              1
//	            ring                      n-1                1
//	            tree, double-tree         n-1                2, +1 ²
//	            hierarchical              n-1                -
//	Reduce      two-shot                  n-1 + (n-1)/n      1
//	            others                    n-1                1
//	AllGather   one-shot                  n                  1, to everyone
//	            ring, bruck               n(n-1)             n-1
//	            recursive, hierarchical   n(n-1)             - (n-1 for n = 2^k)
//	ReduceScatter  as AllGather; one-shot n(n-1)             n-1
//	AllToAll    one-shot                  n(n-1)             n-1
//	            bruck                     n Σ_i bits of i    Σ_{i<n} bits of i
//	Gather      one-shot                  n-1                n-1
//	            tree                      Σ_i subtree of i   n-1
//	Scatter     as Gather
//	SendRecv    one-shot                  n                  1
//
// p is the largest power of two that is not above n. ¹ where n is none.
// ² where a rank leads a node's chain, or, in the double tree, n is even and
// one rank is inside both. Without multicast n-1 is the least for Broadcast and
// Reduce, 2(n-1) for AllReduce, n(n-1) for AllGather, ReduceScatter and
// AllToAll. Sources: those of the algorithms, and Chan, Heimlich, Purkayastha,
// van de Geijn, "Collective communication: theory, practice, and experience",
// 2007.
func Volume(c op.Collective, algorithm string, n int) (v Bytes, ok bool) {
	if n < 1 || algorithm == CollNet || !slices.Contains(Algorithms(c), algorithm) {
		return v, false
	}
	if n == 1 {
		return Bytes{}, true
	}
	f := float64(n)
	switch c {
	case op.AllReduce:
		return volumeAllReduce(algorithm, n), true
	case op.Broadcast:
		return volumeBroadcast(algorithm, f), true
	case op.Reduce:
		if algorithm == TwoShot {
			return Bytes{f - 1 + (f-1)/f, 0, 1}, true
		}
		return Bytes{f - 1, 0, 1}, true
	case op.AllGather, op.ReduceScatter:
		switch {
		case algorithm == OneShot && c == op.AllGather:
			return Bytes{f, f, 1}, true
		case algorithm == Hierarchical || algorithm == Recursive && n&(n-1) != 0:
			return Bytes{f * (f - 1), 0, math.Inf(1)}, true
		}
		return Bytes{f * (f - 1), 0, f - 1}, true
	case op.AllToAll:
		each := f - 1
		if algorithm == Bruck {
			each = 0
			for i := range n {
				each += float64(bits.OnesCount(uint(i)))
			}
		}
		return Bytes{f * each, 0, each}, true
	case op.Gather, op.Scatter:
		if algorithm == OneShot {
			return Bytes{f - 1, 0, f - 1}, true
		}
		total := 0
		for v := 1; v < n; v++ {
			total += binomialSize(v, n)
		}
		return Bytes{float64(total), 0, f - 1}, true
	}
	return Bytes{f, 0, 1}, true
}

func volumeBroadcast(algorithm string, n float64) Bytes {
	switch algorithm {
	case OneShot:
		return Bytes{1, 1, 1}
	case TwoShot:
		return Bytes{2 - 1/n, 1, 1}
	case Ring:
		return Bytes{n - 1, 0, 1}
	case Tree, DoubleTree:
		return Bytes{n - 1, 0, 3}
	}
	return Bytes{n - 1, 0, math.Inf(1)}
}

func volumeAllReduce(algorithm string, n int) Bytes {
	f := float64(n)
	log := bits.Len(uint(n)) - 1
	p := 1 << log
	switch algorithm {
	case Ring:
		return Bytes{2 * (f - 1), 0, 2 * (f - 1) / f}
	case Tree:
		return Bytes{2 * (f - 1), 0, 4}
	case DoubleTree:
		return Bytes{2 * (f - 1), 0, 3}
	case Recursive:
		return Bytes{2 * (f - 1), 0, 2*float64(p-1)/float64(p) + float64(min(1, n-p))}
	case RecursiveDoubling:
		return Bytes{float64(p*log + 2*(n-p)), 0, float64(log + min(1, n-p))}
	case OneShot:
		return Bytes{f, f, 1}
	case TwoShot:
		return Bytes{f, 1, 1}
	}
	return Bytes{2 * (f - 1), 0, math.Inf(1)}
}

// checkVolume compares what a schedule sends with Volume.
func checkVolume(s *Schedule) error {
	want, ok := Volume(s.Collective, s.Algorithm, s.Ranks)
	if !ok {
		return nil
	}
	st := s.count()
	unit := float64(s.Channels)
	if s.Collective.Vector() {
		unit *= float64(s.Blocks)
	}
	total, most := 0, 0
	for _, n := range st.Sent {
		total += n
		most = max(most, n)
	}
	if want.Multi > 0 && st.Multi == 0 {
		want.Total += want.Multi * float64(s.Ranks-2)
		want.Most *= float64(s.Ranks - 1)
	}
	const rounding = 1e-9
	if got := float64(total) / unit; math.Abs(got-want.Total) > want.Total*rounding {
		return fmt.Errorf("schedule: %v %s of %d ranks sends %g times the unit; in theory it is %g", s.Collective, s.Algorithm, s.Ranks, got, want.Total)
	}
	if got := float64(most) / unit; got > want.Most*(1+rounding) {
		return fmt.Errorf("schedule: %v %s of %d ranks: a rank sends %g times the unit; in theory at most %g", s.Collective, s.Algorithm, s.Ranks, got, want.Most)
	}
	return nil
}
