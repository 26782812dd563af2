package coll

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/op"
)

// Operations on device memory return before any data has moved. Messages carry a signature; if
// the signatures of two ranks differ, their kernels wait forever, and the host does not learn of
// it. So a rank that has enqueued something, and then nothing for a second, sends its last
// collectives to the others, over the bootstrap's network. They compare these with the ones that
// they have called themselves. If two ranks differ, this is found at the latest when the second
// of them falls silent.

// exchanged records Sends and Recvs that are about to be enqueued.
func (d *device) exchanged(seq uint32, transfers []op.Transfer, stream uintptr) {
	peer := transfers[0].Peer
	for _, t := range transfers {
		if t.Peer != peer {
			peer = NoPeer
		}
	}
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

// recentTold is how many collectives a rank reports to the others.
const recentTold = 16

// recent returns the last collectives, oldest first.
func (d *device) recent() (all []stall) {
	last, _ := d.log.Last()
	for i := uint32(recentTold); i > 0; i-- {
		if s, ok := d.collective(last.Seq - i + 1); ok {
			all = append(all, s)
		}
	}
	return all
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
		if c.broken.Err() != nil {
			return
		}
		if c.cfg.asNCCL {
			c.lookForHang(d)
		}
		switch calls := d.log.Calls(); {
		case calls != before:
			before, since = calls, time.Now()
		case calls != told && time.Since(since) >= stallAfter:
			told = calls
			last := d.recent()
			if len(last) == 0 { // the recorder has Sends and Recvs only
				return
			}
			if payload, err := json.Marshal(report{Recent: last}); err == nil {
				c.net.Report(payload)
			}
		}
	}
}

// compareRecent finds ranks that called different collectives under one number, which would never
// end, and breaks the communicator. All ranks are asked first what they called, so that the error
// names those that differ from the majority.
func (c *Comm) compareRecent(from int, theirs []stall) {
	d := c.accel.Load()
	if d == nil {
		return
	}
	for _, t := range theirs {
		mine, ok := d.collective(t.Seq)
		if !ok || mine.Sign == t.Sign {
			continue
		}
		d.do(func() { c.sayDiffers(d, from, mine, t) })
		return
	}
}
