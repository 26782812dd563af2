package rendezvous

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Hosts with containers have dozens of addresses that lead nowhere from other hosts, and of those of
// two hosts each pair may be silent. A survey finds the pairs that connect: it calls all addresses of a
// peer at one time, and then those that answer from all addresses of this host.

const (
	surveyFrom = 8   // pairs of addresses that are simply tried in turn
	surveyMost = 256 // pairs that are called at one time
	// surveyLate is how long others may take after the first one that connects.
	surveyLate = 100 * time.Millisecond
)

// survey notes which pairs of addresses do not connect, once for each peer. Dial waits for it.
func (p *Point) survey(ctx context.Context, to Addrs, list []way) {
	if len(list) <= surveyFrom {
		return
	}
	p.mu.Lock()
	key := to.String()
	once := p.surveys[key]
	if once == nil {
		once = new(sync.Once)
		p.surveys[key] = once
	}
	p.mu.Unlock()
	once.Do(func() {
		var all []way
		for _, a := range to {
			if !a.Addr().IsLinkLocalUnicast() { // nobody knows over which interface
				all = append(all, way{to: a})
			}
		}
		answers := map[netip.AddrPort]bool{}
		for w := range p.knock(ctx, all) {
			answers[w.to] = true
		}
		answer := slices.DeleteFunc(slices.Clone(list), func(w way) bool { return !answers[w.to] })
		tried := answer[:min(len(answer), surveyMost)]
		connects := p.knock(ctx, tried)
		if len(connects) == 0 {
			return
		}
		for _, w := range list {
			if !answers[w.to] || slices.Contains(tried, w) {
				p.note(w, connects[w])
			}
		}
	})
}

// knock calls pairs of addresses at one time, from whichever address the system chooses where a pair
// has none, and returns those that connect about as soon as the first one.
func (p *Point) knock(ctx context.Context, list []way) map[way]bool {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	results := make(chan attempt)
	for _, w := range list {
		go p.connect(ctx, w, true, results)
	}
	connects := map[way]bool{}
	var late <-chan time.Time
	for range list {
		select {
		case a := <-results:
			if a.err != nil {
				continue
			}
			a.c.Close()
			connects[a.way] = true
			if late == nil {
				late = time.After(surveyLate)
			}
		case <-late:
			return connects
		case <-ctx.Done():
			return connects
		}
	}
	return connects
}

// source is the address from which a pair is called; nil: the system chooses.
func (w way) source() net.Addr {
	if !w.from.IsValid() {
		return nil
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.from, 0))
}
