//go:build cgo

package netplugin

/*
#include "plugin.h"
*/
import "C"

import (
	"context"
	"errors"

	"github.com/assay-hpc/assay/coll/transport/slots"
)

// A receiver is the receiving end of a connection.
type receiver struct{ conn }

var _ slots.Receiver = (*receiver)(nil)

// Accept implements slots.Receiver: it listens with the plugin, answers with
// the handle, and accepts.
func (r *receiver) Accept(ctx context.Context, _ []byte) error {
	var l *Listener
	err := r.n.do(ctx, func() (_ bool, err error) {
		l, err = r.n.Listen(r.Device)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	defer func() {
		if !errors.Is(err, errStuck) {
			l.Close()
		}
	}()
	if err = r.Answer(l.Handle[:]); err != nil {
		return err
	}
	r.Watch()
	err = r.n.do(ctx, func() (bool, error) {
		comm, err := l.Accept()
		if err != nil || comm == nil {
			return false, r.orVanished(err)
		}
		if err := r.begin(comm); err != nil {
			return false, errors.Join(err, comm.Close())
		}
		return true, nil
	})
	return err
}

// begin makes the slots and begins the first receives, when the plugin has
// connected.
func (r *receiver) begin(comm *Comm) error {
	r.Lock()
	defer r.Unlock()
	if err := r.open(comm); err != nil {
		return err
	}
	r.want(slots.N)
	return nil
}

// want begins receives, so many in all.
func (r *receiver) want(n uint32) {
	r.ring.wanted = C.uint32_t(n)
	if result := C.np_pull(r.ring); result != 0 {
		r.failCall(result)
	}
}

// Arrived implements slots.Receiver.
func (r *receiver) Arrived() bool {
	if uint32(r.ring.ended) == r.Count {
		if result := C.np_pull(r.ring); result != 0 {
			r.failCall(result)
		}
	}
	return uint32(r.ring.ended) != r.Count
}

// Release implements slots.Receiver: a receive is begun in the slot.
func (r *receiver) Release() {
	if r.Stopped {
		r.Leave()
		return
	}
	r.want(r.Count + slots.N)
}

// Settle begins no more receives but for messages that were sent, and says how
// many there are; it receives what was sent, as far as there is room, and ends
// the receives under way. That may have to be gone on with when there is room
// again.
func (r *receiver) Settle() bool {
	if !r.Stopped {
		r.ring.wanted = r.ring.begun
		r.Bye(uint32(r.ring.begun))
	}
	if !r.Gone {
		return r.Ended
	}
	last := later(r.Told, uint32(r.ring.begun))
	for uint32(r.ring.ended) != last {
		free := r.Count + slots.N
		if r.Closed { // messages are not looked at any more
			free = uint32(r.ring.ended) + slots.N
		}
		if int32(free-last) > 0 {
			free = last
		}
		if int32(free-uint32(r.ring.wanted)) > 0 {
			r.ring.wanted = C.uint32_t(free)
		}
		before := r.ring.ended
		if C.np_pull(r.ring) != 0 {
			r.Broken = r.Closed // else the next Peek gets the error once more
			return true
		}
		if r.ring.ended == before {
			return r.Ended || !r.Closed && r.ring.ended == r.ring.wanted
		}
	}
	return true
}
