//go:build cgo && linux

package verbs

import (
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll/transport"
	rdma "github.com/assay-hpc/assay/perftest/verbs"
)

// An Rx is the receiving end of a connection.
type Rx struct {
	conn
	released uint32       // messages that the caller is done with
	arrived  [slots]uint8 // parts of the message in a slot that are there
	parts    [slots]uint8 // how many there are, when one is there
	sent     uint32       // messages that the sender says it has sent, when it is gone

	looked bool // header and length are of message number released
	header transport.Header
	length int // without the header

	recvs *rdma.Recvs // a request for each queue pair; it takes no memory: the sender says where it writes

	// The sender is told of released by writes of this word.
	credit    *uint32
	creditMem []byte
	creditMR  *rdma.MR
	sends     *rdma.Sends
	posted    uint32 // credits
	done      uint32 // of them
	owed      bool   // the queue was full
}

var _ transport.Rx = (*Rx)(nil)

// creditDepth is how many credits can be under way. There are hardly ever more
// than slots: the sender has used one before it can earn so many more.
const creditDepth = 8 * slots

// creditID marks completions of credits; others have their queue pair's index.
const creditID = 1 << 32

// MaxMessage is the length of the longest message, in bytes.
func (r *Rx) MaxMessage() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maxMessage
}

// Direct is false: messages are received into registered memory.
func (r *Rx) Direct() bool { return false }

// Post is not called, as Direct is false.
func (r *Rx) Post([]byte) { panic("verbs: Post on a connection that is not direct") }

// Done is not called, as Direct is false.
func (r *Rx) Done() (transport.Header, int, bool) {
	panic("verbs: Done on a connection that is not direct")
}

// Peek implements transport.Rx.
func (r *Rx) Peek() (p []byte, h transport.Header, ok bool) {
	r.mu.Lock()
	if r.usable() && r.look() {
		p = r.slot(r.released)[headerSize : headerSize+r.length]
		h, ok = r.header, true
	}
	r.unlock()
	return p, h, ok
}

// look reports whether message number released is there, and right.
func (r *Rx) look() bool {
	if r.looked {
		return true
	}
	if !r.complete() {
		r.reap()
		if r.broken {
			return false
		}
		if !r.complete() {
			if r.gone && int32(r.released-r.sent) >= 0 {
				r.miss()
			}
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

// complete reports whether all parts of message number released are there.
func (r *Rx) complete() bool {
	i := r.released % slots
	return r.arrived[i] > 0 && r.arrived[i] == r.parts[i]
}

// Release implements transport.Rx.
func (r *Rx) Release() {
	r.mu.Lock()
	if r.usable() && r.looked {
		r.looked = false
		r.arrived[r.released%slots] = 0
		r.released++
		r.tell()
	}
	r.unlock()
}

// tell writes the credit, or notes that it has to be written.
func (r *Rx) tell() {
	if r.stopped || r.gone {
		return
	}
	if r.posted-r.done == creditDepth {
		r.owed = true
		return
	}
	atomic.StoreUint32(r.credit, r.released)
	if err := r.qps[0].PostSend(&r.sends.WR[0]); err != nil {
		r.failDevice(err)
		return
	}
	r.posted++
	r.owed = false
}

// reap takes the completions that there are.
func (r *Rx) reap() {
	for r.ready && !r.broken && r.poll(r.take) {
	}
	if r.owed && !r.broken {
		r.tell()
	}
}

// take takes a completion: of a credit, or of a part of a message.
func (r *Rx) take(w *rdma.WC) {
	if w.ID == creditID {
		r.done++
		return
	}
	ahead, parts := parseImmediate(w.Imm, r.released)
	if ahead >= slots || parts < 1 || parts > len(r.qps) {
		r.fail("it sent more messages than there is room for")
		return
	}
	i := (r.released + ahead) % slots
	r.arrived[i]++
	r.parts[i] = uint8(parts)
	if err := r.qps[w.ID].PostRecv(&r.recvs.WR[w.ID]); err != nil {
		r.failDevice(err)
	}
}

// makeCredit makes the request that writes the credit, to where the sender has
// it.
func (r *Rx) makeCredit(to *half) (err error) {
	r.creditMem = pages(pageSize)
	r.credit = (*uint32)(unsafe.Pointer(&r.creditMem[0]))
	if r.creditMR, err = r.register(r.creditMem, rdma.LocalWrite); err != nil {
		return err
	}
	if r.sends, err = rdma.NewSends(1, 1); err != nil {
		return err
	}
	w := &r.sends.WR[0]
	w.ID, w.Opcode, w.Flags = creditID, rdma.OpWrite, rdma.Signaled
	if r.qps[0].Inline >= 4 {
		w.Flags |= rdma.Inline
	}
	w.SetRemote(to.Address, to.Key)
	r.sends.SGE[0] = rdma.SGE{Address: r.creditMR.Address, Length: 4, LKey: r.creditMR.LKey}
	return nil
}

// postReceives posts a receive for all that can be under way.
func (r *Rx) postReceives() (err error) {
	if r.recvs, err = rdma.NewRecvs(len(r.qps), 1); err != nil {
		return err
	}
	for i, q := range r.qps {
		w := &r.recvs.WR[i]
		w.ID, w.SGEs = uint64(i), 0
		for range slots {
			if err := q.PostRecv(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// hear takes the sender's goodbye.
func (r *Rx) hear(n uint32) { r.sent = n }

// part writes no more credits, and says how many messages were released.
func (r *Rx) part() {
	r.goodbye(func() bool {
		r.reap()
		return r.posted != r.done
	}, func() uint32 { return r.released })
}

// inspect notices requests that have failed while nobody receives.
func (r *Rx) inspect() {
	r.mu.Lock()
	if r.usable() && (r.posted != r.done || r.owed) {
		r.reap()
	}
	r.unlock()
}

func (r *Rx) end() {
	r.free(func() error {
		var errs [3]error
		if r.creditMR != nil {
			errs[0] = r.creditMR.Close()
			r.creditMR = nil
		}
		if r.sends != nil {
			errs[1] = r.sends.Close()
			r.sends = nil
		}
		if r.recvs != nil {
			errs[2] = r.recvs.Close()
			r.recvs = nil
		}
		return joinLine(nonNil(errs[:]))
	})
}
