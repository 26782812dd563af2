//go:build cgo && linux

package verbs

// #include "library.h"
// #include "cm_library.h"
import "C"

import (
	"cmp"
	"fmt"
	"syscall"
	"unsafe"
)

// QPOptions are the parameters of a new QP.
type QPOptions struct {
	Transport      Transport
	SendCQ, RecvCQ *CQ
	Sends, Recvs   int  // requests in the queues
	SRQ            *SRQ // shared receive queue instead of an own one; nil: none
	SendSGEs       int  // per request; 0 is 1
	RecvSGEs       int
	Inline         int // bytes that a request can carry inline
	SignalAll      bool
}

// A QP is a queue pair. Only one goroutine at a time may call its methods.
type QP struct {
	pd     *PD
	q      *C.struct_vb_qp
	port   int
	t      Transport
	id     *CMID // of an rdma_cm connection, else nil
	Number uint32
	Inline int // bytes, as granted by the device: may be more than requested
}

// attr converts the options for the library. The CQs are in the library's memory, so the result has
// no pointers to Go memory.
func (o *QPOptions) attr() C.struct_vb_qp_init_attr {
	var a C.struct_vb_qp_init_attr
	a.send_cq, a.recv_cq = o.SendCQ.c, o.RecvCQ.c
	a.cap = C.struct_vb_qp_cap{
		max_send_wr: C.uint32_t(o.Sends), max_recv_wr: C.uint32_t(o.Recvs),
		max_send_sge: C.uint32_t(max(o.SendSGEs, 1)), max_recv_sge: C.uint32_t(max(o.RecvSGEs, 1)),
		max_inline_data: C.uint32_t(o.Inline),
	}
	if o.SRQ != nil {
		a.srq, a.cap.max_recv_wr, a.cap.max_recv_sge = o.SRQ.s, 0, 0
	}
	a.qp_type = C.int(o.Transport)
	if o.SignalAll {
		a.sq_sig_all = 1
	}
	return a
}

// QP creates a queue pair, in RESET.
func (p *PD) QP(o QPOptions) (*QP, error) {
	a := o.attr()
	q, err := C.verbs_create_qp(p.p, &a)
	if q == nil {
		return nil, p.qpFailed("ibv_create_qp", o, err)
	}
	return p.adopt(q, o, &a), nil
}

func (p *PD) qpFailed(call string, o QPOptions, err error) error {
	e := newError(call, p.ctx.name, err)
	e.What = fmt.Sprintf("%v, %d sends and %d receives deep, %d bytes inline", o.Transport, o.Sends, o.Recvs, o.Inline)
	return e
}

// adopt registers a QP that was created with a.
func (p *PD) adopt(q *C.struct_vb_qp, o QPOptions, a *C.struct_vb_qp_init_attr) *QP {
	qp := &QP{pd: p, q: q, t: o.Transport, Number: uint32(q.qp_num), Inline: int(a.cap.max_inline_data)}
	p.ctx.mu.Lock()
	p.ctx.qps[unsafe.Pointer(q)] = qp.Number
	p.ctx.mu.Unlock()
	return qp
}

// Close frees the QP, even with outstanding requests.
func (q *QP) Close() error {
	q.pd.ctx.mu.Lock()
	delete(q.pd.ctx.qps, unsafe.Pointer(q.q))
	q.pd.ctx.mu.Unlock()
	if q.id != nil {
		C.cm_drop_qp(q.id.c)
		return nil
	}
	return q.pd.ctx.failed("ibv_destroy_qp", C.verbs_destroy_qp(q.q))
}

// Handle is the QP for C code in this module: a struct vb_qp *.
func (q *QP) Handle() unsafe.Pointer { return unsafe.Pointer(q.q) }

// A Path is the path of packets to the peer.
type Path struct {
	Port         int
	GIDIndex     int // our own; -1: no GRH, addressed by LID
	GID          GID // the peer's
	LID          uint16
	SL           int
	TrafficClass int
	FlowLabel    uint32
	HopLimit     int // 0 is 255
}

func (p *Path) attr() C.struct_vb_ah_attr {
	a := C.struct_vb_ah_attr{dlid: C.uint16_t(p.LID), sl: C.uint8_t(p.SL), port_num: C.uint8_t(p.Port)}
	if p.GIDIndex < 0 {
		return a
	}
	a.is_global = 1
	a.grh = C.struct_vb_global_route{
		flow_label: C.uint32_t(p.FlowLabel), sgid_index: C.uint8_t(p.GIDIndex), hop_limit: C.uint8_t(cmp.Or(p.HopLimit, 255)), traffic_class: C.uint8_t(p.TrafficClass),
	}
	*(*GID)(unsafe.Pointer(&a.grh.dgid)) = p.GID
	return a
}

func (p *Path) String() string {
	if p.GIDIndex < 0 {
		return fmt.Sprintf("to LID 0x%04x", p.LID)
	}
	return fmt.Sprintf("from GID index %d to %v", p.GIDIndex, p.GID)
}

// Bits of the mask that selects what ibv_modify_qp sets.
const (
	setState   = 1 << 0
	setAccess  = 1 << 3
	setPKey    = 1 << 4
	setPort    = 1 << 5
	setQKey    = 1 << 6
	setAV      = 1 << 7
	setMTU     = 1 << 8
	setTimeout = 1 << 9
	setRetry   = 1 << 10
	setRNR     = 1 << 11
	setRQPSN   = 1 << 12
	setReads   = 1 << 13
	setMinRNR  = 1 << 15
	setSQPSN   = 1 << 16
	setDestRds = 1 << 17
	setDestQPN = 1 << 20
)

// Init moves the QP to INIT, in which receives can be posted. qkey is for UD.
func (q *QP) Init(port, pkeyIndex int, a Access, qkey uint32) error {
	q.port = port
	attr := C.struct_vb_qp_attr{qp_state: C.int(stateInit), port_num: C.uint8_t(port), pkey_index: C.uint16_t(pkeyIndex)}
	mask := setState | setPKey | setPort
	if q.t == UD {
		attr.qkey = C.uint32_t(qkey)
		mask |= setQKey
	} else {
		attr.qp_access_flags = C.unsigned(a)
		mask |= setAccess
	}
	return q.modify(&attr, mask, stateInit, "")
}

// A Connection contains what a QP needs to know about its peer, and its retry parameters.
type Connection struct {
	Path     Path
	MTU      MTU
	QPN, PSN uint32 // the peer's
	OwnPSN   uint32
	ReadsIn  int // outstanding reads and atomics of the peer
	ReadsOut int // outstanding own ones
	Timeout  int // 4.096 µs << Timeout until a request is retried
	Retries  int // 0 to 7
	RNRRetry int // 7 is unlimited
	MinRNR   int // code of the time that a peer waits if there is no receive for it: 12 is 0.64 ms
}

// ReadyToReceive moves the QP from INIT to RTR.
func (q *QP) ReadyToReceive(c Connection) error {
	attr := C.struct_vb_qp_attr{qp_state: C.int(stateRTR)}
	mask := setState
	if q.t != UD {
		attr.path_mtu, attr.dest_qp_num, attr.rq_psn, attr.ah_attr = C.int(c.MTU), C.uint32_t(c.QPN), C.uint32_t(c.PSN), c.Path.attr()
		mask |= setMTU | setDestQPN | setRQPSN | setAV
	}
	if q.t == RC {
		attr.max_dest_rd_atomic, attr.min_rnr_timer = C.uint8_t(c.ReadsIn), C.uint8_t(c.MinRNR)
		mask |= setDestRds | setMinRNR
	}
	return q.modify(&attr, mask, stateRTR, fmt.Sprintf("%v, QP 0x%06x, MTU %d", &c.Path, c.QPN, c.MTU.Bytes()))
}

// ReadyToSend moves the QP from RTR to RTS.
func (q *QP) ReadyToSend(c Connection) error {
	attr := C.struct_vb_qp_attr{qp_state: C.int(stateRTS), sq_psn: C.uint32_t(c.OwnPSN)}
	mask := setState | setSQPSN
	if q.t == RC {
		attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic = C.uint8_t(c.Timeout), C.uint8_t(c.Retries), C.uint8_t(c.RNRRetry), C.uint8_t(c.ReadsOut)
		mask |= setTimeout | setRetry | setRNR | setReads
	}
	return q.modify(&attr, mask, stateRTS, "")
}

// SetMinRNR sets MinRNR (see Connection) of a connected QP.
func (q *QP) SetMinRNR(code int) error {
	return q.modify(&C.struct_vb_qp_attr{min_rnr_timer: C.uint8_t(code)}, setMinRNR, stateRTS, "")
}

// Fail moves the QP to ERR: outstanding requests complete as flushed.
func (q *QP) Fail() error {
	return q.modify(&C.struct_vb_qp_attr{qp_state: C.int(stateErr)}, setState, stateErr, "")
}

func (q *QP) modify(a *C.struct_vb_qp_attr, mask int, to qpState, what string) error {
	before := qpState(q.q.state)
	err := q.pd.ctx.failed(fmt.Sprintf("ibv_modify_qp(%v)", to), C.verbs_modify_qp(q.q, a, C.int(mask)))
	if err == nil {
		return nil
	}
	e := err.(*Error)
	e.Port, e.QPN, e.State, e.What = q.port, q.Number, before.String(), what
	return e
}

// State queries the device for the QP's state, which may have changed by itself.
func (q *QP) State() (qpState, error) {
	var a C.struct_vb_qp_attr
	var i C.struct_vb_qp_init_attr
	err := q.pd.ctx.failed("ibv_query_qp", C.verbs_query_qp(q.q, &a, setState, &i))
	return qpState(a.qp_state), err
}

// An AH is the destination address of datagrams.
type AH struct {
	ctx *Context
	a   *C.struct_vb_ah
}

// AH creates an address handle.
func (p *PD) AH(path Path) (*AH, error) {
	attr := path.attr()
	a, err := C.verbs_create_ah(p.p, &attr)
	if a == nil {
		e := newError("ibv_create_ah", p.ctx.name, err)
		e.Port, e.What = path.Port, path.String()
		return nil, e
	}
	return &AH{p.ctx, a}, nil
}

// Close frees the handle. Requests that use it must have completed.
func (a *AH) Close() error { return a.ctx.failed("ibv_destroy_ah", C.verbs_destroy_ah(a.a)) }

// PostSend posts the list of requests that begins with s.
func (q *QP) PostSend(s *sendWR) error {
	var bad *C.struct_vb_send_wr
	if rc := C.verbs_post_send(q.q, (*C.struct_vb_send_wr)(unsafe.Pointer(s)), &bad); rc != 0 {
		return q.postFailed("ibv_post_send", rc)
	}
	return nil
}

// PostRecv posts the list of requests that begins with r.
func (q *QP) PostRecv(r *recvWR) error {
	var bad *C.struct_vb_recv_wr
	if rc := C.verbs_post_recv(q.q, (*C.struct_vb_recv_wr)(unsafe.Pointer(r)), &bad); rc != 0 {
		return q.postFailed("ibv_post_recv", rc)
	}
	return nil
}

func (q *QP) postFailed(call string, rc C.int) error {
	e := q.pd.ctx.failed(call, rc).(*Error)
	e.Port, e.QPN, e.State = q.port, q.Number, qpState(q.q.state).String()
	return e
}

// PostFailed is the error of a failed post by C code in this module.
func (q *QP) PostFailed(call string, errno syscall.Errno) error {
	return q.postFailed(call, C.int(errno))
}
