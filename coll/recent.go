package coll

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/op"
)

// Operations on device memory return before any data has moved. Messages carry a signature; if
// the signatures of two ranks differ, their kernels wait forever, and the host does not learn of
// it. So a rank that has enqueued something, and then nothing for a second, sends the signatures
// of all collectives in its recorder to the others, over the bootstrap's network. They compare
// these with the ones that they have called themselves. If two ranks differ, this is found at the
// latest when the second of them falls silent, however far it has run ahead of its GPU.

// exchanged records Sends and Recvs that are about to be enqueued.
func (d *device) exchanged(seq uint32, transfers []op.Transfer, stream uintptr) {
	peer := transfers[0].Peer
	for _, t := range transfers {
		if t.Peer != peer {
			peer = NoPeer
		}
	}
	d.count(transfers, 1)
	e := &d.entry
	if e.Seq != seq {
		e.P2P = 0
	}
	*e = flight.Entry{Seq: seq, P2P: e.P2P + 1, Peer: int32(peer), Count: int64(len(transfers)), Stream: uint64(stream)}
	d.log.Add(e)
}

// called records a collective that is about to be enqueued.
func (d *device) called(s stall, stream uintptr) {
	d.entry = flight.Entry{Seq: s.Seq, Sign: s.Sign, Count: s.Count, Peer: int32(s.Root), Stream: uint64(stream)}
	d.log.Add(&d.entry)
}

// called returns the collective of an entry of the recorder.
func called(e flight.Entry) stall { return stall{e.Seq, e.Sign, e.Count, int(e.Peer)} }

// collective returns the collective with a number, if it is still recorded.
func (d *device) collective(seq uint32) (stall, bool) {
	e, ok := d.log.Collective(seq)
	return called(e), ok
}

// count counts Sends and Recvs by peer; by is -1 for those that were not enqueued.
func (d *device) count(transfers []op.Transfer, by int32) {
	for _, t := range transfers {
		if t.Send {
			d.sent[t.Peer].Add(uint32(by))
		} else {
			d.rcvd[t.Peer].Add(uint32(by))
		}
	}
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
func (d *device) window() (w window) {
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

// A round visits all communicators of the process with one timer: with a timer each, ten
// communicators would wake the process ten times as often.
type round struct {
	mu   sync.Mutex
	all  map[*Comm]func()
	runs bool
}

var looks = round{all: map[*Comm]func(){}}

// join makes the round call visit every lookEvery. visit must not block.
func (r *round) join(c *Comm, visit func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[c] = visit
	if !r.runs {
		r.runs = true
		go func() {
			for more := true; more; more = r.visit() {
				time.Sleep(lookEvery)
			}
		}()
	}
}

// leave removes a communicator. Once leave returns, it is not visited any more.
func (r *round) leave(c *Comm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, c)
}

// comms returns the communicators that have joined.
func (r *round) comms() []*Comm {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.all))
}

// visit visits all communicators, and reports whether there are any.
func (r *round) visit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, visit := range r.all {
		visit()
	}
	r.runs = len(r.all) > 0
	return r.runs
}

// quietTeller returns a function for the round: it looks for a hang, and tells the others what
// this rank called last when it has called nothing for a while.
func (c *Comm) quietTeller(d *device) func() {
	var before, told uint64
	since := time.Now()
	return func() {
		calls := d.log.Calls()
		if c.broken.Err() != nil {
			if calls != before && c.cfg.asNCCL { // a call that the fault came upon
				before = calls
				d.do(func() { c.sayFault(d, c.fault.Err(), "") })
			}
			return
		}
		if c.cfg.asNCCL {
			c.lookForHang(d)
		}
		switch {
		case calls != before:
			before, since = calls, time.Now()
		case calls != told && time.Since(since) >= stallAfter:
			told = calls
			last := d.window()
			if last.Last == 0 { // the recorder has Sends and Recvs only
				return
			}
			if payload, err := json.Marshal(report{Recent: &last}); err == nil {
				c.net.Report(payload)
			}
		}
	}
}

// compareRecent finds ranks that called different collectives under one number, which would never
// end, and breaks the communicator. All ranks are asked first what they called, so that the error
// names those that differ from the majority.
func (c *Comm) compareRecent(from int, theirs window) {
	d := c.accel.Load()
	if d == nil {
		return
	}
	seq, differ := d.window().differs(theirs)
	if mine, ok := d.collective(seq); ok && differ {
		sign, _ := theirs.sign(seq)
		d.do(func() { c.sayDiffers(d, from, mine, stall{seq, sign, -1, NoPeer}) })
	}
}
