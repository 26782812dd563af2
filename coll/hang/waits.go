package hang

import (
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

// Slow is how long a rank waits before it tells the others, and the interval at which it
// checks again whether to log it.
const Slow = time.Second

// A wait is what a rank has been waiting in, and for whom. The collective is zero if it cannot be
// compared with those of other ranks: Sends, Recvs and lanes have their own numbers, and without
// signatures nothing tells operations apart.
type wait struct {
	collective
	For  int  `json:"for"`            // the rank that it waits for; op.NoPeer: all
	Over bool `json:"over,omitempty"` // it waits no more
}

// Waits are what the ranks of a communicator wait in, on host memory.
type Waits struct {
	comm     *Comm
	numbered bool

	mu     sync.Mutex
	own    wait // zero when this rank does not wait
	peers  map[int]wait
	logged collective
	told   bool // the others know of own
}

// NewWaits returns the Waits of a rank. numbered is set if its collectives have the communicator's
// numbers.
func NewWaits(c *Comm, numbered bool) *Waits { return &Waits{comm: c, numbered: numbered} }

// Late is called every Slow while an operation waits, with its header.
func (w *Waits) Late(h transport.Header, b host.Blocked, since time.Duration) {
	s := wait{For: b.Peer}
	if coll, _ := op.Signed(h.Sign); coll != op.NumCollectives && w.numbered && h.Sign != 0 {
		s.collective = collective{Seq: h.Seq, Sign: h.Sign, Count: -1, Root: op.NoPeer}
	}
	w.announce(s)
	now := collective{Seq: h.Seq, Sign: h.Sign}
	if limit := w.comm.After; limit == 0 || since < limit || w.logged == now {
		return
	}
	w.logged = now
	_, why := w.Blame(&host.TimeoutError{Blocked: b, After: since})
	w.comm.Log.Warnf("%v: %v", h, why)
}

// Destroying is called when a rank has waited in Destroy for Slow. seq is the number after that of
// its last collective.
func (w *Waits) Destroying(seq uint32) {
	w.announce(wait{collective{seq, op.Destroying, -1, op.NoPeer}, op.NoPeer, false})
}

// announce tells the others, once, what this rank waits in, and compares it with what they have told.
func (w *Waits) announce(s wait) {
	w.mu.Lock()
	first := w.own != s
	w.own = s
	for r, t := range w.peers {
		w.compare(r, t)
	}
	w.mu.Unlock()
	if first {
		w.told = true
		w.comm.Send(Report{Wait: &s})
	}
}

// Over tells the others that this rank waits no more, if they know that it did.
func (w *Waits) Over() {
	if !w.told {
		return
	}
	w.told = false
	w.mu.Lock()
	w.own = wait{}
	w.mu.Unlock()
	w.comm.Send(Report{Wait: &wait{Over: true}})
}

// Heard records what a rank waits in.
func (w *Waits) Heard(from int, r Report) {
	if r.Wait == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.peers == nil {
		w.peers = map[int]wait{}
	}
	if r.Wait.Over {
		delete(w.peers, from)
		return
	}
	w.peers[from] = *r.Wait
	w.compare(from, *r.Wait)
}

// Blame follows who waits for whom to its end. It returns the rank there, NoPeer if there is none,
// and an error that says what was waited for.
func (w *Waits) Blame(late *host.TimeoutError) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, text := late.Blocked.Peer, ""
	seen := map[int]bool{w.comm.Rank: true}
	for at >= 0 && !seen[at] {
		seen[at] = true
		next, waits := w.peers[at]
		switch {
		case !waits && text == "":
			return at, late
		case !waits:
			return at, fmt.Errorf("%w%s, which does not wait for anybody: it has not called the operation, or its process stands still", late, text)
		case next.Sign == op.Destroying:
			return at, fmt.Errorf("%w%s, which destroys the communicator", late, text)
		case next.For < 0:
			return op.NoPeer, fmt.Errorf("%w%s, which waits for all ranks", late, text)
		}
		text += fmt.Sprintf(", which waits for rank %d", next.For)
		at = next.For
	}
	if at < 0 {
		return op.NoPeer, late
	}
	return op.NoPeer, fmt.Errorf("%w%s: these wait for one another", late, text)
}

// compare breaks the communicator if two ranks wait in different operations with the same number,
// which would never end.
func (w *Waits) compare(peer int, t wait) {
	own := w.own
	if own.Seq == 0 || own.Seq != t.Seq || own.Sign == t.Sign { // 0: this rank has not waited
		return
	}
	w.comm.Fault.Set(&op.Error{Code: op.InvalidUsage, Rank: w.comm.Rank, Op: "waiting", Peer: peer, Err: &host.MismatchError{
		Peer: peer,
		Mine: transport.Header{Seq: own.Seq, Sign: own.Sign}, Theirs: transport.Header{Seq: t.Seq, Sign: t.Sign},
	}})
}
