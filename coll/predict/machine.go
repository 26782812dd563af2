package predict

import "fmt"

// A simulation is a schedule on a topology in the simulator's form: lanes of operations, links
// that serve one message at a time, and connections with slots. Times are in seconds from the
// start, as float64.
//
// It is a discrete-event simulation: lanes and messages in transit are in a heap, ordered by
// the time at which they can continue, so that links are taken in the order of time. A lane
// that waits for a message or a free slot is stored in the connection instead.
//
// A message passes its links cut-through: it enters the next link as soon as it has begun to
// leave the previous one and the next one is free; the fabric buffers what has to wait. A lane
// continues when its own link has finished with the message.
type simulation struct {
	lanes  []lane
	links  []link
	conns  []conn
	onWay  []message // in transit or free
	unused []int32   // free entries of onWay
	slots  int
	bytes  func(window int) float64 // of a block, in a channel's window
	wins   int
	ends   []float64 // of each window: when the last lane was done with it
	queue  eventHeap
}

// A message is in transit through links.
type message struct {
	links   []int32 // still to pass
	conns   []int32 // where it arrives
	bytes   float64
	end     float64 // of the slowest link so far
	latency float64
}

// A task is one step of a lane.
type task struct {
	recv    int32   // connection to take a message from, -1: none
	sends   []int32 // connections to put one message into
	links   []int32 // that the message passes, the sender's own first, or that the work occupies
	blocks  float64 // its size in blocks
	latency float64 // from the end of sending to arrival
}

type lane struct {
	ops     []task
	win, pc int
	end     float64
}

// A link serves messages one after the other.
type link struct{ perByte, free float64 }

// A conn has space for slots messages that are sent and not yet released.
type conn struct {
	arrived, released      []float64 // ring buffers by message number
	sent, there, taken     int
	receiver, sender       int32 // lanes that wait here; -1: none
	receiverAt, waitingFor float64
}

func newMachine(slots int) *simulation { return &simulation{slots: slots} }

func (m *simulation) link(rate BytesPerSec) int32 {
	m.links = append(m.links, link{perByte: rate.perByte()})
	return int32(len(m.links) - 1)
}

func (m *simulation) conn() int32 {
	m.conns = append(m.conns, conn{
		arrived: make([]float64, m.slots), released: make([]float64, m.slots), receiver: -1, sender: -1,
	})
	return int32(len(m.conns) - 1)
}

func (m *simulation) lane(ops []task) { m.lanes = append(m.lanes, lane{ops: ops}) }

// run simulates wins windows and returns when the last lane ends.
func (m *simulation) run(wins int, bytes func(window int) float64) (float64, error) {
	m.reset(wins, bytes)
	for len(m.queue) > 0 {
		e := m.queue.pop()
		if e.who < 0 {
			m.pass(^e.who, e.at)
		} else {
			m.step(e.who, e.at)
		}
	}
	var end float64
	for i := range m.lanes {
		l := &m.lanes[i]
		if l.win < wins && len(l.ops) > 0 {
			return 0, fmt.Errorf("the schedule cannot go on with %d slots: lane %d of %d waits for ever in window %d, step %d", m.slots, i, len(m.lanes), l.win, l.pc)
		}
		end = max(end, l.end)
	}
	return end, nil
}

func (m *simulation) reset(wins int, bytes func(window int) float64) {
	m.wins, m.bytes, m.queue = wins, bytes, m.queue[:0]
	m.onWay, m.unused = m.onWay[:0], m.unused[:0]
	m.ends = append(m.ends[:0], make([]float64, wins)...)
	for i := range m.links {
		m.links[i].free = 0
	}
	for i := range m.conns {
		c := &m.conns[i]
		c.sent, c.there, c.taken, c.receiver, c.sender = 0, 0, 0, -1, -1
	}
	for i := range m.lanes {
		l := &m.lanes[i]
		l.win, l.pc, l.end = 0, 0, 0
		if len(l.ops) > 0 && wins > 0 {
			m.queue.push(event{0, int32(i)})
		}
	}
}

// step advances a lane at time now as far as possible: to its next operation, or until it has
// to wait.
func (m *simulation) step(i int32, now float64) {
	l := &m.lanes[i]
	o := &l.ops[l.pc]
	if at, ok := m.ready(o, i, now); !ok {
		return
	} else if at > now {
		m.push(i, at)
		return
	}
	end := m.send(o, m.bytes(l.win)*o.blocks, now)
	if o.recv >= 0 {
		m.release(&m.conns[o.recv], end)
	}
	l.end = end
	if l.pc++; l.pc == len(l.ops) {
		l.pc = 0
		m.ends[l.win] = max(m.ends[l.win], end)
		l.win++
	}
	if l.win < m.wins {
		m.push(i, end)
	}
}

// ready returns when an operation's message has arrived and its slots are free. If that is not
// known yet, the lane waits on the connection, and ok is false.
func (m *simulation) ready(o *task, i int32, now float64) (at float64, ok bool) {
	at = now
	if o.recv >= 0 {
		c := &m.conns[o.recv]
		if c.taken == c.there {
			c.receiver, c.receiverAt = i, now
			return 0, false
		}
		at = max(at, c.arrived[c.taken%m.slots])
	}
	for _, s := range o.sends {
		c := &m.conns[s]
		if c.sent-c.taken == m.slots {
			c.sender, c.waitingFor = i, now
			return 0, false
		}
		if c.sent >= m.slots {
			at = max(at, c.released[c.sent%m.slots])
		}
	}
	return at, true
}

// send puts an operation's message on its way, or does its work, and returns
// when the lane is done with it.
func (m *simulation) send(o *task, bytes, now float64) float64 {
	for _, s := range o.sends {
		m.conns[s].sent++
	}
	start, end := now, now
	if len(o.links) > 0 {
		start, end = m.take(o.links[0], bytes, now)
	}
	if len(o.sends) == 0 {
		return end
	}
	msg := message{conns: o.sends, bytes: bytes, end: end, latency: o.latency}
	if len(o.links) < 2 {
		m.arrive(msg)
		return end
	}
	msg.links = o.links[1:]
	if n := len(m.unused); n > 0 {
		i := m.unused[n-1]
		m.unused, m.onWay[i] = m.unused[:n-1], msg
		m.push(^i, start)
	} else {
		m.onWay = append(m.onWay, msg)
		m.push(^int32(len(m.onWay)-1), start)
	}
	return end
}

// take occupies a link for a message that can enter it at time at or later.
func (m *simulation) take(k int32, bytes, at float64) (start, end float64) {
	l := &m.links[k]
	start = max(at, l.free)
	l.free = start + bytes*l.perByte
	return start, l.free
}

// pass moves a message through its next link.
func (m *simulation) pass(i int32, now float64) {
	msg := &m.onWay[i]
	start, end := m.take(msg.links[0], msg.bytes, now)
	msg.end = max(msg.end, end)
	if msg.links = msg.links[1:]; len(msg.links) > 0 {
		m.push(^i, start)
		return
	}
	m.arrive(*msg)
	m.unused = append(m.unused, i)
}

func (m *simulation) arrive(msg message) {
	at := msg.end + msg.latency
	for _, k := range msg.conns {
		c := &m.conns[k]
		c.arrived[c.there%m.slots] = at
		c.there++
		if c.receiver >= 0 {
			m.push(c.receiver, max(c.receiverAt, at))
			c.receiver = -1
		}
	}
}

func (m *simulation) release(c *conn, at float64) {
	c.released[c.taken%m.slots] = at
	c.taken++
	if c.sender >= 0 {
		m.push(c.sender, max(c.waitingFor, at))
		c.sender = -1
	}
}

func (m *simulation) push(i int32, at float64) { m.queue.push(event{at, i}) }

// An event is a lane, or a message (the complement of its index), that continues at a given
// time.
type event struct {
	at  float64
	who int32
}

// An eventHeap is a binary heap of events, the earliest first.
type eventHeap []event

func (h eventHeap) before(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].who < h[j].who // makes runs deterministic
}

func (h *eventHeap) push(e event) {
	q := append(*h, e)
	*h = q
	for i := len(q) - 1; i > 0 && q.before(i, (i-1)/2); i = (i - 1) / 2 {
		q[i], q[(i-1)/2] = q[(i-1)/2], q[i]
	}
}

func (h *eventHeap) pop() event {
	q := *h
	first := q[0]
	n := len(q) - 1
	q[0] = q[n]
	q = q[:n]
	*h = q
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
			if q.before(c, least) {
				least = c
			}
		}
		if least == i {
			return first
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}
