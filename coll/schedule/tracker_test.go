package schedule

import "fmt"

// A tracker knows for each step what happened before it, by vector clocks: a
// lane's own steps, and what a received message knows. From that it proves
// that lanes of a rank do not race on its memory, and (zero copy) that what
// was sent from where it lay was taken before it is written again. Credits
// order nothing here: with many slots they would not.
type tracker struct {
	m     *machine
	zero  bool
	cells [][]access // by rank, as memory.cells
	taken map[taking]event
}

// An event is a step: the count of steps its lane has done, with it.
type event struct {
	lane int32
	n    int32
}

// access is what was done with a block of memory.
type access struct {
	write event // n 0: none
	reads []event
	posts []post
}

// A post is a message that was sent from this memory.
type post struct {
	c      *conn
	number int
}

// A taking is the receiving of a message by a rank.
type taking struct {
	post
	rank int32
}

func newTracker(m *machine, zeroCopy bool) *tracker {
	t := &tracker{m: m, zero: zeroCopy, cells: make([][]access, len(m.ranks)), taken: make(map[taking]event)}
	for r := range m.ranks {
		t.cells[r] = make([]access, len(m.ranks[r].cells))
	}
	for i := range m.lanes {
		m.lanes[i].clock = make([]int32, len(m.lanes))
	}
	return t
}

// before reports whether an event happened before the lane's present step.
func (e event) before(l *lane) bool { return e.n <= l.clock[e.lane] }

func (t *tracker) step(id int32, st *Step, got *message) error {
	l := &t.m.lanes[id]
	if got != nil {
		for i, n := range got.clock {
			l.clock[i] = max(l.clock[i], n)
		}
	}
	l.clock[id]++
	now := event{id, l.clock[id]}
	if got != nil {
		t.taken[taking{post{l.recv, got.number}, l.rank}] = now
	}
	for i := range st.Data.N {
		if err := t.block(l, st, now, i); err != nil {
			return err
		}
	}
	return nil
}

// block notes what a step does with the i-th block of its operands.
func (t *tracker) block(l *lane, st *Step, now event, i int32) error {
	for _, r := range [...]Ref{st.A, st.B} {
		a := t.access(l, r, i)
		if a == nil {
			continue
		}
		if !a.write.before(l) {
			return fmt.Errorf("race: reads block %d of %v, which lane %d writes, and nothing says which is first", r.First+i, r.Buf, t.m.lanes[a.write.lane].number)
		}
		a.reads = append(a.reads, now)
	}
	if a := t.access(l, st.Dst, i); a != nil {
		if err := t.write(l, st, a, now, i); err != nil {
			return err
		}
	}
	if st.Send == Nobody {
		return nil
	}
	from := st.Dst
	if from.Buf == NoBuf && st.B.Buf == NoBuf && st.Recv == Nobody {
		from = st.A
	}
	if a := t.access(l, from, i); a != nil {
		a.posts = append(a.posts, post{l.send, l.send.base + l.send.queued()})
	}
	return nil
}

func (t *tracker) write(l *lane, st *Step, a *access, now event, i int32) error {
	for n := range len(a.reads) + 1 {
		e := a.write
		if n < len(a.reads) {
			e = a.reads[n]
		}
		if !e.before(l) {
			return fmt.Errorf("race: writes block %d of %v, which lane %d uses, and nothing says which is first", st.Dst.First+i, st.Dst.Buf, t.m.lanes[e.lane].number)
		}
	}
	if t.zero {
		for _, p := range a.posts {
			if err := t.wasTaken(l, p); err != nil {
				return fmt.Errorf("zero copy: writes block %d of %v: %w", st.Dst.First+i, st.Dst.Buf, err)
			}
		}
	}
	a.write, a.reads, a.posts = now, a.reads[:0], a.posts[:0]
	return nil
}

// wasTaken reports the receiver that may not have taken a message yet.
func (t *tracker) wasTaken(l *lane, p post) error {
	for r := range t.m.s.Ranks {
		if p.c.dst != int32(r) && (p.c.dst != Everyone || p.c.src == int32(r)) {
			continue
		}
		if e, ok := t.taken[taking{p, int32(r)}]; !ok || !e.before(l) {
			return fmt.Errorf("rank %d may not have taken what was sent from there", r)
		}
	}
	return nil
}

// access returns what is known of a block, nil where it cannot be written.
func (t *tracker) access(l *lane, r Ref, i int32) *access {
	if r.Buf == NoBuf {
		return nil
	}
	if c := t.m.ranks[l.rank].cell(l.window, r, i); c >= 0 {
		return &t.cells[l.rank][c]
	}
	return nil
}
