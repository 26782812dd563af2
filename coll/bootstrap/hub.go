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

// A hub is where an ID leads to: the first process of a meeting, to which all others
// come. It listens, has a link with each rank that has come, and gives what they say to
// its policy, one thing at a time. A Root is one policy, the first of a Group the other.
type hub struct {
	policy  policy
	id      ID
	o       Options
	silence time.Duration // of a rank, that is taken for its death
	limit   int           // of what a rank says in one frame, in bytes
	gate    *meet.Gate
	running sync.WaitGroup // links, and what else runs until the meeting is over
	over    chan struct{}  // closed when nobody needs the ID any more: the last word has been said
	done    chan struct{}  // closed when nothing of the hub runs any more

	mu       sync.Mutex        // held while the policy is called, but for admit
	arrivals map[*arrival]bool // those that have come and are to be heard
	ended    bool
}

// A policy is what a hub does about the ranks.
type policy interface {
	// admit says why a caller must not come in.
	admit(h hello) error
	// enter takes in a rank, or dismisses it.
	enter(m *arrival)
	// hear is told what a rank says, heartbeats aside. An error ends its link.
	hear(m *arrival, k meet.Kind, p []byte) error
	// lost is told of a link that broke.
	lost(m *arrival, err error)
	// stop ends the meeting because its owner wants it to end.
	stop()
}

// A arrival is a rank that has come.
type arrival struct {
	*link
	hub  *hub
	size int // of the job, as it says
}

func newHub(name string, o Options, silence time.Duration, secret [secretBytes]byte, p policy) *hub {
	h := &hub{
		policy: p, o: o, silence: silence, limit: maxFrame, over: make(chan struct{}), done: make(chan struct{}), arrivals: map[*arrival]bool{},
	}
	h.gate = o.gate(name, secret[:], p.admit, h.enter)
	return h
}

// ID is what ranks join with.
func (h *hub) ID() ID { return h.id }

// Done is closed when the meeting is over, and nothing of it runs any more.
func (h *hub) Done() <-chan struct{} { return h.done }

// Close ends the meeting, and waits until nothing of it runs. Ranks that are still
// there are told.
func (h *hub) Close() error {
	h.close(h.policy.stop)
	return nil
}

// close calls stop, which ends the meeting, if it is not over.
func (h *hub) close(stop func()) {
	h.mu.Lock()
	if !h.ended {
		stop()
	}
	h.mu.Unlock()
	<-h.done
}

// serve begins to listen. What runs from then on ends after end.
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

// enter gets a genuine caller from the gate.
func (h *hub) enter(hello hello, c net.Conn, _ []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &arrival{hub: h, size: int(hello.size)}
	m.link = newLink(m, h.silence, int(hello.from), c)
	m.limit = h.limit
	h.arrivals[m] = true
	h.policy.enter(m)
	m.start(&h.running)
}

// end says a last word to each that is still to be heard.
func (h *hub) end(patience time.Duration, word func(*arrival) (meet.Kind, []byte)) {
	h.ended = true
	for m := range h.arrivals {
		k, p := word(m)
		m.dismiss(k, p, patience)
	}
	close(h.over)
}

// dismiss says the last word to a rank, which is not heard any more, and is given some
// time to hang up: closing at once could cost it the word.
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

// An opener makes a hub that is at no place yet.
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

// at opens a hub at those of a host's addresses, and its port, that are this host's.
func (open opener) at(addr string, secret []byte, o Options) (*hub, error) {
	id, err := IDAt(addr, secret)
	if err != nil {
		return nil, err
	}
	addrs, err := id.addrs()
	if err != nil {
		return nil, err
	}
	// What listened before at the same address may not quite be gone.
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
