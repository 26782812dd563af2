package verbs

import (
	"fmt"
	"net/netip"
	"syscall"
)

// A CMEventType is librdmacm's number of what happened to a connection.
type CMEventType int

// Those that are acted on.
const (
	CMAddrResolved   CMEventType = 0
	CMAddrError      CMEventType = 1
	CMRouteResolved  CMEventType = 2
	CMRouteError     CMEventType = 3
	CMConnectRequest CMEventType = 4
	CMConnectError   CMEventType = 6
	CMUnreachable    CMEventType = 7
	CMRejected       CMEventType = 8
	CMEstablished    CMEventType = 9
	CMDisconnected   CMEventType = 10
	CMDeviceRemoval  CMEventType = 11
	CMTimewaitExit   CMEventType = 15
)

func (t CMEventType) String() string {
	return name(int(t), "address resolved", "address error", "route resolved", "route error", "connect request", "connect response", "connect error",
		"unreachable", "rejected", "established", "disconnected", "device removal", "multicast join", "multicast error", "address change", "timewait exit")
}

// A CMError is a connection that rdma_cm could not make.
type CMError struct {
	Event  CMEventType
	Status int // -errno, or the number of a reject's reason
	Peer   netip.AddrPort
}

func (e *CMError) Error() string {
	s := fmt.Sprintf("rdma_cm to %v: %v (status %d)", e.Peer, e.Event, e.Status)
	if e.Status < 0 {
		s = fmt.Sprintf("rdma_cm to %v: %v: %v", e.Peer, e.Event, syscall.Errno(-e.Status))
	}
	if c := e.Cause(); c != "" {
		s += ": " + c
	}
	return s
}

// Unwrap gives the errno, if the status is one.
func (e *CMError) Unwrap() error {
	if e.Status < 0 {
		return syscall.Errno(-e.Status)
	}
	return nil
}

// Reasons of a reject, of connections and of datagrams.
const (
	rejectNoService    = 8
	rejectStale        = 10
	rejectConsumer     = 28
	datagramNoService  = 1
	datagramRejected   = 2
	datagramNoQueue    = 3
	connectionRefusedW = -int(syscall.ECONNREFUSED) // iWARP's
)

// Refused reports whether the peer's host answered that nobody listens.
func (e *CMError) Refused() bool {
	switch e.Event {
	case CMRejected:
		return e.Status == rejectNoService || e.Status == connectionRefusedW
	case CMUnreachable:
		return e.Status == datagramNoService
	}
	return false
}

// Cause is the usual cause and its remedy, or "".
func (e *CMError) Cause() string {
	switch {
	case e.Refused():
		return "nobody listens there by rdma_cm: start the server first, with -R or -z as on this side, and the same -p"
	case e.Event == CMAddrError && e.Status == -int(syscall.ENODEV):
		return "the way to this address goes over no RDMA device: give the address of the peer's RDMA interface"
	case e.Event == CMAddrError:
		return "nobody answers for this address (ARP or neighbour discovery), or it is of no RDMA interface's network: give the address of the peer's RDMA interface"
	case e.Event == CMRouteError:
		return "there is no path to this address: on InfiniBand, is the subnet manager running?"
	case e.Event == CMUnreachable && e.Status == datagramRejected, e.Event == CMRejected && e.Status == rejectConsumer:
		return "the peer's program does not take the connection: it has its client already, or is another program"
	case e.Event == CMRejected && e.Status == rejectStale:
		return "the peer still has an old connection of this QP: try again"
	case e.Event == CMUnreachable && e.Status == datagramNoQueue:
		return "the peer has no QP for datagrams: is the same -c given on both sides?"
	case e.Event == CMUnreachable:
		return "the peer's host does not answer by rdma_cm: is this the address of its RDMA interface, and does it have the module rdma_cm?"
	case e.Event == CMConnectError:
		return "the QP could not be connected: does the device have so many reads in flight (-o)?"
	case e.Event == CMDisconnected:
		return "the peer ended the connection"
	case e.Event == CMDeviceRemoval:
		return "the device is gone"
	}
	return ""
}
