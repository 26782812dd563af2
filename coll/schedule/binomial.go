package schedule

import "math/bits"

// Binomial trees, for Gather and Scatter: log n rounds.

// binomialSize returns the size of a subtree of a binomial tree over roles, (rank - root) mod n:
// the subtree of role v contains the roles v … v+size-1. The children of v are v+1, v+2, v+4, ….
func binomialSize(v, n int) int {
	if v == 0 {
		return n
	}
	return min(v&-v, n-v)
}

// binomialKids returns the children of role v, the largest subtree first.
func binomialKids(v, n int) []int {
	var kids []int
	for bit := 1 << bits.Len(uint(n)); bit > 0; bit >>= 1 {
		if (v == 0 || bit < v&-v) && v+bit < n {
			kids = append(kids, v+bit)
		}
	}
	return kids
}

// A piece is a range of roles with consecutive ranks.
type piece struct {
	role int
	data Span // the blocks of their ranks
}

// pieces splits the subtree of role v where the ranks wrap around to 0.
func (s *Schedule) pieces(v int) []piece {
	n, size := s.Ranks, binomialSize(v, s.Ranks)
	first := mod(v+s.Root, n)
	if first+size <= n {
		return []piece{{v, Span{int32(first), int32(size)}}}
	}
	head := n - first
	return []piece{{v, Span{int32(first), int32(head)}}, {v + head, Span{0, int32(size - head)}}}
}

// binomialGather: each rank sends its subtree's blocks to its parent. There are log n rounds, but
// blocks move several times. Zero copy is safe.
func binomialGather(s *Schedule, o Options) error {
	n := o.Ranks
	s.lanes(func(rank, _ int) ([][]Step, int) {
		v := mod(rank-s.Root, n)
		up := int32(mod(v-v&-v+s.Root, n))
		size := binomialSize(v, n)
		if size == 1 && v > 0 {
			return [][]Step{{do(block(rank)).load(in(0)).send(up)}}, 0
		}
		place := func(p piece) Ref {
			if v == 0 {
				return out(p.data.First)
			}
			return scratch(p.role - v)
		}
		steps := []Step{do(block(rank)).load(in(0)).store(place(piece{v, block(rank)}))}
		kids := binomialKids(v, n)
		for i := len(kids) - 1; i >= 0; i-- { // the smallest is ready first
			from := int32(mod(kids[i]+s.Root, n))
			for _, p := range s.pieces(kids[i]) {
				steps = append(steps, do(p.data).recv(from).store(place(p)))
			}
		}
		if v == 0 {
			return [][]Step{steps}, 0
		}
		for _, p := range s.pieces(v) {
			steps = append(steps, do(p.data).load(place(p)).send(up))
		}
		return [][]Step{steps}, size
	})
	s.MaxSpan = s.widest(s.Root) // a subtree's pieces are within its parent's
	return nil
}

// binomialScatter is binomialGather in reverse. Zero copy is safe.
func binomialScatter(s *Schedule, o Options) error {
	n := o.Ranks
	s.lanes(func(rank, _ int) ([][]Step, int) {
		v := mod(rank-s.Root, n)
		up := int32(mod(v-v&-v+s.Root, n))
		size := binomialSize(v, n)
		if size == 1 && v > 0 {
			return [][]Step{{do(block(rank)).recv(up).store(out(0))}}, 0
		}
		var steps []Step
		place := func(p piece) Ref {
			if v == 0 {
				return in(p.data.First)
			}
			return scratch(p.role - v)
		}
		if v > 0 {
			for _, p := range s.pieces(v) {
				steps = append(steps, do(p.data).recv(up).store(place(p)))
			}
		}
		for _, kid := range binomialKids(v, n) {
			to := int32(mod(kid+s.Root, n))
			for _, p := range s.pieces(kid) {
				steps = append(steps, do(p.data).load(place(p)).send(to))
			}
		}
		steps = append(steps, do(block(rank)).load(place(piece{v, block(rank)})).store(out(0)))
		if v == 0 {
			size = 0
		}
		return [][]Step{steps}, size
	})
	s.MaxSpan = s.widest(s.Root) // a subtree's pieces are within its parent's
	return nil
}
