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

// A sender is the sending end of a connection.
type sender struct{ conn }

var _ slots.Sender = (*sender)(nil)

// Connect implements slots.Sender: it gets a handle, and connects to it.
func (t *sender) Connect(ctx context.Context) error {
	b, err := t.Ask(ctx, nil)
	if err != nil {
		return err
	}
	handle, err := handleOf(b)
	if err != nil {
		return err
	}
	t.Watch()
	d := t.n.Dial(t.Device, handle)
	err = t.n.do(ctx, func() (bool, error) {
		comm, err := d.Connect()
		if err != nil || comm == nil {
			return false, t.orVanished(err)
		}
		t.Lock()
		defer t.Unlock()
		if err := t.open(comm); err != nil {
			return false, errors.Join(err, comm.Close())
		}
		return true, nil
	})
	if !errors.Is(err, errStuck) {
		d.Close()
	}
	return err
}

// Lazy is true: a plugin may refuse a send for the moment, and moves messages only while
// it is called.
func (t *sender) Lazy() bool { return true }

// Room implements slots.Sender. A plugin's own flow control makes it wait for the
// receiver.
func (t *sender) Room() bool {
	if t.ring.wanted-t.ring.ended == slots.N {
		t.push()
	}
	return t.ring.wanted-t.ring.ended < slots.N
}

// push makes progress on pending sends.
func (t *sender) push() {
	if result := C.np_push(t.ring); result != 0 {
		t.failCall(result)
	}
}

// Send implements slots.Sender.
func (t *sender) Send(i uint32, n int) {
	t.add(i, n)
	t.push()
}

func (t *sender) add(i uint32, n int) {
	t.ring.length[i%slots.N] = C.size_t(n)
	t.ring.wanted++
}

// Idle implements slots.Sender.
func (t *sender) Idle() bool {
	if t.ring.wanted != t.ring.ended {
		t.push()
	}
	return t.ring.wanted == t.ring.ended
}

// Settle reports the number of messages, completes the pending sends, and sends fillers
// until none of the receives that the peer has started is pending.
func (t *sender) Settle() bool {
	t.Bye(t.Count)
	if !t.Gone {
		return t.Ended
	}
	last := later(t.Count, t.Told)
	for uint32(t.ring.wanted) != last && t.ring.wanted-t.ring.ended < slots.N {
		i := uint32(t.ring.wanted)
		t.add(i, t.Filler(i))
	}
	if C.np_push(t.ring) != 0 { // the receiver has everything that it waits for, or is lost
		t.Broken = true
		return true
	}
	return uint32(t.ring.ended) == last
}
