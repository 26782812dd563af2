package coll

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/op"
)

// Operations on device memory return before anything has moved. What moves carries a
// signature, by which kernels of ranks that differ wait for ever; the host hears nothing
// of that. So a rank that has enqueued something, and then nothing for a second, tells
// the others what its last collectives were, over the bootstrap's network. They compare those that they have called, too. Of two
// ranks that differ, the one that falls silent later finds the other's.

// exchanged takes note of Sends and Recvs that are about to be enqueued.
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

// called takes note of a collective that is about to be enqueued.
func (d *device) called(s stall, stream uintptr) {
	d.entry = flight.Entry{Seq: s.Seq, Sign: s.Sign, Count: s.Count, Peer: int32(s.Root), Stream: uint64(stream)}
	d.log.Add(&d.entry)
}

// called is a collective of the recorder's.
func called(e flight.Entry) stall { return stall{e.Seq, e.Sign, e.Count, int(e.Peer)} }

// collective is the one with a number, if it is still known.
func (d *device) collective(seq uint32) (stall, bool) {
	e, ok := d.log.Collective(seq)
	return called(e), ok
}

// recentTold is how many collectives a rank tells of.
const recentTold = 16

// recent are the last ones, oldest first.
func (d *device) recent() (all []stall) {
	last, _ := d.log.Last()
	for i := uint32(recentTold); i > 0; i-- {
		if s, ok := d.collective(last.Seq - i + 1); ok {
			all = append(all, s)
		}
	}
	return all
}

// A round visits communicators, all of the process by one timer: with one of their own
// each, ten would wake the process ten times as often.
type round struct {
	mu   sync.Mutex
	all  map[*Comm]func()
	runs bool
}

var looks = round{all: map[*Comm]func(){}}

// join has visit called every lookEvery. It must not block.
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

// leave returns when the communicator is not visited any more.
func (r *round) leave(c *Comm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, c)
}

// visit visits all, and reports whether there are any.
func (r *round) visit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, visit := range r.all {
		visit()
	}
	r.runs = len(r.all) > 0
	return r.runs
}

// quietTeller makes what looks for a hang, and tells the others what this rank called, when
// it has called nothing for a while.
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
			if payload, err := json.Marshal(report{Recent: d.recent()}); err == nil {
				c.net.Report(payload)
			}
		}
	}
}

// compareRecent ends what can never end: ranks that called different
// collectives under one number. What each of them called is asked before, so that the
// error names those that differ from the most.
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
