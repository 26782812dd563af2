package clustertest

import (
	"math/rand/v2"
	"time"
)

// A Link describes the two directions of a host's link.
type Link struct{ Send, Receive Path }

// A Path describes what happens to packets on a part of their way: a direction of a host's link, or
// the way from one host to another. The zero value forwards them as fast as this machine can.
type Path struct {
	Rate      int           // bits per second; 0: unlimited
	Delay     time.Duration // of each packet
	Jitter    time.Duration // up to this much in addition; packets stay in order
	Loss      float64       // share of packets that are dropped
	Duplicate float64       // share of packets that arrive twice
	Corrupt   float64       // share of packets of which a bit is inverted
	Reorder   float64       // share of packets that the next ones overtake
	MTU       int           // larger packets are dropped; 0: none are
	Down      time.Duration // how long it drops all packets,
	Every     time.Duration // each time this much has passed
}

// queue is how many bytes may wait for a rate before packets are dropped: enough for TCP's data in
// flight, so that a rate limit alone drops no packets.
const queue = 8 << 20

// overtaken is by how much a packet is late that others overtake.
const overtaken = 3 * time.Millisecond

// A pipe is a path in use. Times are since the start of the switch.
type pipe struct {
	Path
	free time.Duration // when the last packet has left
	last time.Duration // when the last packet arrives
}

// pass returns when a packet that enters at a time leaves the pipe, and whether it does. It may
// change the packet.
func (p *pipe) pass(at time.Duration, frame []byte, rng *rand.Rand) (out time.Duration, twice, passes bool) {
	size := len(frame) - frameHeader
	switch {
	case p.Every > 0 && at%p.Every < p.Down,
		p.MTU > 0 && size > p.MTU,
		p.Loss > 0 && rng.Float64() < p.Loss:
		return 0, false, false
	}
	if p.Rate > 0 {
		takes := func(bytes int) time.Duration {
			return time.Duration(float64(bytes) * 8 / float64(p.Rate) * float64(time.Second))
		}
		if p.free-at > takes(queue) {
			return 0, false, false
		}
		p.free = max(p.free, at) + takes(len(frame))
		at = p.free
	}
	at += p.Delay
	if p.Jitter > 0 {
		at += time.Duration(rng.Int64N(int64(p.Jitter)))
	}
	p.last = max(p.last, at)
	at = p.last
	if p.Reorder > 0 && rng.Float64() < p.Reorder {
		at += overtaken
	}
	if p.Corrupt > 0 && rng.Float64() < p.Corrupt && size > 0 {
		frame[frameHeader+rng.IntN(size)] ^= 1 << rng.IntN(8)
	}
	return at, p.Duplicate > 0 && rng.Float64() < p.Duplicate, true
}

// SetLink changes a host's link.
func (h *Host) SetLink(l Link) {
	h.Link = l
	h.c.wires.set(func(w *wires) {
		w.send[h.i].Path, w.receive[h.i].Path = l.Send, l.Receive
	})
}

// SetPath changes the way of packets from a host to another, between the links of both.
func (h *Host) SetPath(to *Host, p Path) {
	h.c.wires.set(func(w *wires) { w.paths[[2]int{h.i, to.i}] = &pipe{Path: p} })
}

// Cut disconnects the host until it boots again. Neither side sees its link go down.
func (h *Host) Cut() error {
	h.c.wires.set(func(w *wires) { w.cut[h.i] = true })
	return nil
}
