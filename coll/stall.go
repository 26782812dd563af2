package coll

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/transport"
)

// Ranks that call different operations notice it from the messages they get. There are none if
// each waits for a message that the other will never send, for example if two ranks take
// themselves for the root of a Reduce. So a rank that has been waiting for a while tells the
// others, over the bootstrap's network, which operation it is in, and other ranks that wait
// compare it with theirs.

// stallAfter is how long a rank waits before it tells the others, and the interval at which it
// checks again whether to log it.
const stallAfter = time.Second

// A stall is the collective that a rank is waiting in.
type stall struct {
	Seq  uint32 `json:"seq"`
	Sign uint32 `json:"sign"`
	// Count is the number of elements that the rank passed; -1: unknown. An operation on host
	// memory that waits knows only what its messages carry, which is the Sign.
	Count int64 `json:"count"`
	Root  int   `json:"root"` // of collectives that have one
}

// stalls is what a rank knows about waiting ranks.
type stalls struct {
	mu     sync.Mutex
	mine   stall // zero when this rank does not wait
	theirs map[int]stall
	logged stall
}

// late is called every stallAfter while an operation waits.
func (c *Comm) late(h transport.Header, b host.Blocked, d time.Duration) {
	s := stall{Seq: h.Seq, Sign: h.Sign, Count: -1, Root: NoPeer}
	// Sends, Recvs and lanes have their own numbers, and without signs nothing tells them apart.
	if coll, _, _ := signed(h.Sign); coll != pointToPoint && c.lane == "" && !c.env.Unchecked {
		c.tellWaiting(s)
	}
	if c.cfg.HangAfter == 0 || d < c.cfg.HangAfter || c.stalls.logged == s {
		return
	}
	c.stalls.logged = s
	c.cfg.log.Warnf("%s: waiting for %v since %v", describe(h), b, d.Round(time.Second))
}

// tellWaiting tells the others, once, what this rank waits in, and compares it with what they
// have told.
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

// heard records what a rank waits in. The bootstrap calls it.
func (st *stalls) heard(c *Comm, from int, t stall) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.theirs == nil {
		st.theirs = map[int]stall{}
	}
	st.theirs[from] = t
	c.compare(from, t)
}

// compare breaks the communicator if two ranks wait in different operations with the same number,
// which would never end.
func (c *Comm) compare(peer int, t stall) {
	mine := c.stalls.mine
	if mine.Seq == 0 || mine.Seq != t.Seq || mine.Sign == t.Sign { // 0: this rank has not waited
		return
	}
	c.fault.Set(c.wrap("waiting", &host.MismatchError{
		Peer: peer,
		Mine: transport.Header{Seq: mine.Seq, Sign: mine.Sign}, Theirs: transport.Header{Seq: t.Seq, Sign: t.Sign},
	}))
}
