package hang

import (
	"encoding/binary"
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
func (d *Recorder) Transfers(seq uint32, transfers []op.Transfer, stream uintptr) (call uint64) {
	peer := transfers[0].Peer
	for _, t := range transfers {
		if t.Peer != peer {
			peer = op.NoPeer
		}
	}
	d.count(transfers, 1)
	e := &d.entry
	if e.Seq != seq {
		e.P2P = 0
	}
	*e = flight.Entry{Seq: seq, P2P: e.P2P + 1, Peer: int32(peer), Count: int64(len(transfers)), Stream: uint64(stream)}
	d.log.Add(e)
	return d.log.Calls()
}

// Collective records a collective that is about to be enqueued. It returns the number of the call,
// from 1.
func (d *Recorder) Collective(seq, sign uint32, count, root int, stream uintptr) (call uint64) {
	d.entry = flight.Entry{Seq: seq, Sign: sign, Count: int64(count), Peer: int32(root), Stream: uint64(stream)}
	d.log.Add(&d.entry)
	return d.log.Calls()
}

// Undo takes back Sends and Recvs that were not enqueued.
func (d *Recorder) Undo(transfers []op.Transfer) { d.count(transfers, -1) }

// count counts Sends and Recvs by peer; by is -1 for those that were not enqueued.
func (d *Recorder) count(transfers []op.Transfer, by int32) {
	for _, t := range transfers {
		if t.Send {
			d.sent[t.Peer].Add(uint32(by))
		} else {
			d.rcvd[t.Peer].Add(uint32(by))
		}
	}
}

// called returns the collective of an entry of the recorder.
func called(e flight.Entry) stall { return stall{e.Seq, e.Sign, e.Count, int(e.Peer)} }

// collective returns the collective with a number, if it is still recorded.
func (d *Recorder) collective(seq uint32) (stall, bool) {
	e, ok := d.log.Collective(seq)
	return called(e), ok
}

// place returns where an entry of the recorder is.
func (d *Recorder) place(e flight.Entry) place {
	p := place{Call: stall{Seq: e.Seq, Count: -1, Root: op.NoPeer}, P2P: int(e.P2P), Peer: int(e.Peer)}
	if s, ok := d.collective(e.Seq); ok {
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

// A window is the signatures of a rank's recorded collectives.
type window struct {
	Last  uint32 `json:"last"`            // number of the last one
	Signs []byte `json:"signs,omitempty"` // four bytes each, in little-endian order, the last one first
}

// window returns what this rank has recorded.
func (d *Recorder) window() (w window) {
	for _, e := range d.log.Collectives() {
		w.Last = max(w.Last, e.Seq)
		w.Signs = binary.LittleEndian.AppendUint32(w.Signs, e.Sign)
	}
	return w
}

// sign returns the signature of a collective, if it is in the window.
func (w window) sign(seq uint32) (uint32, bool) {
	at := int64(w.Last) - int64(seq)
	if at < 0 || (at+1)*4 > int64(len(w.Signs)) {
		return 0, false
	}
	return binary.LittleEndian.Uint32(w.Signs[at*4:]), true
}

// differs returns the first collective that is in both windows, with other signatures.
func (w window) differs(o window) (seq uint32, ok bool) {
	first := max(int64(w.Last)-int64(len(w.Signs)/4), int64(o.Last)-int64(len(o.Signs)/4)) + 1
	for n := max(first, 1); n <= int64(min(w.Last, o.Last)); n++ {
		a, _ := w.sign(uint32(n))
		if b, _ := o.sign(uint32(n)); a != b {
			return uint32(n), true
		}
	}
	return 0, false
}
