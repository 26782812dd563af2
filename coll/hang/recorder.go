package hang

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/op"
)

// A Recorder records a rank's calls of operations on device memory. One goroutine at a time
// records, any may read.
type Recorder struct {
	log   *flight.Log
	entry flight.Entry    // the log's last entry
	sent  []atomic.Uint32 // Sends that were called, by peer
	rcvd  []atomic.Uint32 // Recvs
}

func newRecorder(c *Comm, device int, processes Processes) *Recorder {
	jobs := make([]int, len(processes))
	for r, p := range processes {
		jobs[r] = p.Job
	}
	return &Recorder{log: flight.New(c.Name, c.Rank, device, jobs), sent: make([]atomic.Uint32, c.Size), rcvd: make([]atomic.Uint32, c.Size)}
}

// Transfers records Sends and Recvs that are about to be enqueued, after the collective with the
// number seq. It returns the number of the call, from 1.
func (r *Recorder) Transfers(seq uint32, transfers []op.Transfer, stream uintptr) (call uint64) {
	peer := transfers[0].Peer
	for _, t := range transfers {
		if t.Peer != peer {
			peer = op.NoPeer
		}
	}
	r.count(transfers, 1)
	e := &r.entry
	if e.Seq != seq {
		e.P2P = 0
	}
	*e = flight.Entry{Seq: seq, P2P: e.P2P + 1, Peer: int32(peer), Count: int64(len(transfers)), Stream: uint64(stream)}
	r.log.Add(e)
	return r.log.Calls()
}

// Collective records a collective that is about to be enqueued. It returns the number of the call,
// from 1.
func (r *Recorder) Collective(seq, sign uint32, count, root int, stream uintptr) (call uint64) {
	r.entry = flight.Entry{Seq: seq, Sign: sign, Count: int64(count), Peer: int32(root), Stream: uint64(stream)}
	r.log.Add(&r.entry)
	return r.log.Calls()
}

// Undo takes back Sends and Recvs that were not enqueued.
func (r *Recorder) Undo(transfers []op.Transfer) { r.count(transfers, -1) }

// count counts Sends and Recvs by peer; by is -1 for those that were not enqueued.
func (r *Recorder) count(transfers []op.Transfer, by int32) {
	for _, t := range transfers {
		if t.Send {
			r.sent[t.Peer].Add(uint32(by))
		} else {
			r.rcvd[t.Peer].Add(uint32(by))
		}
	}
}

// A collective is one that a rank has called.
type collective struct {
	Seq  uint32 `json:"seq"`
	Sign uint32 `json:"sign"`
	// Count is the number of elements that the rank passed; -1: unknown. An operation on host
	// memory that waits knows only what its messages carry, which is the Sign.
	Count int64 `json:"count"`
	Root  int   `json:"root"` // of collectives that have one
}

// String formats a collective for people: "AllReduce of float32 with sum, 100 elements, operation
// #12".
func (c collective) String() string {
	if c.Seq == 0 {
		return "the communicator was made"
	}
	return fmt.Sprintf("%s, operation #%d", c.operation(), c.Seq)
}

// operation is String without the number.
func (c collective) operation() string {
	what := op.NameOf(c.Sign)
	if c.Count >= 0 {
		what += fmt.Sprintf(", %d elements", c.Count)
	}
	if coll, _ := op.Signed(c.Sign); coll.Rooted() && c.Root >= 0 {
		what += fmt.Sprintf(", root %d", c.Root)
	}
	return what
}

// called returns the collective of an entry of the recorder.
func called(e flight.Entry) collective { return collective{e.Seq, e.Sign, e.Count, int(e.Peer)} }

// collective returns the collective with a number, if it is still recorded.
func (r *Recorder) collective(seq uint32) (collective, bool) {
	e, ok := r.log.Collective(seq)
	return called(e), ok
}

// position returns that of an entry of the recorder.
func (r *Recorder) position(e flight.Entry) position {
	p := position{Call: collective{Seq: e.Seq, Count: -1, Root: op.NoPeer}, P2P: int(e.P2P), Peer: int(e.Peer)}
	if s, ok := r.collective(e.Seq); ok {
		p.Call = s
	}
	return p
}

// Operation describes an entry of a flight recorder for people: "AllReduce of float32 with sum,
// 100 elements, operation #12".
func Operation(e flight.Entry) string {
	if e.P2P > 0 {
		return "Sends or Recvs"
	}
	return called(e).String()
}

// counts returns the numbers of Sends or Recvs by peer; nil if there are none.
func counts(of []atomic.Uint32) (all []uint32) {
	any := false
	for i := range of {
		all = append(all, of[i].Load())
		any = any || all[i] > 0
	}
	if !any {
		return nil
	}
	return all
}

// A history is the signatures of a rank's recorded collectives.
type history struct {
	Last  uint32 `json:"last"`            // number of the last one
	Signs []byte `json:"signs,omitempty"` // four bytes each, in little-endian order, the last one first
}

// history returns what this rank has recorded.
func (r *Recorder) history() (h history) {
	for _, e := range r.log.Collectives() {
		h.Last = max(h.Last, e.Seq)
		h.Signs = binary.LittleEndian.AppendUint32(h.Signs, e.Sign)
	}
	return h
}

// sign returns the signature of a collective, if it is in the history.
func (h history) sign(seq uint32) (uint32, bool) {
	at := int64(h.Last) - int64(seq)
	if at < 0 || (at+1)*4 > int64(len(h.Signs)) {
		return 0, false
	}
	return binary.LittleEndian.Uint32(h.Signs[at*4:]), true
}

// differs returns the first collective that is in both histories, with other signatures.
func (h history) differs(o history) (seq uint32, ok bool) {
	first := max(int64(h.Last)-int64(len(h.Signs)/4), int64(o.Last)-int64(len(o.Signs)/4)) + 1
	for n := max(first, 1); n <= int64(min(h.Last, o.Last)); n++ {
		a, _ := h.sign(uint32(n))
		if b, _ := o.sign(uint32(n)); a != b {
			return uint32(n), true
		}
	}
	return 0, false
}
