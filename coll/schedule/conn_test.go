package schedule

// A conn is a connection of the checker's machine: a queue of messages from a
// rank to another one or to Everyone.
type conn struct {
	src, dst  int32
	sender    int32   // lane
	receivers []int32 // lanes: one, or by rank
	next      []int   // the number of the message that each receives next
	queue     []message
	base      int // number of queue[0]
}

type message struct {
	data   Span
	values []value
	left   int32 // receivers that have not taken it
	rounds int32
	time   int32
	number int
	clock  []int32
}

// slot is where receivers and next are kept for a rank.
func (c *conn) slot(rank int32) int {
	if c.dst == Everyone {
		return int(rank)
	}
	return 0
}

// queued is how many messages have not been taken by all.
func (c *conn) queued() int { return len(c.queue) }

func (c *conn) arrived(rank int32) bool { return c.next[c.slot(rank)] < c.base+len(c.queue) }

func (c *conn) head(rank int32) *message { return &c.queue[c.next[c.slot(rank)]-c.base] }

// add queues a message whose values are to be filled in. It takes over the
// memory of one that is gone.
func (c *conn) add(d Span, from *lane) *message {
	n := len(c.queue)
	if n < cap(c.queue) {
		c.queue = c.queue[:n+1]
	} else {
		c.queue = append(c.queue, message{})
	}
	msg := &c.queue[n]
	values := msg.values
	if cap(values) < int(d.N) {
		values = make([]value, d.N)
	}
	*msg = message{
		data: d, values: values[:d.N], left: 1, rounds: from.rounds + 1, time: from.time,
		number: c.base + n, clock: append(msg.clock[:0], from.clock...),
	}
	if c.dst == Everyone {
		msg.left = int32(len(c.receivers)) - 1
	}
	return msg
}

// take removes a rank's next message, and reports whether that made room.
func (c *conn) take(rank int32) bool {
	msg := c.head(rank)
	c.next[c.slot(rank)]++
	if msg.left--; msg.left > 0 {
		return false
	}
	// All take in order: the one that everybody has taken is the first. It goes
	// behind the others, for add to find.
	first := c.queue[0]
	last := copy(c.queue, c.queue[1:])
	c.queue[last] = first
	c.queue = c.queue[:last]
	c.base++
	return true
}
