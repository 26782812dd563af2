package schedule

import (
	"fmt"
	"slices"
)

// A machine runs one channel of a schedule on symbols. A lane runs until it
// needs a message that is not there or room that there is not; whoever brings
// it wakes the lane.
type machine struct {
	s       *Schedule
	windows int
	slots   int // a connection's; negative without limit
	ranks   []memory
	lanes   []lane
	conns   []*conn
	index   map[[2]int32]*conn
	ready   []int32 // lanes to run
	fabric  *fabric // nil: nobody sends to Network
	track   *tracker
	ops     map[uint64][2]uint64 // if not nil, remembers what was reduced with what
}

// memory is what a rank has of input and output, for all windows one after the
// other.
type memory struct {
	inputs, outputs, scratch int // blocks
	input, output            int // where they start among a window's cells; input is -1 out of place
	size                     int // cells of a window
	cells                    []value
}

// index is the cell of a window's block.
func (k *memory) index(window, cell int) int { return window*k.size + cell }

type lane struct {
	rank, number int32
	steps        []Step
	scratch      []value // forgotten at the end of a window
	pc           int
	window       int
	queued       bool
	recv, send   *conn // those last used
	rounds       int32 // messages on the longest chain that led here
	time         int32 // steps on the longest chain that led here
	clock        []int32
}

func newMachine(s *Schedule, o CheckOptions, place Place, channel int) (*machine, error) {
	m := &machine{s: s, windows: o.Windows, slots: o.Slots, index: make(map[[2]int32]*conn)}
	if m.windows <= 0 {
		m.windows = 3
	}
	if m.slots == 0 {
		m.slots = MinSlots
	}
	m.ranks = make([]memory, s.Ranks)
	for r := range s.Ranks {
		p := s.Program(r)
		for i, l := range p.Lanes {
			if l.Channel < 0 || l.Channel >= s.Channels {
				return nil, fmt.Errorf("rank %d has a lane in channel %d of %d", r, l.Channel, s.Channels)
			}
			if len(l.Steps) == 0 {
				return nil, fmt.Errorf("rank %d has a lane without steps", r)
			}
			if l.Channel == channel {
				m.lanes = append(m.lanes, lane{rank: int32(r), number: int32(i), steps: l.Steps, scratch: make([]value, max(0, p.Scratch))})
			}
		}
		m.ranks[r] = newMemory(s, r, p.Scratch, place == InPlace, m.windows)
	}
	for i := range m.lanes {
		for pc, st := range m.lanes[i].steps {
			if err := m.wellFormed(int(m.lanes[i].rank), st); err != nil {
				return nil, fmt.Errorf("rank %d, lane %d, step %d (%v): %w", m.lanes[i].rank, m.lanes[i].number, pc, st, err)
			}
		}
	}
	if len(m.lanes) == 0 {
		return nil, fmt.Errorf("no rank does anything")
	}
	m.fabric = m.newFabric()
	if len(m.lanes) <= clockLanes && (o.ZeroCopy || m.sharing()) {
		m.track = newTracker(m, o.ZeroCopy)
	}
	return m, nil
}

// sharing reports whether a rank has several lanes: only then can they race.
func (m *machine) sharing() bool {
	for i := range m.lanes[1:] {
		if m.lanes[i].rank == m.lanes[i+1].rank {
			return true
		}
	}
	return false
}

func newMemory(s *Schedule, rank, scratch int, inPlace bool, windows int) memory {
	k := memory{inputs: s.InputBlocks(rank), outputs: s.OutputBlocks(rank), scratch: scratch, input: -1}
	k.size = k.outputs
	if inPlace {
		k.input, k.output, _ = s.overlay(rank)
		k.size = max(k.input+k.inputs, k.output+k.outputs)
	}
	k.cells = make([]value, k.size*windows)
	if inPlace {
		for w := range windows {
			for b := range k.inputs {
				k.cells[k.index(w, k.input+b)] = leaf(rank, b)
			}
		}
	}
	return k
}

// cell is where a block of input or output lies in a window, or -1 for scratch
// memory and for an input that nobody can write.
func (k *memory) cell(window int, r Ref, i int32) int {
	b := int(r.First + i)
	switch {
	case r.Buf == Output:
		return k.index(window, k.output+b)
	case r.Buf == Input && k.input >= 0:
		return k.index(window, k.input+b)
	}
	return -1
}

// load is what a block of a lane's buffer holds.
func (k *memory) load(l *lane, r Ref, i int32) value {
	if r.Buf == Scratch {
		return l.scratch[r.First+i]
	}
	if c := k.cell(l.window, r, i); c >= 0 {
		return k.cells[c]
	}
	return leaf(int(l.rank), int(r.First+i))
}

// store is for output and scratch memory.
func (k *memory) store(l *lane, r Ref, i int32, v value) {
	if r.Buf == Scratch {
		l.scratch[r.First+i] = v
	} else {
		k.cells[k.cell(l.window, r, i)] = v
	}
}

// run runs all lanes to their end.
func (m *machine) run() error {
	for i := range m.lanes {
		m.wake(int32(i))
	}
	for len(m.ready) > 0 {
		i := m.ready[len(m.ready)-1]
		m.ready = m.ready[:len(m.ready)-1]
		m.lanes[i].queued = false
		for m.lanes[i].window < m.windows {
			if ok, err := m.step(i); err != nil {
				l := &m.lanes[i]
				return fmt.Errorf("%s: %w", l, err)
			} else if !ok {
				break
			}
		}
	}
	for i := range m.lanes {
		if l := &m.lanes[i]; l.window < m.windows {
			return fmt.Errorf("deadlock with %d slots: %s waits for ever", m.slots, l)
		}
	}
	for _, c := range m.conns {
		if n := c.queued(); n > 0 {
			return fmt.Errorf("%d messages from %s to %s are never received", n, peerName(c.src), peerName(c.dst))
		}
	}
	return nil
}

// String says where a lane is.
func (l *lane) String() string {
	if l.pc >= len(l.steps) {
		return fmt.Sprintf("rank %d, lane %d", l.rank, l.number)
	}
	return fmt.Sprintf("rank %d, lane %d, window %d, step %d (%v)", l.rank, l.number, l.window, l.pc, l.steps[l.pc])
}

func (m *machine) wake(lane int32) {
	if l := &m.lanes[lane]; !l.queued {
		l.queued = true
		m.ready = append(m.ready, lane)
	}
}

// step runs the next step of a lane, or returns false when it must wait.
func (m *machine) step(id int32) (bool, error) {
	l := &m.lanes[id]
	st := &l.steps[l.pc]
	var err error
	if st.Recv != Nobody {
		if l.recv, err = m.receiving(l.recv, id, st); err != nil {
			return false, err
		}
		if !l.recv.arrived(l.rank) {
			return false, nil
		}
	}
	if st.Send != Nobody {
		if l.send, err = m.sending(l.send, id, st); err != nil {
			return false, err
		}
		if m.slots >= 0 && l.send.queued() >= m.slots || st.Send == Network && m.fabric.full(l.rank, m.slots) {
			return false, nil
		}
	}
	var got *message
	if st.Recv != Nobody {
		got = l.recv.head(l.rank)
		if err := m.matches(got.data, st.Data); err != nil {
			return false, err
		}
		l.rounds = max(l.rounds, got.rounds)
		l.time = max(l.time, got.time)
	}
	l.time++
	if m.track != nil {
		if err := m.track.step(id, st, got); err != nil {
			return false, err
		}
	}
	if err := m.move(l, st, got); err != nil {
		return false, err
	}
	if st.Send == Network {
		if err := m.reduceInFabric(); err != nil {
			return false, err
		}
	}
	if st.Recv != Nobody {
		if l.recv.take(l.rank) {
			m.wake(l.recv.sender)
		}
	}
	if l.pc++; l.pc == len(l.steps) {
		l.pc = 0
		l.window++
		clear(l.scratch)
	}
	return true, nil
}

// matches reports why a message cannot be received as data.
func (m *machine) matches(sent, data Span) error {
	if sent.N != data.N || m.s.Collective.Vector() && sent != data {
		return fmt.Errorf("the message holds blocks %v", sent)
	}
	return nil
}

// move computes the value, stores and sends it.
func (m *machine) move(l *lane, st *Step, got *message) error {
	k := &m.ranks[l.rank]
	var msg *message
	if st.Send != Nobody {
		msg = l.send.add(st.Data, l)
	}
	for i := range st.Data.N {
		v, err := m.compute(k, l, st, got, i)
		if err != nil {
			return err
		}
		if st.Dst.Buf != NoBuf {
			k.store(l, st.Dst, i, v)
		}
		if msg != nil {
			msg.values[i] = v
		}
	}
	if msg != nil {
		for _, r := range l.send.receivers {
			if r >= 0 {
				m.wake(r)
			}
		}
	}
	return nil
}

// compute is block i of a step's value.
func (m *machine) compute(k *memory, l *lane, st *Step, got *message, i int32) (value, error) {
	var v value
	for _, r := range [...]Ref{st.A, st.B} {
		if r.Buf == NoBuf {
			continue
		}
		x := k.load(l, r, i)
		if x == (value{}) {
			return v, fmt.Errorf("reads block %d of %v, which was never written", r.First+i, r.Buf)
		}
		v = m.reduce(v, x)
	}
	if got != nil {
		v = m.reduce(v, got.values[i])
	}
	return v, nil
}

func (m *machine) reduce(a, b value) value {
	if a == (value{}) {
		return b
	}
	v := reduce(a, b)
	if m.ops != nil {
		m.ops[v.tree] = [2]uint64{a.tree, b.tree}
	}
	return v
}

// find returns a connection, made anew if there was none; last is a guess.
func (m *machine) find(last *conn, src, dst int32) *conn {
	if last != nil && last.src == src && last.dst == dst {
		return last
	}
	key := [2]int32{src, dst}
	c := m.index[key]
	if c == nil {
		n := 1
		if dst == Everyone {
			n = m.s.Ranks
		}
		c = &conn{src: src, dst: dst, sender: -1, receivers: slices.Repeat([]int32{-1}, n), next: make([]int, n)}
		m.index[key] = c
		m.conns = append(m.conns, c)
	}
	return c
}

func (m *machine) sending(last *conn, id int32, st *Step) (*conn, error) {
	c := m.find(last, m.lanes[id].rank, st.Send)
	if c.sender >= 0 && c.sender != id {
		return c, fmt.Errorf("lane %d also sends to %s", m.lanes[c.sender].number, peerName(st.Send))
	}
	c.sender = id
	return c, nil
}

func (m *machine) receiving(last *conn, id int32, st *Step) (*conn, error) {
	dst := m.lanes[id].rank
	if st.Multi {
		dst = Everyone
	}
	c := m.find(last, st.Recv, dst)
	r := &c.receivers[c.slot(m.lanes[id].rank)]
	if *r >= 0 && *r != id {
		return c, fmt.Errorf("lane %d also receives from %s", m.lanes[*r].number, peerName(st.Recv))
	}
	*r = id
	return c, nil
}

func peerName(rank int32) string {
	switch rank {
	case Everyone:
		return "everyone"
	case Nobody:
		return "nobody"
	case Network:
		return "the network"
	}
	return fmt.Sprintf("rank %d", rank)
}
