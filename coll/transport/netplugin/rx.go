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

// begin creates the slots and starts the first receives, when the plugin has connected.
func (r *receiver) begin(comm *Comm) error {
	r.Lock()
	defer r.Unlock()
	if err := r.open(comm); err != nil {
		return err
	}
	r.want(slots.N)
	return nil
}

// want starts receives, up to n since the connection was opened.
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

// Release implements slots.Receiver: it starts a receive in the slot.
func (r *receiver) Release() {
	if r.Stopped {
		r.Leave()
		return
	}
	r.want(r.Count + slots.N)
}

// Settle starts no more receives, except for messages that the peer has already sent, and
// reports how many it has started. It receives the messages that were sent, as far as
// slots are free, and completes the pending receives. If no slot is free, it has to be
// called again after a Release.
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
		if r.Closed { // messages are not read any more
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
			r.Broken = r.Closed // otherwise the next Peek gets the error again
			return true
		}
		if r.ring.ended == before {
			return r.Ended || !r.Closed && r.ring.ended == r.ring.wanted
		}
	}
	return true
}
