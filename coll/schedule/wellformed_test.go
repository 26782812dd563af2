package schedule

import "fmt"

// wellFormed reports what is wrong with a step by itself.
func (m *machine) wellFormed(rank int, st Step) error {
	s, k := m.s, &m.ranks[rank]
	somebody := func(p int32) bool { return p >= 0 && int(p) < s.Ranks && int(p) != rank }
	operands := 0
	for _, r := range []Ref{st.A, st.B} {
		if r.Buf != NoBuf {
			operands++
		}
	}
	if st.Recv != Nobody {
		operands++
	}
	switch {
	case st.Data.N < 1 || st.Data.First < 0 || int(st.Data.First)+int(st.Data.N) > s.Blocks:
		return fmt.Errorf("the data are not within the %d blocks", s.Blocks)
	case int(st.Data.N) > max(1, s.MaxSpan):
		return fmt.Errorf("the schedule says that no step moves more than %d blocks", max(1, s.MaxSpan))
	case operands == 0 || operands > 2:
		return fmt.Errorf("%d operands; a step has one or two", operands)
	case operands == 2 && !s.Collective.Reduces():
		return fmt.Errorf("%v reduces nothing", s.Collective)
	case st.Recv != Nobody && st.Recv != Network && !somebody(st.Recv):
		return fmt.Errorf("cannot receive from rank %d", st.Recv)
	case st.Send != Nobody && st.Send != Everyone && st.Send != Network && !somebody(st.Send):
		return fmt.Errorf("cannot send to rank %d", st.Send)
	case st.Multi && (st.Recv == Nobody || st.Recv == Network):
		return fmt.Errorf("multi without a message of a rank")
	case st.Send == Nobody && st.Dst.Buf == NoBuf:
		return fmt.Errorf("the value is neither stored nor sent")
	case st.Dst.Buf == Input:
		return fmt.Errorf("input is not to be written")
	}
	for _, r := range []Ref{st.A, st.B, st.Dst} {
		if err := k.holds(r, st.Data, s.Collective.Vector()); err != nil {
			return err
		}
		if r != st.Dst && r.Buf == st.Dst.Buf && abs(r.First-st.Dst.First) < st.Data.N {
			return fmt.Errorf("operand and result overlap")
		}
	}
	return nil
}

func abs(a int32) int32 { return max(a, -a) }

// holds reports why a reference cannot be to data of a span.
func (k *memory) holds(r Ref, d Span, vector bool) error {
	var n int
	switch r.Buf {
	case NoBuf:
		return nil
	case Input:
		n = k.inputs
	case Output:
		n = k.outputs
	case Scratch:
		n = k.scratch
	default:
		return fmt.Errorf("there is no buffer number %d", r.Buf)
	}
	if r.First < 0 || int(r.First)+int(d.N) > n {
		return fmt.Errorf("%v has %d blocks", r.Buf, n)
	}
	if vector && r.Buf != Scratch && r.First != d.First {
		return fmt.Errorf("block %d of %v is not where block %d of the vector lies", r.First, r.Buf, d.First)
	}
	return nil
}
