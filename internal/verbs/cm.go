//go:build cgo && linux

package verbs

// #include "cm_library.h"
import "C"

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// loadCM returns nil, or the reason why librdmacm cannot be used, as an error that is ErrNoLibrary.
func loadCM() error {
	if err := Load(); err != nil {
		return err
	}
	if why := C.cm_load(); why != nil {
		return fmt.Errorf("%w: %s (Debian's package is librdmacm1)", ErrNoLibrary, C.GoString(why))
	}
	return nil
}

// A CM makes connections by IP address, like librdmacm: it is an event channel with its ids. A
// goroutine reads the events, so no wait is longer than its context. Methods may be called by any
// goroutine.
type CM struct {
	ch *C.struct_cm_event_channel

	mu       sync.Mutex
	ids      map[*C.struct_cm_id]*CMID
	lost     error // the channel cannot be read
	closing  chan struct{}
	finished chan struct{} // the goroutine has ended
	refusing sync.WaitGroup
}

// NewCM opens a channel. Close closes it.
func NewCM() (*CM, error) {
	if err := loadCM(); err != nil {
		return nil, err
	}
	ch, err := C.cm_open()
	if ch == nil {
		if err == syscall.ENOENT || err == syscall.ENODEV || err == syscall.ENXIO {
			return nil, fmt.Errorf("%w: there is no /dev/infiniband/rdma_cm: load the module rdma_ucm; a container needs --device=/dev/infiniband", ErrNoLibrary)
		}
		return nil, newError("rdma_create_event_channel", "this machine", err)
	}
	m := &CM{ch: ch, ids: map[*C.struct_cm_id]*CMID{}, closing: make(chan struct{}), finished: make(chan struct{})}
	go m.listen()
	return m, nil
}

// Close destroys the remaining ids and the channel. QPs that were created on ids must be closed
// already.
func (m *CM) Close() (err error) {
	m.mu.Lock()
	var ids []*CMID
	for _, i := range m.ids {
		ids = append(ids, i)
	}
	m.mu.Unlock()
	for _, i := range ids {
		if e := i.Close(); err == nil {
			err = e
		}
	}
	close(m.closing)
	<-m.finished
	m.refusing.Wait()
	// Requests may have arrived in the meantime.
	for c := range m.ids {
		C.cm_destroy(c)
	}
	C.cm_close(m.ch)
	return err
}

// listen passes events to their ids.
func (m *CM) listen() {
	defer close(m.finished)
	for {
		select {
		case <-m.closing:
			return
		default:
		}
		var h C.struct_cm_happening
		n := C.cm_next(m.ch, 50, &h)
		if n < 0 {
			m.fail(newError("rdma_get_cm_event", "this machine", syscall.Errno(-n)))
			return
		}
		if n == 1 {
			m.hand(&h)
		}
	}
}

// fail signals to all ids that no more events will arrive.
func (m *CM) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = err
	for _, i := range m.ids {
		i.end()
	}
}

func (m *CM) hand(h *C.struct_cm_happening) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := happening{event: cmEventType(h.event), status: int(h.status), responder: int(h.responder), initiator: int(h.initiator), qpn: uint32(h.qpn), qkey: uint32(h.qkey), address: h.address}
	to := m.ids[h.id]
	if e.event == cmConnectRequest {
		to = m.ids[h.listener]
		e.id = m.adopt(h.id)
		e.id.asked = e
		if to == nil { // no longer listens
			m.refuse(e.id)
			return
		}
	}
	if to == nil {
		return
	}
	if e.event == cmDisconnected || e.event == cmDeviceRemoval {
		to.end()
	}
	select {
	case to.events <- e:
	default: // more events than any caller waits for
		if e.id != nil {
			m.refuse(e.id)
		}
	}
}

// refuse refuses a request by destroying its id. That waits for the kernel, so it must not be done
// under the lock.
func (m *CM) refuse(i *CMID) { m.refusing.Go(func() { _ = i.Close() }) }

// A happening is an event.
type happening struct {
	event                cmEventType
	status               int
	id                   *CMID // of a request
	responder, initiator int
	qpn, qkey            uint32
	address              C.struct_vb_ah_attr
}

// adopt registers an id. The lock must be held.
func (m *CM) adopt(c *C.struct_cm_id) *CMID {
	i := &CMID{cm: m, c: c, events: make(chan happening, pending), gone: make(chan struct{})}
	m.ids[c] = i
	return i
}

// pending is the number of requests that can wait at a listener.
const pending = 1024

func (m *CM) create(datagrams bool, at netip.AddrPort) (*CMID, error) {
	space := C.int(C.cm_tcp)
	if datagrams {
		space = C.cm_udp
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		return nil, m.lost
	}
	var c *C.struct_cm_id
	if rc := C.cm_new(m.ch, space, &c); rc != 0 {
		return nil, cmFailed("rdma_create_id", at, rc)
	}
	i := m.adopt(c)
	i.datagrams = datagrams
	return i, nil
}

// cmFailed is the error of a failed call for an address.
func cmFailed(call string, at netip.AddrPort, rc C.int) error {
	if rc == 0 {
		return nil
	}
	return newError(call, at.String(), syscall.Errno(rc))
}

// nameOf converts an address to the layout of the C library.
func nameOf(a netip.AddrPort) C.struct_cm_name {
	var n C.struct_cm_name
	n.port = C.uint16_t(a.Port())
	ip := a.Addr().Unmap()
	bytes := ip.AsSlice()
	if ip.Is6() {
		n.ipv6 = 1
		n.scope = C.uint32_t(scopeOf(ip))
	}
	for k, b := range bytes {
		n.ip[k] = C.uint8_t(b)
	}
	return n
}

func addressOf(n *C.struct_cm_name) netip.AddrPort {
	var ip [16]byte
	for k := range ip {
		ip[k] = byte(n.ip[k])
	}
	if n.ipv6 != 0 {
		return netip.AddrPortFrom(netip.AddrFrom16(ip), uint16(n.port))
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[:4])), uint16(n.port))
}

// Listen accepts connections at an address, which may be unspecified: it then listens on all RDMA
// interfaces.
func (m *CM) Listen(at netip.AddrPort, datagrams bool, backlog int) (*CMID, error) {
	i, err := m.create(datagrams, at)
	if err != nil {
		return nil, err
	}
	n := nameOf(at)
	err = cmFailed("rdma_bind_addr", at, C.cm_bind(i.c, &n))
	if err == nil {
		err = cmFailed("rdma_listen", at, C.cm_listen(i.c, C.int(backlog)))
	}
	if err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// Request waits at a listener for a connection. The returned id must be accepted or closed.
func (i *CMID) Request(ctx context.Context) (*CMID, error) {
	e, err := i.await(ctx, cmConnectRequest)
	if err != nil {
		return nil, err
	}
	e.id.datagrams = i.datagrams
	e.id.resolved()
	return e.id, nil
}

// resolveTime is how long the kernel tries to resolve an address or a path.
const resolveTime = 2 * time.Second

// Resolve finds the device and the path to an address. from may be invalid, which means any address
// of this machine. tos is the type of service, or -1.
func (m *CM) Resolve(ctx context.Context, from, to netip.AddrPort, datagrams bool, tos int) (*CMID, error) {
	i, err := m.create(datagrams, to)
	if err != nil {
		return nil, err
	}
	if err := i.resolve(ctx, from, to, tos); err != nil {
		i.Close()
		return nil, err
	}
	i.resolved()
	return i, nil
}

func (i *CMID) resolve(ctx context.Context, from, to netip.AddrPort, tos int) error {
	i.peer = to
	var source *C.struct_cm_name
	if from.IsValid() {
		n := nameOf(from)
		source = &n
	}
	n := nameOf(to)
	if err := cmFailed("rdma_resolve_addr", to, C.cm_resolve(i.c, source, &n, C.int(resolveTime.Milliseconds()))); err != nil {
		return err
	}
	if _, err := i.await(ctx, cmAddrResolved); err != nil {
		return err
	}
	if tos >= 0 {
		if err := i.option(optionTOS, tos); err != nil {
			return err
		}
	}
	if err := cmFailed("rdma_resolve_route", to, C.cm_route_to(i.c, C.int(resolveTime.Milliseconds()))); err != nil {
		return err
	}
	_, err := i.await(ctx, cmRouteResolved)
	return err
}
