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

// A meeting is where an ID leads to: a Root, or the first of a Crew.
type meeting interface {
	where() *venue
	start() // comes before the venue's gate opens
	Close() error
}

// A venue is what meetings have in common.
type venue struct {
	id     ID
	o      Options
	gate   *meet.Gate
	beside sync.WaitGroup // what runs until the meeting is over, and it waits for
	over   chan struct{}  // closed when nobody needs the ID any more
}

func (v *venue) where() *venue { return v }

// ID is what ranks join with.
func (v *venue) ID() ID { return v.id }

// An opener makes a meeting that is at no place yet.
type opener func(o Options, secret [secretBytes]byte) meeting

// anywhere opens a meeting on the interfaces that o admits, with a new random
// secret.
func (open opener) anywhere(o Options) (meeting, error) {
	m := open(o, randomSecret())
	v := m.where()
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
	v.id = newID([secretBytes]byte(v.gate.Secret), addrs, false)
	m.start()
	for _, l := range listeners {
		v.gate.Serve(l)
	}
	return m, nil
}

// at opens a meeting at those of a host's addresses, and its port, that are this
// host's.
func (open opener) at(addr string, secret []byte, o Options) (meeting, error) {
	id, err := IDAt(addr, secret)
	if err != nil {
		return nil, err
	}
	addrs, err := id.addrs()
	if err != nil {
		return nil, err
	}
	m := open(o, [secretBytes]byte(id.secret()))
	v := m.where()
	v.id = id
	// Who listened before at the same address may not quite be gone.
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
			m.start()
			for _, l := range listeners {
				v.gate.Serve(l)
			}
			return m, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begun) > lingerTime+meet.Patience {
			return nil, fmt.Errorf("the root cannot listen at %s: %w; NCCL_COMM_ID must be an address of rank 0's host, with a free port", addr, err)
		}
	}
}
