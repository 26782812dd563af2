package coll

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
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

// A waiting is what a rank has been waiting in, and for whom. The stall is zero if it cannot be
// compared with those of other ranks: Sends, Recvs and lanes have their own numbers, and without
// signs nothing tells operations apart.
type waiting struct {
	stall
	For  int  `json:"for"`            // the rank that it waits for; NoPeer: all
	Over bool `json:"over,omitempty"` // it waits no more
}

// stalls is what a rank knows about waiting ranks.
type stalls struct {
	mu     sync.Mutex
	mine   waiting // zero when this rank does not wait
	theirs map[int]waiting
	logged stall
	told   bool // the others know of mine
}

// late is called every stallAfter while an operation waits.
func (c *Comm) late(h transport.Header, b host.Blocked, d time.Duration) {
	s := waiting{For: b.Peer}
	if coll, _ := op.Signed(h.Sign); coll != pointToPoint && c.lane == "" && !c.env.Unchecked {
		s.stall = stall{Seq: h.Seq, Sign: h.Sign, Count: -1, Root: NoPeer}
	}
	c.tellWaiting(s)
	now := stall{Seq: h.Seq, Sign: h.Sign}
	if c.cfg.HangAfter == 0 || d < c.cfg.HangAfter || c.stalls.logged == now {
		return
	}
	c.stalls.logged = now
	_, why := c.stalls.blame(c.rank, &host.TimeoutError{Blocked: b, After: d})
	c.cfg.log.Warnf("%v: %v", h, why)
}

// tellWaiting tells the others, once, what this rank waits in, and compares it with what they
// have told.
func (c *Comm) tellWaiting(s waiting) {
	st := &c.stalls
	st.mu.Lock()
	first := st.mine != s
	st.mine = s
	for r, t := range st.theirs {
		c.compare(r, t)
	}
	st.mu.Unlock()
	if first {
		st.told = true
		c.report(report{Waiting: &s})
	}
}

// over tells the others that this rank waits no more, if they know that it did.
func (c *Comm) over() {
	st := &c.stalls
	if !st.told {
		return
	}
	st.told = false
	st.mu.Lock()
	st.mine = waiting{}
	st.mu.Unlock()
	c.report(report{Waiting: &waiting{Over: true}})
}

func (c *Comm) report(r report) {
	if payload, err := json.Marshal(r); err == nil {
		c.net.Report(payload)
	}
}

// heard records what a rank waits in. The bootstrap calls it.
func (st *stalls) heard(c *Comm, from int, t waiting) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.theirs == nil {
		st.theirs = map[int]waiting{}
	}
	if t.Over {
		delete(st.theirs, from)
		return
	}
	st.theirs[from] = t
	c.compare(from, t)
}

// blame follows who waits for whom to its end. It returns the rank there, NoPeer if there is none,
// and an error that says what was waited for.
func (st *stalls) blame(me int, late *host.TimeoutError) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	at, text := late.Blocked.Peer, ""
	seen := map[int]bool{me: true}
	for at >= 0 && !seen[at] {
		seen[at] = true
		next, waits := st.theirs[at]
		switch {
		case !waits && text == "":
			return at, late
		case !waits:
			return at, fmt.Errorf("%w%s, which does not wait for anybody: it has not called the operation, or its process stands still", late, text)
		case next.Sign == op.Destroying:
			return at, fmt.Errorf("%w%s, which destroys the communicator", late, text)
		case next.For < 0:
			return NoPeer, fmt.Errorf("%w%s, which waits for all ranks", late, text)
		}
		text += fmt.Sprintf(", which waits for rank %d", next.For)
		at = next.For
	}
	if at < 0 {
		return NoPeer, late
	}
	return NoPeer, fmt.Errorf("%w%s: these wait for one another", late, text)
}

// compare breaks the communicator if two ranks wait in different operations with the same number,
// which would never end.
func (c *Comm) compare(peer int, t waiting) {
	mine := c.stalls.mine
	if mine.Seq == 0 || mine.Seq != t.Seq || mine.Sign == t.Sign { // 0: this rank has not waited
		return
	}
	c.fault.Set(c.wrap("waiting", &host.MismatchError{
		Peer: peer,
		Mine: transport.Header{Seq: mine.Seq, Sign: mine.Sign}, Theirs: transport.Header{Seq: t.Seq, Sign: t.Sign},
	}))
}
