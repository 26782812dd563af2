package schedule

// The functions with which algorithms are written. A step reads from left to right:
//
//	do(span).load(in(b)).recv(prev).store(out(b)).send(next)
//
// is NCCL's recvReduceCopySend.

func do(d Span) Step { return Step{Recv: Nobody, Send: Nobody, Data: d} }

// load adds an operand from memory.
func (s Step) load(r Ref) Step {
	if s.A.Buf == NoBuf {
		s.A = r
	} else {
		s.B = r
	}
	return s
}

// recv adds the next message from a rank as the operand.
func (s Step) recv(from int32) Step { s.Recv = from; return s }

// recvMulti adds the next message that a rank sends to Everyone.
func (s Step) recvMulti(from int32) Step { s.Recv, s.Multi = from, true; return s }

// store sets where the value is stored.
func (s Step) store(r Ref) Step { s.Dst = r; return s }

// send sets the rank to which the value is sent.
func (s Step) send(to int32) Step { s.Send = to; return s }

func in[T int | int32](block T) Ref      { return Ref{Input, int32(block)} }
func out[T int | int32](block T) Ref     { return Ref{Output, int32(block)} }
func scratch[T int | int32](block T) Ref { return Ref{Scratch, int32(block)} }

// block is the span of one block.
func block[T int | int32](b T) Span { return Span{int32(b), 1} }

// mod is a modulo n, not negative.
func mod(a, n int) int {
	if a %= n; a < 0 {
		a += n
	}
	return a
}

// lanes sets Program from a function that returns the lanes of one channel, empty ones included,
// and the number of blocks of scratch memory that a lane needs.
func (s *Schedule) lanes(f func(rank, channel int) (lanes [][]Step, scratch int)) {
	channels := s.Channels
	s.Program = func(rank int) Program {
		var p Program
		for c := range channels {
			lanes, n := f(rank, c)
			p.Scratch = max(p.Scratch, n)
			for _, l := range lanes {
				if len(l) > 0 {
					p.Lanes = append(p.Lanes, Lane{Channel: c, Steps: l})
				}
			}
		}
		return p
	}
}

// widest is the largest number of blocks that a step of a rank moves. Makers with steps of
// several blocks set MaxSpan to widest of a rank that moves the most.
func (s *Schedule) widest(rank int) int {
	most := int32(1)
	for _, l := range s.Program(rank).Lanes {
		for _, st := range l.Steps {
			most = max(most, st.Data.N)
		}
	}
	return int(most)
}

// int32s copies a list of ranks.
func int32s(a []int) []int32 {
	b := make([]int32, len(a))
	for i, v := range a {
		b[i] = int32(v)
	}
	return b
}
