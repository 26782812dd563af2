package schedule

import (
	"math/bits"
	"slices"
)

// Bruck's algorithms: ⌈log n⌉ rounds for any n; in round k a rank talks to those 2^k before and
// after it. Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", 1997. The original stores blocks in an
// order that starts with the own rank and rotates them at the end; here they are stored at their
// final place at once, and a message is split in two where the ranks wrap around to 0.

// rounds of n ranks are k = 0 … rounds-1.
func rounds(n int) int { return bits.Len(uint(n - 1)) }

// arc returns the n blocks of ranks first, first+1, … as spans, split where the ranks wrap around
// to 0 and after the given numbers of blocks.
func arc(first, n, ranks int, cuts ...int) []Span {
	first = mod(first, ranks)
	cuts = append(cuts, ranks-first, n)
	slices.Sort(cuts)
	var spans []Span
	done := 0
	for _, c := range cuts {
		if c = min(c, n); c > done {
			spans = append(spans, Span{int32(mod(first+done, ranks)), int32(c - done)})
			done = c
		}
	}
	return spans
}

// bruckAllGather: after round k a rank has the blocks of itself and the
// 2^(k+1)-1 after it. Each rank sends n-1 blocks. Zero copy is safe.
func bruckAllGather(s *Schedule, o Options) error {
	n := o.Ranks
	s.lanes(func(rank, _ int) ([][]Step, int) {
		steps := []Step{do(block(rank)).load(in(0)).store(out(rank))}
		for k := range rounds(n) {
			dist := 1 << k
			count := min(dist, n-dist)
			to, from := int32(mod(rank-dist, n)), int32(mod(rank+dist, n))
			for _, d := range arc(rank, count, n) {
				steps = append(steps, do(d).load(out(d.First)).send(to))
			}
			for _, d := range arc(rank+dist, count, n) {
				steps = append(steps, do(d).recv(from).store(out(d.First)))
			}
		}
		return [][]Step{steps}, 0
	})
	s.MaxSpan = s.widest(0) // the messages of rank 0 are not split
	return nil
}

// bruckReduceScatter is bruckAllGather in reverse: before round k, counted down, a rank has
// partial results for itself and the 2^(k+1)-1 after it. Each rank sends n-1 blocks. Zero copy is
// safe.
func bruckReduceScatter(s *Schedule, o Options) error {
	n := o.Ranks
	top := rounds(n) - 1
	// After the first round there are partial results for this many ranks, starting with the own
	// one; for the others there is only the input until the next round.
	partial := n - 1<<top
	s.lanes(func(rank, _ int) ([][]Step, int) {
		var steps []Step
		for k := top; k >= 0; k-- {
			dist := 1 << k
			count := min(dist, n-dist)
			to, from := int32(mod(rank+dist, n)), int32(mod(rank-dist, n))
			// Both sides split where either one changes from partial results to input.
			var cuts []int
			if k == top-1 {
				cuts = []int{partial, max(0, partial-dist)}
			}
			at := func(d Span) Ref {
				off := mod(int(d.First)-rank, n)
				if k == top || k == top-1 && off >= partial {
					return in(d.First)
				}
				return scratch(d.First)
			}
			for _, d := range arc(rank+dist, count, n, cuts...) {
				steps = append(steps, do(d).load(at(d)).send(to))
			}
			for _, d := range arc(rank, count, n, cuts...) {
				step := do(d).load(at(d)).recv(from).store(scratch(d.First))
				if k == 0 {
					step.Dst = out(0)
				}
				steps = append(steps, step)
			}
		}
		return [][]Step{steps}, n
	})
	s.MaxSpan = s.widest(0) // the messages of rank 0 are not split
	return nil
}

// bruckAllToAll: a block for the rank i after this one travels 2^k ranks in each round k for
// which bit k of i is set, together with all other blocks that do. So there is one message per
// round, with up to half the blocks: good for small ones. A rank sends as many blocks as the
// numbers below n have bits set. Messages are packed in scratch memory, so nothing is sent
// directly from the buffers.
func bruckAllToAll(s *Schedule, o Options) error {
	n := o.Ranks
	s.lanes(func(rank, _ int) ([][]Step, int) {
		at := make([]Ref, n) // where the block for the rank i after this one is now
		for i := range at {
			at[i] = in(mod(rank+i, n))
		}
		steps := []Step{do(block(rank)).load(in(rank)).store(out(rank))}
		pack := n / 2 // blocks of the packed message; those received in each round follow
		used := pack
		for k := range rounds(n) {
			dist := 1 << k
			count := 0
			for i := dist; i < n; i++ {
				if i&dist != 0 {
					steps = append(steps, do(block(rank)).load(at[i]).store(scratch(count)))
					at[i] = scratch(used + count)
					count++
				}
			}
			data := Span{0, int32(count)}
			steps = append(steps,
				do(data).load(scratch(0)).send(int32(mod(rank+dist, n))),
				do(data).recv(int32(mod(rank-dist, n))).store(scratch(used)))
			used += count
		}
		for i := 1; i < n; i++ {
			from := mod(rank-i, n)
			steps = append(steps, do(block(from)).load(at[i]).store(out(from)))
		}
		return [][]Step{steps}, used
	})
	s.MaxSpan = s.widest(0)
	return nil
}
