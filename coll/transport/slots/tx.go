package slots

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/transport"
)

// A Tx is the sending end of a connection.
type Tx struct {
	*Conn
	s Sender
}

var (
	_ transport.Tx   = (*Tx)(nil)
	_ transport.Lazy = (*Tx)(nil)
)

// Lazy implements transport.Lazy.
func (t *Tx) Lazy() bool { return t.s.Lazy() }

// MaxMessage is the length of the longest message, in bytes.
func (t *Tx) MaxMessage() int { return t.maxMessage }

// Slots is the number of messages that can be pending.
func (t *Tx) Slots() int { return N }

// Direct is false: posted memory is copied to registered memory.
func (t *Tx) Direct() bool { return false }

// Reserve implements transport.Tx.
func (t *Tx) Reserve(n int) []byte {
	t.check("Reserve", n)
	t.Lock()
	var p []byte
	if t.credit() {
		p = t.slot(t.Count)[HeaderSize : HeaderSize+n]
	}
	t.Unlock()
	return p
}

func (t *Tx) check(call string, n int) {
	if n > t.maxMessage {
		panic(fmt.Sprintf("%v: %s of %d bytes; messages are at most %d bytes", t.e.network, call, n, t.maxMessage))
	}
}

// credit reports whether another message can be sent now.
func (t *Tx) credit() bool {
	if !t.Usable() {
		return false
	}
	if t.Gone {
		t.miss()
		return false
	}
	return !t.Stopped && t.s.Room() && !t.Broken
}

// Commit implements transport.Tx: it begins to send at once.
func (t *Tx) Commit(n int, h transport.Header) {
	t.check("Commit", n)
	t.Lock()
	if t.Usable() && !t.Gone && !t.Stopped {
		t.send(n, h)
	}
	t.Unlock()
}

// send sends the n bytes in the next slot as a message.
func (t *Tx) send(n int, h transport.Header) {
	i := t.Count
	putHeader(t.slot(i), message, i, n, h)
	t.Count++
	t.s.Send(i, HeaderSize+n)
}

// Post implements transport.Tx, by a copy.
func (t *Tx) Post(p []byte, h transport.Header) bool {
	t.check("Post", len(p))
	t.Lock()
	ok := t.credit()
	if ok {
		copy(t.slot(t.Count)[HeaderSize:], p)
		t.send(len(p), h)
	}
	t.Unlock()
	return ok
}

// Idle implements transport.Tx. Posted memory is never in use, but Idle also returns
// false while committed messages of a lazy network are pending.
func (t *Tx) Idle() bool {
	if !t.s.Lazy() {
		return true
	}
	t.Lock()
	idle := !t.Usable() || t.s.Idle()
	t.Unlock()
	return idle
}
