package schedule

// Two-shot: the vector is cut into one block per rank; the first hop brings each block to its
// rank, the second from there to where it is needed.

// twoShotAllReduce reduces block r at rank r, which then sends it to Everyone. It uses three
// lanes, so that windows overlap: one sends, one reduces, one gathers. A rank sends n-1 blocks to
// one rank each and one block to all. Zero copy is safe, in place too: what overwrites a block of
// the input was computed from it.
func twoShotAllReduce(s *Schedule, o Options) error {
	n := o.Ranks
	s.lanes(func(rank, _ int) ([][]Step, int) {
		reduce, scratch := collect(rank, n, block(rank), in(rank), out(rank), o.InOrder)
		reduce[len(reduce)-1].Send = Everyone
		return [][]Step{deal(rank, n), reduce, takeAll(rank, n)}, scratch
	})
	return nil
}

// takeAll receives the block that each other rank sends to Everyone.
func takeAll(rank, n int) []Step {
	steps := make([]Step, 0, n)
	for k := 1; k < n; k++ {
		from := mod(rank-k, n)
		steps = append(steps, do(block(from)).recvMulti(int32(from)).store(out(from)))
	}
	return steps
}

// twoShotBroadcast: the root sends block r to rank r, which sends it to Everyone, the root
// included. The root sends the vector once, and so do all other ranks together. Zero copy is
// safe.
func twoShotBroadcast(s *Schedule, o Options) error {
	n := o.Ranks
	s.lanes(func(rank, _ int) ([][]Step, int) {
		own := do(block(rank)).store(out(rank)).send(Everyone)
		if rank == s.Root {
			return [][]Step{append(deal(rank, n), own.load(in(rank))), takeAll(rank, n)}, 0
		}
		return [][]Step{{own.recv(int32(s.Root))}, takeAll(rank, n)}, 0
	})
	return nil
}

// twoShotReduce reduces block r at rank r, which sends it to the root. Zero
// copy is safe.
func twoShotReduce(s *Schedule, o Options) error {
	n, root := o.Ranks, int32(s.Root)
	s.lanes(func(rank, _ int) ([][]Step, int) {
		give := deal(rank, n)
		if rank == s.Root {
			// The other ranks' parts of the root's block, and later their own blocks, arrive on
			// the same connections: one lane receives both.
			take, scratch := collect(rank, n, block(rank), in(rank), out(rank), o.InOrder)
			for k := 1; k < n; k++ {
				from := mod(rank-k, n)
				take = append(take, do(block(from)).recv(int32(from)).store(out(from)))
			}
			return [][]Step{give, take}, scratch
		}
		toRoot := mod(s.Root-rank, n) - 1
		steps, _ := collect(rank, n, block(rank), in(rank), scratch(0), o.InOrder)
		reduce := append([]Step{give[toRoot]}, steps...)
		last := &reduce[len(reduce)-1]
		last.Dst, last.Send = Ref{}, root
		return [][]Step{append(give[:toRoot], give[toRoot+1:]...), reduce}, 1
	})
	return nil
}
