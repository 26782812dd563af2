package coll

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/transport"
)

// Ranks that do not call the same operation notice by the messages they get.
// Where each waits for a message that the other will never send, as when two
// of them take themselves for the root of a Reduce, there are none. So a rank
// that has been waiting for a while tells the others, over the bootstrap's
// network, what it is in, and those who wait as well compare.

// stallAfter is how long a rank waits before it tells, and between the times
// it looks again whether to log it.
const stallAfter = time.Second

// A stall is the collective that a rank is waiting in.
type stall struct {
	Seq  uint32 `json:"seq"`
	Sign uint32 `json:"sign"`
	// Elements, as the rank called it; -1: it does not know. What waits in the
	// processor's memory knows what its messages say, which is the Sign.
	Count int64 `json:"count"`
	Root  int   `json:"root"` // of those that have one
}

// stalls are what a rank knows of those who wait.
type stalls struct {
	mu     sync.Mutex
	mine   stall // 0 when this rank does not wait
	theirs map[int]stall
	logged stall
}

// late is called while an operation waits for long, every stallAfter.
func (c *Comm) late(h transport.Header, b host.Blocked, d time.Duration) {
	s := stall{Seq: h.Seq, Sign: h.Sign, Count: -1, Root: NoPeer}
	if coll, _, _ := signed(h.Sign); coll != pointToPoint && c.lane == "" { // those have numbers of their own
		c.tellWaiting(s)
	}
	if c.cfg.HangAfter == 0 || d < c.cfg.HangAfter || c.stalls.logged == s {
		return
	}
	c.stalls.logged = s
	c.cfg.log.Warnf("%s: waiting for %v since %v", describe(h), b, d.Round(time.Second))
}

// tellWaiting tells the others what this rank waits in, once, and compares it
// with what they told.
func (c *Comm) tellWaiting(s stall) {
	st := &c.stalls
	st.mu.Lock()
	first := st.mine != s
	st.mine = s
	for r, t := range st.theirs {
		c.compare(r, t)
	}
	st.mu.Unlock()
	if first {
		if payload, err := json.Marshal(report{Waiting: &s}); err == nil {
			c.net.Report(payload)
		}
	}
}

// heard takes note of a rank that waits. It is called by the bootstrap.
func (st *stalls) heard(c *Comm, from int, t stall) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.theirs == nil {
		st.theirs = map[int]stall{}
	}
	st.theirs[from] = t
	c.compare(from, t)
}

// compare ends what can never end: two ranks in the same place that wait in
// different operations.
func (c *Comm) compare(peer int, t stall) {
	mine := c.stalls.mine
	if mine.Seq != t.Seq || mine.Sign == t.Sign {
		return
	}
	c.fault.Set(c.wrap("waiting", &host.MismatchError{
		Peer: peer,
		Mine: transport.Header{Seq: mine.Seq, Sign: mine.Sign}, Theirs: transport.Header{Seq: t.Seq, Sign: t.Sign},
	}))
}
