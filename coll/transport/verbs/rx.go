//go:build cgo && linux

package verbs

import (
	"errors"
	"sync/atomic"

	"github.com/assay-hpc/assay/coll/transport/slots"
	rdma "github.com/assay-hpc/assay/internal/verbs"
)

// A receiver is the receiving end of a connection. sends holds the write of the credit.
type receiver struct {
	conn
	arrived [slots.N]uint8 // per slot: parts of its message that have arrived
	parts   [slots.N]uint8 // per slot: number of parts of its message, known once one has arrived
	recvs   *rdma.Recvs    // one request per queue pair, without memory: the sender chooses where it writes
	posted  uint32         // credits posted
	done    uint32         // credits completed
	owed    bool           // a credit has to be written: the queue was full
}

var _ slots.Receiver = (*receiver)(nil)

// creditDepth is how many credits can be pending. There are rarely more than slots.N:
// before the receiver can release that many more messages, the sender must have received
// one of the credits.
const creditDepth = 8 * slots.N

// creditID marks completions of credits; other completions carry the index of their queue
// pair.
const creditID = 1 << 32

// Arrived implements slots.Receiver.
func (r *receiver) Arrived() bool {
	if !r.complete() {
		r.reap()
	}
	return r.complete()
}

// complete reports whether all parts of message Count have arrived.
func (r *receiver) complete() bool {
	i := r.Count % slots.N
	return r.arrived[i] > 0 && r.arrived[i] == r.parts[i]
}

// Release implements slots.Receiver.
func (r *receiver) Release() {
	r.arrived[(r.Count-1)%slots.N] = 0
	r.sendCredits()
}

// sendCredits writes the credit, or records that it has to be written.
func (r *receiver) sendCredits() {
	if r.Gone || r.Closed {
		return
	}
	if r.posted-r.done == creditDepth {
		r.owed = true
		return
	}
	atomic.StoreUint32(r.credit, r.Count)
	if err := r.qps[0].PostSend(&r.sends.WR[0]); err != nil {
		r.failDevice(err)
		return
	}
	r.posted++
	r.owed = false
}

// reap processes the completions that are available.
func (r *receiver) reap() {
	for r.Ready && !r.Broken && r.poll(r.take) {
	}
	if r.owed && !r.Broken {
		r.sendCredits()
	}
}

// take processes the completion of a credit, or of a part of a message.
func (r *receiver) take(w *rdma.WC) {
	if w.ID == creditID {
		r.done++
		return
	}
	ahead, parts := parseImmediate(w.Imm, r.Count)
	if ahead >= slots.N || parts < 1 || parts > len(r.qps) {
		r.Fail("it sent more messages than there is room for")
		return
	}
	i := (r.Count + ahead) % slots.N
	r.arrived[i]++
	r.parts[i] = uint8(parts)
	if err := r.qps[w.ID].PostRecv(&r.recvs.WR[w.ID]); err != nil {
		r.failDevice(err)
	}
}

// Settle implements slots.End.
func (r *receiver) Settle() bool {
	r.reap()
	return r.settle(r.posted != r.done)
}

// inspect detects failed requests while nothing is received.
func (r *receiver) inspect() {
	r.Lock()
	if r.Usable() && (r.posted != r.done || r.owed) {
		r.reap()
	}
	r.Unlock()
}

// Free implements slots.End.
func (r *receiver) Free() error {
	err := r.conn.Free()
	if r.recvs != nil {
		err = errors.Join(err, r.recvs.Close())
		r.recvs = nil
	}
	return err
}
