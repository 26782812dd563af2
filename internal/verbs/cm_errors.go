package verbs

import (
	"fmt"
	"net/netip"
	"syscall"
)

// A cmEventType is librdmacm's number of a connection event.
type cmEventType int

// The events that are handled.
const (
	cmAddrResolved   cmEventType = 0
	cmAddrError      cmEventType = 1
	cmRouteResolved  cmEventType = 2
	cmRouteError     cmEventType = 3
	cmConnectRequest cmEventType = 4
	cmConnectError   cmEventType = 6
	cmUnreachable    cmEventType = 7
	cmRejected       cmEventType = 8
	cmEstablished    cmEventType = 9
	cmDisconnected   cmEventType = 10
	cmDeviceRemoval  cmEventType = 11
	cmTimewaitExit   cmEventType = 15
)

func (t cmEventType) String() string {
	return name(int(t), "address resolved", "address error", "route resolved", "route error", "connect request", "connect response", "connect error",
		"unreachable", "rejected", "established", "disconnected", "device removal", "multicast join", "multicast error", "address change", "timewait exit")
}

// A CMError is a failed rdma_cm connection.
type CMError struct {
	Event  cmEventType
	Status int // -errno, or the number of a reject reason
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

// Unwrap returns the errno, if the status is one.
func (e *CMError) Unwrap() error {
	if e.Status < 0 {
		return syscall.Errno(-e.Status)
	}
	return nil
}

// Reject reasons of connections and of datagrams.
const (
	rejectNoService    = 8
	rejectStale        = 10
	rejectConsumer     = 28
	datagramNoService  = 1
	datagramRejected   = 2
	datagramNoQueue    = 3
	connectionRefusedW = -int(syscall.ECONNREFUSED) // of iWARP
)

// Refused reports whether the peer's host answered that there is no listener.
func (e *CMError) Refused() bool {
	switch e.Event {
	case cmRejected:
		return e.Status == rejectNoService || e.Status == connectionRefusedW
	case cmUnreachable:
		return e.Status == datagramNoService
	}
	return false
}

// Cause is the usual cause and its remedy, or "".
func (e *CMError) Cause() string {
	switch {
	case e.Refused():
		return "nothing listens there by rdma_cm: start the server first, with -R or -z as on this side, and the same -p"
	case e.Event == cmAddrError && e.Status == -int(syscall.ENODEV):
		return "the way to this address goes over no RDMA device: give the address of the peer's RDMA interface"
	case e.Event == cmAddrError:
		return "nothing answers for this address (ARP or neighbour discovery), or it is of no RDMA interface's network: give the address of the peer's RDMA interface"
	case e.Event == cmRouteError:
		return "there is no path to this address: on InfiniBand, is the subnet manager running?"
	case e.Event == cmUnreachable && e.Status == datagramRejected, e.Event == cmRejected && e.Status == rejectConsumer:
		return "the peer's program does not take the connection: it has its client already, or is another program"
	case e.Event == cmRejected && e.Status == rejectStale:
		return "the peer still has an old connection of this QP: try again"
	case e.Event == cmUnreachable && e.Status == datagramNoQueue:
		return "the peer has no QP for datagrams: is the same -c given on both sides?"
	case e.Event == cmUnreachable:
		return "the peer's host does not answer by rdma_cm: is this the address of its RDMA interface, and does it have the module rdma_cm?"
	case e.Event == cmConnectError:
		return "the QP could not be connected: does the device support this many reads in flight (-o)?"
	case e.Event == cmDisconnected:
		return "the peer ended the connection"
	case e.Event == cmDeviceRemoval:
		return "the device is gone"
	}
	return ""
}
