package coll

import (
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
)

// Operations on device memory return before anything has moved, and what moves
// carries no signature. So a rank that has enqueued something, and then nothing
// for a second, tells the others what its last collectives were, over the
// bootstrap's network. They compare those that they have called, too. Of two
// ranks that differ, the one that falls silent later finds the other's.

// A recent holds the last collectives on device memory, by number. One
// goroutine adds; others look.
type recent struct {
	at    [recentSize]atomic.Uint64 // number, signature
	count [recentSize]atomic.Int64  // while one takes another's place, it may be either's
	last  atomic.Uint32
	p2p   atomic.Int32 // Sends and Recvs after the last one, groups counting as one
	peer  atomic.Int32 // of the last of these; NoPeer: several
}

// exchanged takes note of Sends and Recvs.
func (r *recent) exchanged(transfers []op.Transfer) {
	peer := transfers[0].Peer
	for _, t := range transfers {
		if t.Peer != peer {
			peer = NoPeer
		}
	}
	r.peer.Store(int32(peer))
	r.p2p.Add(1)
}

const (
	recentSize = 64
	recentTold = 16 // of them
)

func (r *recent) add(s stall) {
	// A store takes ten times as long as a look, and these seldom change.
	if n := &r.count[s.Seq%recentSize]; n.Load() != s.Count {
		n.Store(s.Count)
	}
	r.at[s.Seq%recentSize].Store(uint64(s.Seq)<<32 | uint64(s.Sign))
	if r.p2p.Load() != 0 {
		r.p2p.Store(0)
	}
	r.last.Store(s.Seq)
}

// of is the collective with a number, if it is still known.
func (r *recent) of(seq uint32) (stall, bool) {
	v := r.at[seq%recentSize].Load()
	return stall{seq, uint32(v), r.count[seq%recentSize].Load()}, v != 0 && uint32(v>>32) == seq
}

// list is the last ones, oldest first.
func (r *recent) list() (all []stall) {
	last := r.last.Load()
	for i := uint32(recentTold); i > 0; i-- {
		if s, ok := r.of(last - i + 1); ok {
			all = append(all, s)
		}
	}
	return all
}

// tellWhenQuiet tells the others what this rank called, when it has called
// nothing for a while.
func (c *Comm) tellWhenQuiet(d *device) {
	tick := time.NewTicker(stallAfter)
	defer tick.Stop()
	var before, told uint32
	for {
		select {
		case <-d.quiet:
			return
		case <-c.broken.Done():
			return
		case <-tick.C:
		}
		if c.cfg.asNCCL {
			c.lookForHang(d)
		}
		last := d.recent.last.Load()
		if last == before && last != told {
			told = last
			if payload, err := json.Marshal(report{Recent: d.recent.list()}); err == nil {
				c.net.Report(payload)
			}
		}
		before = last
	}
}

// compareRecent ends what can never end: ranks that called different
// collectives under one number.
func (c *Comm) compareRecent(from int, theirs []stall) {
	d := c.accel.Load()
	if d == nil {
		return
	}
	for _, t := range theirs {
		mine, ok := d.recent.of(t.Seq)
		if !ok || mine.Sign == t.Sign {
			continue
		}
		c.fault.Set(c.wrap("asynchronous", &host.MismatchError{
			Peer: from,
			Mine: transport.Header{Seq: mine.Seq, Sign: mine.Sign}, Theirs: transport.Header{Seq: t.Seq, Sign: t.Sign},
			MyCount: mine.Count, TheirCount: t.Count,
		}))
		return
	}
}
