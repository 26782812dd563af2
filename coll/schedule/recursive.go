package schedule

import "math/bits"

// Recursive halving and doubling: partners at distances 1, 2, 4, … exchange. Both bandwidth and
// latency are the best possible if the number of ranks is a power of two. Otherwise the surplus
// ranks are folded: each first sends its part to a neighbour, and receives its result from it.
// Sources: Rabenseifner, "Optimization of collective reduction operations", 2004; Thakur,
// Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.

// A fold maps n ranks to p = 2^k cores. The first 2·extra ranks form pairs, in which the odd rank
// is the core; each of the other ranks is a core by itself. So neighbouring cores represent
// neighbouring ranks.
type fold struct{ n, p, extra int }

func newFold(n int) fold {
	p := 1 << (bits.Len(uint(n)) - 1)
	return fold{n, p, n - p}
}

// core returns the core that a rank is, or, if ok is false, belongs to.
func (f fold) core(rank int) (core int, ok bool) {
	if rank >= 2*f.extra {
		return rank - f.extra, true
	}
	return rank / 2, rank%2 == 1
}

// rank returns the rank that is a core.
func (f fold) rank(core int) int32 {
	if core >= f.extra {
		return int32(core + f.extra)
	}
	return int32(2*core + 1)
}

// ranks returns the span of the ranks that the cores [first, first+n) represent.
func (f fold) ranks(first, n int) Span {
	start := func(core int) int { return core + min(core, f.extra) }
	return Span{int32(start(first)), int32(start(first+n) - start(first))}
}

// recursiveAllReduce halves and then doubles the vector, in p blocks. A core sends 2(p-1)/p of
// it, and all of it to a folded rank. Zero copy is safe.
func recursiveAllReduce(s *Schedule, o Options) error {
	f := newFold(o.Ranks)
	s.Blocks = f.p
	s.lanes(func(rank, _ int) ([][]Step, int) {
		core, ok := f.core(rank)
		all := Span{0, int32(f.p)}
		if !ok {
			return folded(all, int32(rank+1)), 0
		}
		var steps []Step
		from := Ref{Buf: Input}
		if rank < 2*f.extra {
			steps = append(steps, do(all).load(in(0)).recv(int32(rank-1)).store(out(0)))
			from.Buf = Output
		}
		for d := f.p / 2; d > 0; d /= 2 {
			peer := f.rank(core ^ d)
			mine, theirs := core&^(d-1), (core^d)&^(d-1)
			from.First = int32(theirs)
			steps = append(steps, do(Span{from.First, int32(d)}).load(from).send(peer))
			from.First = int32(mine)
			steps = append(steps, do(Span{from.First, int32(d)}).load(from).recv(peer).store(out(mine)))
			from.Buf = Output
		}
		for d := 1; d < f.p; d *= 2 {
			peer := f.rank(core ^ d)
			mine, theirs := core&^(d-1), (core^d)&^(d-1)
			steps = append(steps,
				do(Span{int32(mine), int32(d)}).load(out(mine)).send(peer),
				do(Span{int32(theirs), int32(d)}).recv(peer).store(out(theirs)))
		}
		if rank < 2*f.extra {
			steps = append(steps, do(all).load(out(0)).send(int32(rank-1)))
		}
		return [][]Step{steps}, 0
	})
	s.MaxSpan = s.widest(0) // rank 0 is folded, if any is
	return nil
}

// folded returns the lanes of a rank that is not a core, in AllReduce. There are two: windows go
// to the core while the results of earlier ones come back.
func folded(all Span, core int32) [][]Step {
	return [][]Step{{do(all).load(in(0)).send(core)}, {do(all).recv(core).store(out(0))}}
}

// recursiveDoubling exchanges the whole vector with each partner: log n rounds, the fewest
// possible, for small vectors. Zero copy is not safe: a rank may continue to reduce into data
// that its partner has not read yet.
func recursiveDoubling(s *Schedule, o Options) error {
	f := newFold(o.Ranks)
	s.Blocks = 1
	s.lanes(func(rank, _ int) ([][]Step, int) {
		core, ok := f.core(rank)
		all := block(0)
		if !ok {
			return folded(all, int32(rank+1)), 0
		}
		var steps []Step
		from := in(0)
		if rank < 2*f.extra {
			steps = append(steps, do(all).load(from).recv(int32(rank-1)).store(out(0)))
			from = out(0)
		}
		for d := 1; d < f.p; d *= 2 {
			peer := f.rank(core ^ d)
			steps = append(steps, do(all).load(from).send(peer), do(all).load(from).recv(peer).store(out(0)))
			from = out(0)
		}
		if rank < 2*f.extra {
			steps = append(steps, do(all).load(out(0)).send(int32(rank-1)))
		}
		return [][]Step{steps}, 0
	})
	return nil
}

// otherBlocks returns the blocks of all ranks except one, as spans.
func otherBlocks(rank, n int) []Span {
	var spans []Span
	if rank > 0 {
		spans = append(spans, Span{0, int32(rank)})
	}
	if rank < n-1 {
		spans = append(spans, Span{int32(rank + 1), int32(n - 1 - rank)})
	}
	return spans
}

// recursiveAllGather doubles the blocks that a core has. Zero copy is safe.
func recursiveAllGather(s *Schedule, o Options) error {
	f := newFold(o.Ranks)
	s.lanes(func(rank, _ int) ([][]Step, int) {
		core, ok := f.core(rank)
		own := do(block(rank)).load(in(0)).store(out(rank))
		if !ok {
			to := int32(rank + 1)
			var take []Step
			for _, d := range otherBlocks(rank, f.n) {
				take = append(take, do(d).recv(to).store(out(d.First)))
			}
			return [][]Step{{own.send(to)}, take}, 0
		}
		steps := []Step{own}
		extra := int32(rank - 1)
		if rank < 2*f.extra {
			steps = append(steps, do(block(extra)).recv(extra).store(out(extra)))
		}
		for d := 1; d < f.p; d *= 2 {
			peer := f.rank(core ^ d)
			mine, theirs := f.ranks(core&^(d-1), d), f.ranks((core^d)&^(d-1), d)
			steps = append(steps,
				do(mine).load(out(mine.First)).send(peer),
				do(theirs).recv(peer).store(out(theirs.First)))
		}
		if rank < 2*f.extra {
			for _, d := range otherBlocks(int(extra), f.n) {
				steps = append(steps, do(d).load(out(d.First)).send(extra))
			}
		}
		return [][]Step{steps}, 0
	})
	s.MaxSpan = s.widest(0) // rank 0 is folded, if any is
	return nil
}

// recursiveReduceScatter is recursiveAllGather in reverse: the blocks that a core still has to
// reduce are halved. A folded rank does not send its own block and adds it last. Zero copy is
// safe.
func recursiveReduceScatter(s *Schedule, o Options) error {
	f := newFold(o.Ranks)
	s.lanes(func(rank, _ int) ([][]Step, int) {
		core, ok := f.core(rank)
		if !ok {
			to := int32(rank + 1)
			var give []Step
			for _, d := range otherBlocks(rank, f.n) {
				give = append(give, do(d).load(in(d.First)).send(to))
			}
			return [][]Step{give, {do(block(rank)).load(in(rank)).recv(to).store(out(0))}}, 0
		}
		var steps []Step
		from := Input
		extra := int32(rank - 1)
		pair := rank < 2*f.extra
		if pair {
			for _, d := range otherBlocks(int(extra), f.n) {
				steps = append(steps, do(d).load(in(d.First)).recv(extra).store(scratch(d.First)))
			}
			steps = append(steps, do(block(extra)).load(in(extra)).store(scratch(extra)))
			from = Scratch
		}
		for d := f.p / 2; d > 0; d /= 2 {
			peer := f.rank(core ^ d)
			mine, theirs := f.ranks(core&^(d-1), d), f.ranks((core^d)&^(d-1), d)
			reduce := do(mine).load(Ref{from, mine.First}).recv(peer).store(scratch(mine.First))
			if mine.N == 1 {
				reduce.Dst = out(0)
			}
			steps = append(steps, do(theirs).load(Ref{from, theirs.First}).send(peer), reduce)
			from = Scratch
		}
		if pair {
			steps = append(steps,
				do(block(extra)).load(scratch(extra)).send(extra),
				do(block(rank)).load(scratch(rank)).store(out(0)))
		}
		return [][]Step{steps}, f.n
	})
	s.MaxSpan = s.widest(0) // rank 0 is folded, if any is
	return nil
}
