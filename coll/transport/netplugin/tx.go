//go:build cgo

package netplugin

/*
#include "plugin.h"
*/
import "C"

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/transport"
)

// A Tx is the sending end of a connection.
type Tx struct {
	conn
	next uint32 // number of the next message

	parted bool   // this side said how many messages it has sent
	sent   uint32 // that many
	told   bool   // the receiver said how many receives it has begun
	begun  uint32 // that many
}

var (
	_ transport.Tx   = (*Tx)(nil)
	_ transport.Lazy = (*Tx)(nil)
)

// Lazy is that a plugin may refuse to send just now, and moves messages only
// while it is called.
func (t *Tx) Lazy() {}

// MaxMessage is the length of the longest message, in bytes.
func (t *Tx) MaxMessage() int { return t.maxMessage }

// Slots is how many messages the sender keeps.
func (t *Tx) Slots() int { return slots }

// Direct is false: what is posted is copied to registered memory.
func (t *Tx) Direct() bool { return false }

// Reserve implements transport.Tx.
func (t *Tx) Reserve(n int) []byte {
	t.check("Reserve", n)
	t.mu.Lock()
	var p []byte
	if t.room() {
		p = t.slot(uint32(t.ring.wanted))[headerSize : headerSize+n]
	}
	t.unlock()
	return p
}

func (t *Tx) check(call string, n int) {
	if n > t.maxMessage {
		panic(fmt.Sprintf("netplugin: %s of %d bytes; messages are at most %d bytes", call, n, t.maxMessage))
	}
}

// room reports whether a message can be added.
func (t *Tx) room() bool {
	if !t.usable() {
		return false
	}
	if t.gone {
		t.miss()
		return false
	}
	if t.ring.wanted-t.ring.ended == slots {
		t.push()
	}
	return !t.broken && t.ring.wanted-t.ring.ended < slots
}

// push goes on with what is under way.
func (t *Tx) push() {
	if result := C.np_push(t.ring); result != 0 {
		t.failCall(result)
	}
}

// Commit implements transport.Tx: it begins to send at once.
func (t *Tx) Commit(n int, h transport.Header) {
	t.check("Commit", n)
	t.mu.Lock()
	if t.usable() && !t.gone {
		t.add(n, kindMessage, h)
		t.push()
	}
	t.unlock()
}

// add makes what is in the next slot a message of n bytes.
func (t *Tx) add(n int, kind uint32, h transport.Header) {
	i := uint32(t.ring.wanted)
	putHeader(t.slot(i), kind, t.next, n, h)
	t.ring.length[i%slots] = C.size_t(headerSize + n)
	t.ring.wanted++
	t.next++
}

// Post implements transport.Tx, by a copy.
func (t *Tx) Post(p []byte, h transport.Header) bool {
	t.check("Post", len(p))
	t.mu.Lock()
	ok := t.room()
	if ok {
		copy(t.slot(uint32(t.ring.wanted))[headerSize:], p)
		t.add(len(p), kindMessage, h)
		t.push()
	}
	t.unlock()
	return ok
}

// Idle implements transport.Tx. It is false, too, while messages that were
// committed are under way: the plugin moves them only while it is called.
func (t *Tx) Idle() bool {
	t.mu.Lock()
	idle := true
	if t.usable() && t.ring.wanted != t.ring.ended {
		t.push()
		idle = t.ring.wanted == t.ring.ended
	}
	t.unlock()
	return idle
}

// hear takes the receiver's goodbye.
func (t *Tx) hear(word, n uint32) {
	t.mu.Lock()
	defer t.unlock()
	if word != wordEnd {
		t.fail(fmt.Sprintf("it sent the word %#x", word))
		return
	}
	t.gone, t.told, t.begun = true, true, n
	t.part()
	t.e.worker.add(t.settle)
}

// part sends no more messages, and says how many there were.
func (t *Tx) part() {
	if !t.parted && t.ring != nil {
		t.parted, t.sent = true, uint32(t.ring.wanted)
		t.say(wordBye, t.sent)
	}
}

// leave begins to close.
func (t *Tx) leave() {
	t.mu.Lock()
	defer t.unlock()
	t.part()
	t.closed = true
}

// settle ends the sends under way, and sends fillers until no receive of the
// peer's is under way. It reports whether that is done, or hopeless.
func (t *Tx) settle() bool {
	t.mu.Lock()
	defer t.unlock()
	if t.ring == nil || t.broken {
		return true
	}
	if !t.told || !t.parted {
		return t.ended
	}
	last := later(t.sent, t.begun)
	for uint32(t.ring.wanted) != last && t.ring.wanted-t.ring.ended < slots {
		t.add(0, kindFiller, transport.Header{})
	}
	if C.np_push(t.ring) != 0 { // the receiver has what it waits for, or is lost
		t.broken = true
		return true
	}
	return uint32(t.ring.ended) == last
}
