package coll

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A job that stands still is one in which some rank waits, on its device, for one
// that has not called what it waits for. The rank that has waited for ASSAY_SLOW asks
// all others how far they have come, over the bootstrap's network, and says what
// follows from their answers. Of several that wait the lowest does.

// A head is how far a rank has come in a communicator.
type head struct {
	Ask  bool   `json:"ask,omitempty"`  // the others are to say theirs
	Said bool   `json:"said,omitempty"` // the verdict is out
	Call stall  `json:"call"`           // its last collective
	P2P  int    `json:"p2p,omitempty"`  // Sends and Recvs since then, groups counting as one
	Peer int    `json:"peer"`           // of the last of these; NoPeer: several
	Ago  int    `json:"ago"`            // seconds since the last of either
	Busy bool   `json:"busy"`           // what it has enqueued has not ended
	Host string `json:"host"`
	PID  int    `json:"pid"`
	GPU  int    `json:"gpu"`
}

// heads are what the others answered.
type heads struct {
	mu     sync.Mutex
	of     map[int]head
	asked  time.Time // by this rank, of what it waits for
	lower  time.Time // a lower rank has asked as well
	said   stall     // what the last verdict was about
	since  time.Time // nothing was called since then
	called progress
}

// progress is what a rank has called so far.
type progress struct {
	seq uint32
	p2p int32
}

// hangAnswer is how long a rank may take to answer.
const hangAnswer = 2 * time.Second

// head is this rank's own.
func (c *Comm) head(d *device) head {
	name, _ := os.Hostname()
	last, _ := d.recent.of(d.recent.last.Load())
	h := &d.heads
	h.mu.Lock()
	ago := time.Since(h.since)
	h.mu.Unlock()
	return head{Call: last, P2P: int(d.recent.p2p.Load()), Peer: int(d.recent.peer.Load()), Ago: int(ago.Seconds()), Busy: !d.Idle(), Host: name, PID: os.Getpid(), GPU: d.ordinal}
}

// lookForHang is called once in a while.
func (c *Comm) lookForHang(d *device) {
	h := &d.heads
	now := progress{d.recent.last.Load(), d.recent.p2p.Load()}
	h.mu.Lock()
	if now != h.called || h.since.IsZero() {
		h.called, h.since, h.asked, h.lower = now, time.Now(), time.Time{}, time.Time{}
	}
	quiet, asked, lower, said := time.Since(h.since), h.asked, h.lower, h.said
	h.mu.Unlock()
	if c.cfg.Slow == 0 || quiet < c.cfg.Slow {
		return
	}
	mine := c.head(d)
	switch {
	case !mine.Busy || said == mine.Call || time.Since(lower) < 3*hangAnswer:
		return
	case asked.IsZero():
		h.mu.Lock()
		h.asked, h.of = time.Now(), map[int]head{}
		h.mu.Unlock()
		mine.Ask = true
		c.tellHead(mine)
	case time.Since(asked) >= hangAnswer:
		h.mu.Lock()
		h.said = mine.Call
		h.of[c.rank] = mine
		text := verdict(c.size, h.of, d.recent.of)
		h.mu.Unlock()
		mine.Said = true
		c.tellHead(mine)
		if c.cfg.onHang != nil {
			c.cfg.onHang(text)
		} else {
			c.cfg.log.Warnf("the communicator: %s", text)
		}
	}
}

func (c *Comm) tellHead(h head) {
	if payload, err := json.Marshal(report{Head: &h}); err == nil {
		c.net.Report(payload)
	}
}

// heardHead takes note of a rank's head, and answers. It is called by the bootstrap.
func (c *Comm) heardHead(from int, theirs head) {
	d := c.accel.Load()
	if d == nil {
		return
	}
	h := &d.heads
	h.mu.Lock()
	if h.of == nil {
		h.of = map[int]head{}
	}
	h.of[from] = theirs
	if theirs.Ask && from < c.rank {
		h.lower = time.Now()
	}
	if theirs.Said {
		h.said, _ = d.recent.of(d.recent.last.Load())
	}
	h.mu.Unlock()
	if theirs.Ask {
		c.tellHead(c.head(d))
	}
}

// mostNamed is how many ranks a verdict names.
const mostNamed = 4

// verdict says why a communicator stands still. of is what this rank called, by number.
func verdict(size int, heads map[int]head, of func(seq uint32) (stall, bool)) string {
	var furthest head
	for _, r := range slices.Sorted(maps.Keys(heads)) {
		if h := heads[r]; h.Call.Seq > furthest.Call.Seq {
			furthest = h
		}
	}
	var behind, exchanging, busy, silent []string
	for r := range size {
		h, ok := heads[r]
		who := fmt.Sprintf("rank %d (host %s, pid %d, GPU %d)", r, h.Host, h.PID, h.GPU)
		switch {
		case !ok:
			silent = append(silent, fmt.Sprintf("rank %d does not answer", r))
		case h.Call.Seq < furthest.Call.Seq:
			what := furthest.Call
			if next, ok := of(h.Call.Seq + 1); ok {
				what = next
			}
			behind = append(behind, fmt.Sprintf("%s has not called %s: %s", who, what, h.last()))
		case h.Busy && h.P2P > 0:
			with := "several ranks"
			if p, ok := heads[h.Peer]; ok {
				with = fmt.Sprintf("rank %d (%s)", h.Peer, p.last())
			}
			exchanging = append(exchanging, fmt.Sprintf("%s waits in Sends or Recvs with %s", who, with))
		case h.Busy:
			busy = append(busy, who)
		}
	}
	said := slices.Concat(behind, silent)
	if len(said) == 0 {
		said = exchanging
	}
	if len(said) == 0 {
		said = []string{fmt.Sprintf("all ranks have called %s, which has not ended on %s: a stream waits for work that is not ours, or a GPU stands still", furthest.Call, few(busy, " and "))}
	}
	return "it stands still: " + few(said, "; ")
}

// last says what a rank called last.
func (h head) last() string {
	switch {
	case h.Call.Seq == 0 && h.P2P == 0:
		return "it has called nothing yet"
	case h.P2P > 0:
		return fmt.Sprintf("its last call was of Sends or Recvs, %d s ago", h.Ago)
	}
	return fmt.Sprintf("its last call was %s, %d s ago", h.Call, h.Ago)
}

// String is for people: "AllReduce of float32 with sum, 100 elements, operation #12".
func (s stall) String() string {
	switch {
	case s.Seq == 0:
		return "the communicator was made"
	case s.Count < 0:
		return fmt.Sprintf("%s, operation #%d", kind(s.Sign), s.Seq)
	}
	return fmt.Sprintf("%s, %d elements, operation #%d", kind(s.Sign), s.Count, s.Seq)
}

func few(all []string, sep string) string {
	if n := len(all) - mostNamed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:mostNamed], sep), n)
	}
	return strings.Join(all, sep)
}
