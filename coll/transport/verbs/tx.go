//go:build cgo && linux

package verbs

import (
	"sync/atomic"

	"github.com/assay-hpc/assay/coll/transport/slots"
	rdma "github.com/assay-hpc/assay/internal/verbs"
)

// A sender is the sending end of a connection. sends holds two requests for each slot and
// queue pair: a write, and a write with immediate, which follows the write, or carries
// the data itself when the write is left out.
type sender struct {
	conn
	pending  [slots.N]uint8 // per slot: parts of its message that the device still needs
	under    int            // the sum of pending
	adaptive bool           // long messages use both requests
	to       half           // the receiver's
}

var _ slots.Sender = (*sender)(nil)

// Lazy is false: the device makes progress by itself.
func (t *sender) Lazy() bool { return false }

// Idle is not called, as Lazy is false.
func (t *sender) Idle() bool { panic("verbs: Idle on a connection that is not lazy") }

// Room implements slots.Sender.
func (t *sender) Room() bool {
	switch under := t.Count - atomic.LoadUint32(t.credit); {
	case under == slots.N:
		return false
	case under > slots.N:
		t.Fail("it has released messages that were not sent")
		return false
	}
	if t.pending[t.Count%slots.N] != 0 {
		t.reap()
	}
	return t.pending[t.Count%slots.N] == 0
}

// Messages shorter than leastSplit are not split. Parts begin at a cache line.
const (
	leastSplit = 16 << 10
	partAlign  = 64
)

// partOf returns the length of each part except the last, for at most n parts.
func partOf(length, n int) int {
	each := (length + n - 1) / n
	return (each + partAlign - 1) &^ (partAlign - 1)
}

// Send implements slots.Sender.
func (t *sender) Send(i uint32, length int) {
	q, part := int(i)%len(t.qps), length
	if t.n.params.Split && length >= leastSplit && len(t.qps) > 1 {
		q, part = 0, partOf(length, len(t.qps))
	}
	parts := (length + part - 1) / part
	imm := immediate(i, parts)
	for at := 0; at < length && !t.Broken; at += part {
		t.post(i%slots.N, q, at, min(part, length-at), imm)
		q++
	}
}

// post posts a part of the message in a slot.
func (t *sender) post(slot uint32, q, at, n int, imm uint32) {
	first := 2 * (int(slot)*len(t.qps) + q)
	w := &t.sends.WR[first+1]
	w.Imm = imm
	offset := uint64(int(slot)*t.stride + at)
	from := rdma.SGE{Address: t.mr.Address + offset, Length: uint32(n), LKey: t.mr.LKey}
	if t.adaptive && n > t.n.params.AdaptiveAbove {
		w.SGEs = 0
		w = &t.sends.WR[first]
		t.sends.SGE[first] = from
	} else {
		w.SGEs = 1
		t.sends.SGE[first+1] = from
	}
	w.SetRemote(t.to.Address+offset, t.to.Key)
	if err := t.qps[q].PostSend(w); err != nil {
		t.failDevice(err)
		return
	}
	t.pending[slot]++
	t.under++
}

// reap processes the completions that are available.
func (t *sender) reap() {
	for t.Ready && !t.Broken && t.poll(t.take) {
	}
}

func (t *sender) take(w *rdma.WC) {
	t.pending[w.ID]--
	t.under--
}

// Settle implements slots.End.
func (t *sender) Settle() bool {
	t.reap()
	return t.settle(t.under > 0)
}

// inspect detects failed requests while nothing is sent.
func (t *sender) inspect() {
	t.Lock()
	if t.Usable() && t.under > 0 {
		t.reap()
	}
	t.Unlock()
}
