//go:build cgo && linux

package verbs

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll/transport"
	rdma "github.com/assay-hpc/assay/perftest/verbs"
)

// A Tx is the sending end of a connection.
type Tx struct {
	conn
	next    uint32       // number of the next message
	pending [slots]uint8 // parts of the message in a slot that the device still needs
	under   int          // parts of all of them

	// The receiver writes into credit how many messages it has released.
	credit    *uint32
	creditMem []byte
	creditMR  *rdma.MR

	// Two requests for each slot and queue pair: a write, and the write with
	// immediate that follows it, or does all when the first one is left out.
	sends    *rdma.Sends
	adaptive bool // long messages take both
	to       half // the receiver's
}

var _ transport.Tx = (*Tx)(nil)

// MaxMessage is the length of the longest message, in bytes.
func (t *Tx) MaxMessage() int { return t.maxMessage }

// Slots is how many messages can be under way.
func (t *Tx) Slots() int { return slots }

// Direct is false: what is posted is copied to registered memory.
func (t *Tx) Direct() bool { return false }

// Reserve implements transport.Tx.
func (t *Tx) Reserve(n int) []byte {
	t.check("Reserve", n)
	t.mu.Lock()
	var p []byte
	if t.room() {
		p = t.slot(t.next)[headerSize : headerSize+n]
	}
	t.unlock()
	return p
}

func (t *Tx) check(call string, n int) {
	if n > t.maxMessage {
		panic(fmt.Sprintf("verbs: %s of %d bytes; messages are at most %d bytes", call, n, t.maxMessage))
	}
}

// room reports whether a message can be added: the receiver has a slot for it,
// and the device is done with ours.
func (t *Tx) room() bool {
	if !t.usable() {
		return false
	}
	if t.gone {
		t.miss()
		return false
	}
	if t.stopped {
		return false
	}
	switch under := t.next - atomic.LoadUint32(t.credit); {
	case under == slots:
		return false
	case under > slots:
		t.fail("it has released messages that were not sent")
		return false
	}
	if t.pending[t.next%slots] != 0 {
		t.reap()
	}
	return !t.broken && t.pending[t.next%slots] == 0
}

// Commit implements transport.Tx: it sends at once.
func (t *Tx) Commit(n int, h transport.Header) {
	t.check("Commit", n)
	t.mu.Lock()
	if t.usable() && !t.stopped {
		t.send(n, h)
	}
	t.unlock()
}

// Post implements transport.Tx, by a copy.
func (t *Tx) Post(p []byte, h transport.Header) bool {
	t.check("Post", len(p))
	t.mu.Lock()
	ok := t.room()
	if ok {
		copy(t.slot(t.next)[headerSize:], p)
		t.send(len(p), h)
	}
	t.unlock()
	return ok
}

// Idle implements transport.Tx: nothing is ever kept in a caller's memory.
func (t *Tx) Idle() bool { return true }

// Messages shorter than this are not split, and parts begin at a cache line.
const (
	leastSplit = 16 << 10
	partAlign  = 64
)

// partOf is the length of a part, but for the last one, of which there are at
// most n.
func partOf(length, n int) int {
	each := (length + n - 1) / n
	return (each + partAlign - 1) &^ (partAlign - 1)
}

// send makes what is in the next slot a message of n bytes, and posts it.
func (t *Tx) send(n int, h transport.Header) {
	i := t.next
	putHeader(t.slot(i), i, n, h)
	t.next++
	length, q, part := headerSize+n, int(i)%len(t.qps), headerSize+n
	if t.e.opt.Params.Split && length >= leastSplit && len(t.qps) > 1 {
		q, part = 0, partOf(length, len(t.qps))
	}
	parts := (length + part - 1) / part
	imm := immediate(i, parts)
	for at := 0; at < length && !t.broken; at += part {
		t.post(i%slots, q, at, min(part, length-at), imm)
		q++
	}
}

// post posts a part of the message in a slot.
func (t *Tx) post(slot uint32, q, at, n int, imm uint32) {
	first := 2 * (int(slot)*len(t.qps) + q)
	w := &t.sends.WR[first+1]
	w.Imm = imm
	offset := uint64(int(slot)*t.stride + at)
	from := rdma.SGE{Address: t.mr.Address + offset, Length: uint32(n), LKey: t.mr.LKey}
	if t.adaptive && n > t.e.opt.Params.AdaptiveAbove {
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

// reap takes the completions that there are.
func (t *Tx) reap() {
	for t.ready && !t.broken && t.poll(t.take) {
	}
}

func (t *Tx) take(w *rdma.WC) {
	t.pending[w.ID]--
	t.under--
}

// makeSends makes the requests, when the receiver's memory is known.
func (t *Tx) makeSends() (err error) {
	n := slots * len(t.qps)
	if t.sends, err = rdma.NewSends(2*n, 1); err != nil {
		return err
	}
	for i := range n {
		w := t.sends.WR[2*i:]
		w[0].Opcode = rdma.OpWrite
		w[1].Opcode, w[1].Flags, w[1].ID = rdma.OpWriteImm, rdma.Signaled, uint64(i/len(t.qps))
		w[1].SetRemote(t.to.Address, t.to.Key)
		t.sends.Chain(2*i, 2*i+2)
	}
	return nil
}

// makeCredit makes the word that the receiver writes into.
func (t *Tx) makeCredit() (err error) {
	t.creditMem = pages(pageSize)
	t.credit = (*uint32)(unsafe.Pointer(&t.creditMem[0]))
	t.creditMR, err = t.register(t.creditMem, rdma.LocalWrite|rdma.RemoteWrite)
	return err
}

// hear takes the receiver's goodbye: it looks at nothing that is sent now.
func (t *Tx) hear(uint32) {}

// part sends no more messages, and says how many there were.
func (t *Tx) part() {
	t.goodbye(func() bool {
		t.reap()
		return t.under > 0
	}, func() uint32 { return t.next })
}

// inspect notices requests that have failed while nobody sends.
func (t *Tx) inspect() {
	t.mu.Lock()
	if t.usable() && t.under > 0 {
		t.reap()
	}
	t.unlock()
}

func (t *Tx) end() {
	t.free(func() error {
		var errs [2]error
		if t.creditMR != nil {
			errs[0] = t.creditMR.Close()
			t.creditMR = nil
		}
		if t.sends != nil {
			errs[1] = t.sends.Close()
			t.sends = nil
		}
		return joinLine(nonNil(errs[:]))
	})
}

func nonNil(errs []error) (list []error) {
	for _, err := range errs {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}
