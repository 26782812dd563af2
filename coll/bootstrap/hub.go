package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// A hub is the process to which an ID leads: the first process of a meeting, to which all
// others connect. It listens, has a link to each rank that has connected, and passes
// their frames to its policy, one at a time. The policies are Root, and groupHub at rank
// 0 of a Group.
type hub struct {
	policy  policy
	id      ID
	o       Options
	ofHost  bool // a rank is lost with its host, not when it is silent: see link.ofHost
	limit   int  // of a rank's frame, in bytes
	gate    *meet.Gate
	running sync.WaitGroup // links, and whatever else runs until the meeting is over
	over    chan struct{}  // closed when the ID is no longer needed: the last frames are queued
	done    chan struct{}  // closed when nothing of the hub runs any more

	mu       sync.Mutex        // held during calls of the policy, except admit
	arrivals map[*arrival]bool // ranks that have connected and are still heard
	ended    bool
}

// A policy decides how a hub treats the ranks.
type policy interface {
	// admit returns why a caller is rejected, or nil.
	admit(h hello) error
	// enter admits a rank, or dismisses it.
	enter(m *arrival)
	// hear handles a rank's frame, except heartbeats. An error ends its link.
	hear(m *arrival, k meet.Kind, p []byte) error
	// lost handles a link that broke.
	lost(m *arrival, err error)
	// stop ends the meeting on behalf of its owner.
	stop()
}

// An arrival is a rank that has connected.
type arrival struct {
	*link
	hub  *hub
	size int // of the job, as the rank reports it
}

func newHub(name string, o Options, secret [secretBytes]byte, p policy) *hub {
	h := &hub{
		policy: p, o: o, limit: maxFrame, over: make(chan struct{}), done: make(chan struct{}), arrivals: map[*arrival]bool{},
	}
	h.gate = o.gate(name, secret[:], p.admit, h.enter)
	return h
}

// ID returns the ID with which ranks join.
func (h *hub) ID() ID { return h.id }

// Done returns a channel that is closed when the meeting is over, and nothing of it runs
// any more.
func (h *hub) Done() <-chan struct{} { return h.done }

// Close ends the meeting, and waits until nothing of it runs. Ranks that are still
// connected are told.
func (h *hub) Close() error {
	h.close(h.policy.stop)
	return nil
}

// close calls stop, which ends the meeting, unless the meeting is already over.
func (h *hub) close(stop func()) {
	h.mu.Lock()
	if !h.ended {
		stop()
	}
	h.mu.Unlock()
	<-h.done
}

// serve starts to listen. Everything that it starts ends after end.
func (h *hub) serve(listeners []net.Listener) {
	for _, l := range listeners {
		h.gate.Serve(l)
	}
	go func() {
		<-h.over
		h.gate.Close()
		h.running.Wait()
		close(h.done)
	}()
}

// enter handles an authenticated caller from the gate.
func (h *hub) enter(hello hello, c net.Conn, _ []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &arrival{hub: h, size: int(hello.size)}
	if m.link = newLink(m, h.o.Silence, int(hello.from), c); h.ofHost {
		m.ofHost()
	}
	m.limit = h.limit
	h.arrivals[m] = true
	h.policy.enter(m)
	m.start(&h.running)
}

// end sends a last frame to each rank that is still heard.
func (h *hub) end(patience time.Duration, word func(*arrival) (meet.Kind, []byte)) {
	h.ended = true
	for m := range h.arrivals {
		k, p := word(m)
		m.dismiss(k, p, patience)
	}
	close(h.over)
}

// dismiss sends the last frame to a rank, which is no longer heard, and gives it some
// time to hang up: closing at once could lose the frame.
func (m *arrival) dismiss(k meet.Kind, payload []byte, patience time.Duration) {
	delete(m.hub.arrivals, m)
	m.left.Store(true)
	m.finish(k, payload, time.Now().Add(patience))
}

func (m *arrival) handle(_ *link, k meet.Kind, p []byte) error {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	if k == frameBeat || !m.hub.arrivals[m] {
		return nil
	}
	return m.hub.policy.hear(m, k, p)
}

func (m *arrival) lost(_ *link, err error) {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	if m.hub.arrivals[m] {
		delete(m.hub.arrivals, m)
		m.hub.policy.lost(m, err)
	}
}

// An opener creates a hub that does not listen yet.
type opener func(o Options, secret [secretBytes]byte) *hub

// anywhere opens a hub on the interfaces that o admits, with a new random secret.
func (open opener) anywhere(o Options) (*hub, error) {
	h := open(o, randomSecret())
	list, err := meet.Interfaces(o.Ifname, o.Family)
	if err != nil {
		return nil, err
	}
	var listeners []net.Listener
	var addrs []netip.AddrPort
	for _, i := range list {
		if len(addrs) == idMaxAddrs {
			break
		}
		l, lerr := net.Listen("tcp", netip.AddrPortFrom(i.Addr, 0).String())
		if lerr != nil {
			err = lerr
			continue
		}
		listeners = append(listeners, l)
		addrs = append(addrs, meet.AddrPort(l.Addr()))
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("the root cannot listen on any of %s: %w", meet.Names(list), err)
	}
	h.id = newID([secretBytes]byte(h.gate.Secret), addrs, false)
	h.serve(listeners)
	return h, nil
}

// at opens a hub at the port of addr, on those of its addresses that belong to this host.
func (open opener) at(addr string, secret []byte, o Options) (*hub, error) {
	id, err := IDAt(addr, secret)
	if err != nil {
		return nil, err
	}
	addrs, err := id.addrs()
	if err != nil {
		return nil, err
	}
	// A previous listener at the same address may not be fully closed yet.
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		var listeners []net.Listener
		for _, a := range addrs {
			for _, z := range meet.Zones(a, o.Ifname) {
				if l, lerr := net.Listen("tcp", z.String()); lerr != nil {
					err = lerr
				} else {
					listeners = append(listeners, l)
				}
			}
		}
		if len(listeners) > 0 {
			h := open(o, [secretBytes]byte(id.secret()))
			h.id = id
			h.serve(listeners)
			return h, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begun) > lingerTime+meet.Patience {
			return nil, fmt.Errorf("the root cannot listen at %s: %w; NCCL_COMM_ID must be an address of rank 0's host, with a free port", addr, err)
		}
	}
}
