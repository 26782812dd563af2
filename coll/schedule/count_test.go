package schedule

import (
	"fmt"
)

// Stats say what a schedule costs.
type Stats struct {
	// Messages per window, of all ranks. One to Everyone counts once.
	Messages int
	Multi    int // those of them to Everyone
	// Sent and Received, of each rank, count the blocks in its messages over all
	// channels, as parts of 1/Channels of a block. What goes to Everyone is
	// sent once and received by all others.
	Sent, Received []int
	// Rounds is the longest chain of messages, each sent by who had to wait for
	// the one before; Steps the longest chain of steps. For one window, and the
	// channel where it is longest.
	Rounds, Steps int
	// Scratch is the most blocks of scratch memory that a rank needs.
	Scratch int
}

// Stats counts what a schedule does. It fails where Check would for what makes
// that impossible, such as a deadlock.
func (s *Schedule) Stats() (Stats, error) {
	if err := s.sane(); err != nil {
		return Stats{}, err
	}
	st := s.count()
	for c := range s.Channels {
		m, err := newMachine(s, CheckOptions{Windows: 1, Slots: -1}, OutOfPlace, c)
		if err != nil {
			return Stats{}, fmt.Errorf("schedule: %w", err)
		}
		if err := m.run(); err != nil {
			return Stats{}, fmt.Errorf("schedule: %w", err)
		}
		for i := range m.lanes {
			st.Rounds = max(st.Rounds, int(m.lanes[i].rounds))
			st.Steps = max(st.Steps, int(m.lanes[i].time))
		}
	}
	return st, nil
}

// count is Stats without the chains: it looks at the programs only.
func (s *Schedule) count() Stats {
	st := Stats{Sent: make([]int, s.Ranks), Received: make([]int, s.Ranks)}
	for r := range s.Ranks {
		p := s.Program(r)
		st.Scratch = max(st.Scratch, p.Scratch)
		for _, l := range p.Lanes {
			for _, step := range l.Steps {
				if step.Recv != Nobody {
					st.Received[r] += int(step.Data.N)
				}
				if step.Send != Nobody {
					st.Sent[r] += int(step.Data.N)
					st.Messages++
					if step.Send == Everyone {
						st.Multi++
					}
				}
			}
		}
	}
	return st
}
