package schedule

import (
	"fmt"
	"io"
	"strings"
)

// String is the buffer's name in a printed schedule.
func (b Buf) String() string {
	switch b {
	case NoBuf:
		return "nothing"
	case Input:
		return "in"
	case Output:
		return "out"
	case Scratch:
		return "scratch"
	}
	return fmt.Sprintf("buffer(%d)", uint8(b))
}

// String is "3" or "3-5": first and last block.
func (s Span) String() string {
	if s.N == 1 {
		return fmt.Sprint(s.First)
	}
	return fmt.Sprintf("%d-%d", s.First, s.First+s.N-1)
}

// String is the step as people read it: "in[3] + recv(2) -> out[3], send(4)".
// multi(2) receives what rank 2 sent to everyone.
func (s Step) String() string {
	run := func(r Ref) string { return fmt.Sprintf("%v[%v]", r.Buf, Span{r.First, s.Data.N}) }
	var from, to []string
	for _, r := range []Ref{s.A, s.B} {
		if r.Buf != NoBuf {
			from = append(from, run(r))
		}
	}
	if s.Recv != Nobody {
		name := "recv"
		if s.Multi {
			name = "multi"
		}
		if s.Recv == Network {
			from = append(from, name+"(network)")
		} else {
			from = append(from, fmt.Sprintf("%s(%d)", name, s.Recv))
		}
	}
	if s.Dst.Buf != NoBuf {
		to = append(to, run(s.Dst))
	}
	switch s.Send {
	case Nobody:
	case Everyone:
		to = append(to, "send(everyone)")
	case Network:
		to = append(to, "send(network)")
	default:
		to = append(to, fmt.Sprintf("send(%d)", s.Send))
	}
	return strings.Join(from, " + ") + " -> " + strings.Join(to, ", ")
}

// String is what Fprint writes.
func (s *Schedule) String() string {
	var b strings.Builder
	s.Fprint(&b) // a Builder returns no errors
	return b.String()
}

// Fprint writes the schedule for people: every rank's lanes, one step per line, each line with
// the blocks that it moves. + is the reduction.
func (s *Schedule) Fprint(w io.Writer) error {
	root := ""
	if s.Collective.Rooted() {
		root = fmt.Sprintf(", root %d", s.Root)
	}
	if _, err := fmt.Fprintf(w, "%v %s: ranks %d%s, blocks %d, channels %d\n", s.Collective, s.Algorithm, s.Ranks, root, s.Blocks, s.Channels); err != nil {
		return err
	}
	for r := range s.Ranks {
		var b strings.Builder
		p := s.Program(r)
		fmt.Fprintf(&b, "rank %d", r)
		if p.Scratch > 0 {
			fmt.Fprintf(&b, ", scratch %d", p.Scratch)
		}
		b.WriteString("\n")
		for i, l := range p.Lanes {
			fmt.Fprintf(&b, "  lane %d, channel %d\n", i, l.Channel)
			for _, st := range l.Steps {
				fmt.Fprintf(&b, "    %-7v %v\n", st.Data, st)
			}
		}
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}
