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

// An Rx is the receiving end of a connection.
type Rx struct {
	conn
	released uint32 // messages that the caller is done with
	stopped  bool   // no receive is begun any more
	sent     uint32 // messages that the sender says it has sent, when it is gone
	header   transport.Header
	length   int  // without the header
	looked   bool // both are of message number released
}

var _ transport.Rx = (*Rx)(nil)

// MaxMessage is the length of the longest message, in bytes.
func (r *Rx) MaxMessage() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maxMessage
}

// Direct is false: messages are received into registered memory.
func (r *Rx) Direct() bool { return false }

// Post is not called, as Direct is false.
func (r *Rx) Post([]byte) { panic("netplugin: Post on a connection that is not direct") }

// Done is not called, as Direct is false.
func (r *Rx) Done() (transport.Header, int, bool) {
	panic("netplugin: Done on a connection that is not direct")
}

// Peek implements transport.Rx.
func (r *Rx) Peek() (p []byte, h transport.Header, ok bool) {
	r.mu.Lock()
	if r.usable() && r.arrived() {
		p = r.slot(r.released)[headerSize : headerSize+r.length]
		h, ok = r.header, true
	}
	r.unlock()
	return p, h, ok
}

// arrived reports whether message number released is there, and right.
func (r *Rx) arrived() bool {
	if r.looked {
		return true
	}
	if r.gone && int32(r.released-r.sent) >= 0 {
		r.miss()
		return false
	}
	if uint32(r.ring.ended) == r.released {
		if result := C.np_pull(r.ring); result != 0 {
			r.failCall(result)
			return false
		}
		if uint32(r.ring.ended) == r.released {
			return false
		}
	}
	h, n, err := parseHeader(r.slot(r.released), r.released)
	if err != nil {
		r.fail("it sent " + err.Error())
		return false
	}
	r.header, r.length, r.looked = h, n, true
	return true
}

// Release implements transport.Rx: a receive is begun in the slot.
func (r *Rx) Release() {
	r.mu.Lock()
	if r.usable() && r.looked {
		r.looked = false
		r.released++
		if r.stopped {
			r.e.worker.add(r.settle)
		} else {
			r.ring.wanted = C.uint32_t(r.released + slots)
			if result := C.np_pull(r.ring); result != 0 {
				r.failCall(result)
			}
		}
	}
	r.unlock()
}

// begin makes the slots and begins the first receives, when the plugin has
// connected.
func (r *Rx) begin(comm *Comm) error {
	r.mu.Lock()
	defer r.unlock()
	if err := r.open(comm); err != nil {
		return err
	}
	r.ring.wanted = slots
	if result := C.np_pull(r.ring); result != 0 {
		r.failCall(result)
	}
	if r.gone { // what was sent is on its way, and the sender waits for an answer
		r.stop()
		r.e.worker.add(r.settle)
	}
	return nil
}

// hear takes the sender's goodbye.
func (r *Rx) hear(word, n uint32) {
	r.mu.Lock()
	defer r.unlock()
	if word != wordBye {
		r.fail(fmt.Sprintf("it sent the word %#x", word))
		return
	}
	r.gone, r.sent = true, n
	if r.ring != nil { // else begin goes on
		r.stop()
		r.e.worker.add(r.settle)
	}
}

// stop begins no more receives but for messages that were sent, and says how
// many there are.
func (r *Rx) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	begun := uint32(0)
	if r.ring != nil {
		begun = uint32(r.ring.begun)
		r.ring.wanted = r.ring.begun
	}
	r.say(wordEnd, begun)
}

// leave begins to close.
func (r *Rx) leave() {
	r.mu.Lock()
	defer r.unlock()
	if r.wire != nil {
		r.stop()
	}
	r.closed = true
}

// settle receives what was sent, as far as there is room, and ends the receives
// under way. It reports whether that is done, or hopeless, or to be gone on with
// when there is room again.
func (r *Rx) settle() bool {
	r.mu.Lock()
	defer r.unlock()
	if r.ring == nil || r.broken {
		return true
	}
	if !r.gone || !r.stopped {
		return r.ended
	}
	last := later(r.sent, uint32(r.ring.begun))
	for uint32(r.ring.ended) != last {
		free := r.released + slots
		if r.closed { // nobody looks at messages any more
			free = uint32(r.ring.ended) + slots
		}
		if int32(free-last) > 0 {
			free = last
		}
		if int32(free-uint32(r.ring.wanted)) > 0 {
			r.ring.wanted = C.uint32_t(free)
		}
		before := r.ring.ended
		if C.np_pull(r.ring) != 0 {
			r.broken = r.closed // else whoever wants a message gets the error once more
			return true
		}
		if r.ring.ended == before {
			return r.ended || !r.closed && r.ring.ended == r.ring.wanted
		}
	}
	return true
}
