package schedule

// Rings: each rank receives from the one before it and sends to the one after it. Bandwidth is
// the best possible without multicast, latency grows with the number of ranks. Sources: Patarasuk
// and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009, for
// AllReduce; pipelined chains for Broadcast and Reduce are folklore.

// A loop is a place in a ring of n ranks that passes on n segments. A segment is a span of
// blocks, identified by its number; empty ones are skipped.
type loop struct {
	pos, n     int
	prev, next int32
	at         func(segment int) Span
}

// reduceScatter leaves the reduction of segment pos at place pos. src returns where a segment's
// own contribution is, dst is where the result goes.
func (l loop) reduceScatter(src func(segment int) Ref, dst Ref) []Step {
	if l.n == 1 {
		return nil
	}
	steps := make([]Step, 0, 2*l.n) // capacity for an allGather as well
	for k := range l.n {
		seg := mod(l.pos-1-k, l.n)
		if l.at(seg).N == 0 {
			continue
		}
		s := do(l.at(seg)).load(src(seg))
		if k > 0 {
			s = s.recv(l.prev)
		}
		if k < l.n-1 {
			s = s.send(l.next)
		} else {
			s = s.store(dst)
		}
		steps = append(steps, s)
	}
	return steps
}

// allGather sends segment pos, which is at dst(pos), to all places, and receives the other
// segments.
func (l loop) allGather(dst func(segment int) Ref) []Step {
	if l.n == 1 {
		return nil
	}
	steps := make([]Step, 0, l.n)
	for k := range l.n {
		seg := mod(l.pos-k, l.n)
		if l.at(seg).N == 0 {
			continue
		}
		s := do(l.at(seg))
		if k == 0 {
			s = s.load(dst(seg))
		} else {
			s = s.recv(l.prev).store(dst(seg))
		}
		if k < l.n-1 {
			s = s.send(l.next)
		}
		steps = append(steps, s)
	}
	return steps
}

// allReduce is reduceScatter followed by allGather. The step that completes the own segment also
// sends it.
func (l loop) allReduce(src, dst func(segment int) Ref) []Step {
	steps := l.reduceScatter(src, dst(l.pos))
	gather := l.allGather(dst)
	if len(steps) == 0 || len(gather) == 0 {
		return append(steps, gather...)
	}
	steps[len(steps)-1].Send = gather[0].Send
	return append(steps, gather[1:]...)
}

// rings are the orders of the channels.
type rings struct {
	order [][]int32
	pos   [][]int // by rank
}

func newRings(s *Schedule, o Options) rings {
	var r rings
	orders := o.Rings
	if len(orders) == 0 {
		id := make([]int, o.Ranks)
		for i := range id {
			id[i] = i
		}
		orders = [][]int{id}
	}
	for _, order := range orders {
		pos := make([]int, len(order))
		for i, rank := range order {
			pos[rank] = i
		}
		r.order = append(r.order, int32s(order))
		r.pos = append(r.pos, pos)
	}
	if o.Channels == 0 {
		s.Channels = len(orders)
	}
	return r
}

// loop returns a rank's place in a channel's ring; segment i is block i.
func (r rings) loop(rank, channel int) (loop, []int32) {
	i := channel % len(r.order)
	order, pos := r.order[i], r.pos[i][rank]
	n := len(order)
	return loop{
		pos: pos, n: n, prev: order[mod(pos-1, n)], next: order[mod(pos+1, n)],
		at: func(segment int) Span { return block(segment) },
	}, order
}

// ringAllReduce cuts the vector into n blocks; each rank sends 2(n-1) of them.
// Zero copy is safe.
func ringAllReduce(s *Schedule, o Options) error {
	r := newRings(s, o)
	s.lanes(func(rank, channel int) ([][]Step, int) {
		l, _ := r.loop(rank, channel)
		return [][]Step{l.allReduce(in[int], out[int])}, 0
	})
	return nil
}

// ringAllGather: each rank sends n-1 blocks. Zero copy is safe.
func ringAllGather(s *Schedule, o Options) error {
	r := newRings(s, o)
	s.lanes(func(rank, channel int) ([][]Step, int) {
		l, order := r.loop(rank, channel)
		steps := l.allGather(func(segment int) Ref { return out(order[segment]) })
		steps[0] = do(block(rank)).load(in(0)).store(out(rank)).send(l.next)
		return [][]Step{steps}, 0
	})
	return nil
}

// ringReduceScatter: each rank sends n-1 blocks. Zero copy is safe.
func ringReduceScatter(s *Schedule, o Options) error {
	r := newRings(s, o)
	s.lanes(func(rank, channel int) ([][]Step, int) {
		l, order := r.loop(rank, channel)
		return [][]Step{l.reduceScatter(func(segment int) Ref { return in(order[segment]) }, out(0))}, 0
	})
	return nil
}

// ringBroadcast is a chain from the root around the ring; windows follow one
// another through it. Every rank but the last sends the vector once. Zero copy
// is safe.
func ringBroadcast(s *Schedule, o Options) error {
	r := newRings(s, o)
	s.Blocks = 1
	s.lanes(func(rank, channel int) ([][]Step, int) {
		l, order := r.loop(rank, channel)
		step := do(block(0)).store(out(0))
		if rank == s.Root {
			step = step.load(in(0))
		} else {
			step = step.recv(l.prev)
		}
		if order[mod(l.pos+1, l.n)] != int32(s.Root) {
			step = step.send(l.next)
		}
		return [][]Step{{step}}, 0
	})
	return nil
}

// ringReduce is a chain that ends at the root. Every other rank sends the
// vector once. Zero copy is safe.
func ringReduce(s *Schedule, o Options) error {
	r := newRings(s, o)
	s.Blocks = 1
	s.lanes(func(rank, channel int) ([][]Step, int) {
		l, _ := r.loop(rank, channel)
		step := do(block(0)).load(in(0))
		if l.prev != int32(s.Root) {
			step = step.recv(l.prev)
		}
		if rank == s.Root {
			step = step.store(out(0))
		} else {
			step = step.send(l.next)
		}
		return [][]Step{{step}}, 0
	})
	return nil
}
