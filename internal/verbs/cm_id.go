//go:build cgo && linux

package verbs

// #include "library.h"
// #include "cm_library.h"
import "C"

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

// A CMID is a connection or a listener of a CM.
type CMID struct {
	cm        *CM
	c         *C.struct_cm_id
	datagrams bool
	peer      netip.AddrPort
	ctx       *Context
	asked     happening // parameters of a request
	answer    happening // destination of datagrams

	events chan happening
	gone   chan struct{} // closed when the peer or the device has disconnected
	once   sync.Once
	closed bool
}

// resolved must be called when the id has a device.
func (i *CMID) resolved() {
	C.cm_unblock(i.c)
	i.ctx = &Context{name: C.GoString(C.cm_device(i.c)), c: i.c.verbs, qps: map[unsafe.Pointer]uint32{}, borrowed: true}
	if !i.peer.IsValid() {
		i.peer = i.Remote()
	}
}

// Context is the device of the connection. It belongs to librdmacm: closing it only stops its
// events.
func (i *CMID) Context() *Context { return i.ctx }

// Port is the port number on the device, from 1.
func (i *CMID) Port() int { return int(i.c.port_num) }

// Local and Remote are the addresses of the connection.
func (i *CMID) Local() netip.AddrPort  { l, _ := i.names(); return l }
func (i *CMID) Remote() netip.AddrPort { _, r := i.names(); return r }

func (i *CMID) names() (local, remote netip.AddrPort) {
	var l, r C.struct_cm_name
	C.cm_names(i.c, &l, &r)
	return addressOf(&l), addressOf(&r)
}

// Gone is closed when the peer has ended the connection, or the device is removed.
func (i *CMID) Gone() <-chan struct{} { return i.gone }

func (i *CMID) end() { i.once.Do(func() { close(i.gone) }) }

// QP creates a queue pair for the connection, which moves it through its states; a QP for datagrams
// is in RTS at once. p must be of the id's Context, or of another Context of the same device.
func (i *CMID) QP(p *PD, o QPOptions) (*QP, error) {
	if i.c.verbs != p.ctx.c {
		return nil, fmt.Errorf("the connection to %v goes over %s, and the test's memory is of %s: give the address of the interface that belongs to -d", i.peer, i.ctx.name, p.ctx.name)
	}
	a := o.attr()
	if rc := C.cm_make_qp(i.c, p.p, &a); rc != 0 {
		return nil, p.qpFailed("rdma_create_qp", o, syscall.Errno(rc))
	}
	q := p.adopt(i.c.qp, o, &a)
	q.id, q.port = i, i.Port()
	return q, nil
}

// Options of an id, as librdmacm numbers them.
const (
	optionTOS        = 0
	optionAckTimeout = 3
)

func (i *CMID) option(option, value int) error {
	return cmFailed("rdma_set_option", i.peer, C.cm_option(i.c, C.int(option), C.uint8_t(value)))
}

// SetTimeout sets how long the QP waits for an acknowledgement: 4.096 µs << t. It needs a kernel of
// 5.1 or later, and must be called before the connection is made.
func (i *CMID) SetTimeout(t int) error { return i.option(optionAckTimeout, t) }

// CMOptions are the parameters of a connection.
type CMOptions struct {
	ReadsIn  int // outstanding reads and atomics of the peer
	ReadsOut int // outstanding own ones
	Retries  int // 0 to 7
	RNRRetry int // 7 is unlimited
}

// param limits the values to what the fields can hold.
func (o CMOptions) param() C.struct_cm_conn_param {
	return C.struct_cm_conn_param{
		responder_resources: C.uint8_t(min(o.ReadsIn, 255)), initiator_depth: C.uint8_t(min(o.ReadsOut, 255)),
		retry_count: C.uint8_t(o.Retries), rnr_retry_count: C.uint8_t(o.RNRRetry),
	}
}

// Connect connects to the peer. The QP must have been created.
func (i *CMID) Connect(ctx context.Context, o CMOptions) (err error) {
	p := o.param()
	if err := cmFailed("rdma_connect", i.peer, C.cm_connect(i.c, &p)); err != nil {
		return err
	}
	i.answer, err = i.await(ctx, cmEstablished)
	return err
}

// Accept accepts a request. The QP must have been created, and its receives posted.
func (i *CMID) Accept(ctx context.Context, o CMOptions) error {
	// The peer would refuse more than it requested.
	o.ReadsIn, o.ReadsOut = min(o.ReadsIn, i.asked.initiator), min(o.ReadsOut, i.asked.responder)
	p := o.param()
	if err := cmFailed("rdma_accept", i.peer, C.cm_accept(i.c, &p)); err != nil {
		return err
	}
	if i.datagrams { // no further event arrives for datagrams
		return nil
	}
	_, err := i.await(ctx, cmEstablished)
	return err
}

// Datagrams returns the destination of datagrams to the peer, once Connect has returned.
func (i *CMID) Datagrams(p *PD) (a *AH, qpn, qkey uint32, err error) {
	ah, e := C.verbs_create_ah(p.p, &i.answer.address)
	if ah == nil {
		return nil, 0, 0, newError("ibv_create_ah", p.ctx.name, e)
	}
	return &AH{p.ctx, ah}, i.answer.qpn, i.answer.qkey, nil
}

// AHFrom creates an address handle for replies to a received datagram. grh are the 40 bytes before
// it.
func (p *PD) AHFrom(w *WC, grh []byte, port int) (*AH, error) {
	a, err := C.verbs_create_ah_from_wc(p.p, (*C.struct_vb_wc)(unsafe.Pointer(w)), unsafe.Pointer(unsafe.SliceData(grh)), C.int(port))
	if a == nil {
		return nil, newError("ibv_create_ah_from_wc", p.ctx.name, err)
	}
	return &AH{p.ctx, a}, nil
}

// await waits for an event of the given kind. An event that ends the connection also ends the wait.
func (i *CMID) await(ctx context.Context, want cmEventType) (happening, error) {
	for {
		select {
		case e := <-i.events:
			switch e.event {
			case want:
				if e.status != 0 {
					return e, &CMError{e.event, e.status, i.peer}
				}
				return e, nil
			case cmAddrError, cmRouteError, cmConnectError, cmUnreachable, cmRejected, cmDisconnected, cmDeviceRemoval:
				return e, &CMError{e.event, e.status, i.peer}
			}
		case <-ctx.Done():
			return happening{}, fmt.Errorf("rdma_cm: waiting for %q: %w", want, context.Cause(ctx))
		case <-i.gone:
			if len(i.events) > 0 {
				continue
			}
			i.cm.mu.Lock()
			defer i.cm.mu.Unlock()
			if i.cm.lost != nil {
				return happening{}, i.cm.lost
			}
			return happening{}, &CMError{cmDisconnected, 0, i.peer}
		}
	}
}

// Disconnect ends the connection, or confirms that the peer has ended it. Outstanding requests are
// flushed.
func (i *CMID) Disconnect() error {
	return cmFailed("rdma_disconnect", i.peer, C.cm_disconnect(i.c))
}

// Close destroys the id; a request that was not accepted is refused. Its QP must be closed already.
// A second call does nothing.
func (i *CMID) Close() error {
	i.cm.mu.Lock()
	if i.closed {
		i.cm.mu.Unlock()
		return nil
	}
	i.closed = true
	delete(i.cm.ids, i.c)
	var waiting []*CMID
	for len(i.events) > 0 {
		if e := <-i.events; e.id != nil {
			waiting = append(waiting, e.id)
		}
	}
	i.cm.mu.Unlock()
	i.end()
	for _, w := range waiting {
		_ = w.Close()
	}
	return cmFailed("rdma_destroy_id", i.peer, C.cm_destroy(i.c))
}

// scopeOf is the number of an IPv6 address's zone, 0 without one.
func scopeOf(ip netip.Addr) int {
	if n, err := strconv.Atoi(ip.Zone()); err == nil {
		return n
	}
	if f, err := net.InterfaceByName(ip.Zone()); err == nil {
		return f.Index
	}
	return 0
}
