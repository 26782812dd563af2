package verbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// An Error is a failed call of libibverbs.
type Error struct {
	Call   string // ibv_modify_qp(RTR), …
	Errno  syscall.Errno
	Device string
	Port   int    // 0 if the call is not about a port
	QPN    uint32 // 0 if the call is not about a QP
	State  string // of the QP, if the call is about one
	What   string // more about the arguments; may be empty
	Cause  string // the usual cause and its remedy; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s", e.Call, e.Device)
	if e.Port != 0 {
		fmt.Fprintf(&b, " port %d", e.Port)
	}
	if e.QPN != 0 {
		fmt.Fprintf(&b, ", QP 0x%06x in %s", e.QPN, e.State)
	}
	if e.What != "" {
		fmt.Fprintf(&b, ", %s", e.What)
	}
	fmt.Fprintf(&b, ": %s (errno %d)", e.Errno.Error(), int(e.Errno))
	if e.Cause != "" {
		fmt.Fprintf(&b, ": %s", e.Cause)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Errno }

// newError makes the error of a call, with its usual cause.
func newError(call, device string, err error) *Error {
	e := &Error{Call: call, Device: device, Errno: syscall.EIO}
	errors.As(err, &e.Errno)
	if e.Errno == 0 { // some providers forget to set it
		e.Errno = syscall.EIO
	}
	e.Cause = cause(call, e.Errno)
	return e
}

// causes are the usual causes, as found in operation. The first match applies: call is a prefix of
// the failed call's name, and errno is equal or 0.
var causes = []struct {
	call  string
	errno syscall.Errno
	text  string
}{
	{"ibv_open_device", syscall.EACCES, "this user may not open /dev/infiniband/uverbs*: run as root, or join the group that may"},
	{"ibv_open_device", syscall.EPERM, "this user may not open /dev/infiniband/uverbs*: a container needs --device=/dev/infiniband"},
	{"ibv_open_device", 0, "/dev/infiniband has no node for it: a container needs --device=/dev/infiniband"},
	{"ibv_reg_dmabuf_mr", syscall.EOPNOTSUPP, "the device or its driver cannot register DMA buffers: it needs Linux 5.12 and MLNX_OFED 5.5 or later"},
	{"ibv_reg_dmabuf_mr", syscall.EPROTONOSUPPORT, "the kernel cannot register DMA buffers: it needs Linux 5.12 or later"},
	{"ibv_reg_dmabuf_mr", syscall.ENOSYS, "libibverbs is older than 34.0 and has no DMA buffers"},
	{"ibv_reg_mr", syscall.ENOMEM, "the limit of locked memory is too low (ulimit -l; in a container --ulimit memlock=-1)"},
	{"ibv_reg_mr", syscall.EFAULT, "the memory cannot be pinned: for a GPU's memory the module nvidia-peermem must be loaded, or DMA buffers be used"},
	{"ibv_reg_mr", syscall.EINVAL, "the access flags do not go together (remote write and atomic need local write), or the length is 0"},
	{"ibv_create_cq", syscall.EINVAL, "more entries than the device's max_cqe, or no such completion vector"},
	{"ibv_create_cq", syscall.ENOMEM, "the limit of locked memory is too low (ulimit -l), or the device has no CQ left"},
	{"ibv_create_qp", syscall.EINVAL, "more requests, scatter entries or inline data than the device can have"},
	{"ibv_create_qp", syscall.ENOMEM, "the limit of locked memory is too low (ulimit -l), or more inline data or requests than the device can have"},
	{"ibv_create_qp", syscall.EOPNOTSUPP, "the device has no such transport"},
	{"ibv_create_srq", syscall.EINVAL, "more receives than the device's shared queues can have"},
	{"ibv_create_srq", syscall.EOPNOTSUPP, "the device has no shared receive queues"},
	{"ibv_modify_qp(INIT)", 0, "no such port or P_Key index, or an access flag that the device lacks"},
	{"ibv_modify_qp(RTR)", syscall.ETIMEDOUT, "nothing answers for the peer's GID (ARP or neighbour discovery): is it in the same network?"},
	{"ibv_modify_qp(RTR)", syscall.EHOSTUNREACH, "there is no route to the peer's GID from this GID's interface"},
	{"ibv_modify_qp(RTR)", syscall.ENETUNREACH, "there is no route to the peer's GID from this GID's interface"},
	{"ibv_modify_qp(RTR)", syscall.EINVAL, "the GID index (-x) is of no address, or of another family than the peer's; or the MTU (-m) is more than the port's; or the port is down"},
	{"ibv_modify_qp(RTR)", syscall.ENODATA, "there is no address at the GID index (-x)"},
	{"ibv_modify_qp(RTR)", 0, "the path to the peer cannot be set up: GID index (-x), MTU (-m) or LID"},
	{"ibv_modify_qp(RTS)", 0, "the timeout, retry count or number of outstanding reads is more than the device can have"},
	{"ibv_create_ah", syscall.ETIMEDOUT, "nothing answers for the peer's GID (ARP or neighbour discovery)"},
	{"ibv_create_ah", 0, "there is no route to the peer's GID, or the GID index (-x) is of another family"},
	{"rdma_resolve", syscall.ENODEV, "the way to this address goes over no RDMA device: give the address of the peer's RDMA interface"},
	{"rdma_resolve", syscall.EADDRNOTAVAIL, "no RDMA interface of this machine has the address to connect from (--bind_source_ip)"},
	{"rdma_bind_addr", syscall.EADDRNOTAVAIL, "another server runs there: end it, or give both sides another port (-p)"},
	{"rdma_bind_addr", 0, "no RDMA interface of this machine has this address (--bind_source_ip)"},
	{"rdma_listen", syscall.EADDRINUSE, "another server runs there: end it, or give both sides another port (-p)"},
	{"rdma_set_option", 0, "the kernel's rdma_cm is too old for this option"},
	{"ibv_post_send", syscall.ENOMEM, "the send queue is full, or a request has more scatter entries or inline data than the QP"},
	{"ibv_post_send", syscall.EINVAL, "the QP is not in RTS, or the request is not one of its transport"},
	{"ibv_post_recv", syscall.ENOMEM, "the receive queue is full"},
}

func cause(call string, errno syscall.Errno) string {
	for _, c := range causes {
		if strings.HasPrefix(call, c.call) && (c.errno == 0 || c.errno == errno) {
			return c.text
		}
	}
	return ""
}

// A status is the status of a completed work request, as libibverbs numbers it.
type status int32

// The statuses with a known cause, and success.
const (
	success          status = 0
	localLength      status = 1
	localOperation   status = 2
	localProtection  status = 4
	flushed          status = 5
	badResponse      status = 7
	localAccess      status = 8
	remoteInvalid    status = 9
	remoteAccess     status = 10
	remoteOperation  status = 11
	retryExceeded    status = 12
	rnrRetryExceeded status = 13
	aborted          status = 16
	fatalError       status = 19
)

func (s status) String() string {
	return name(int(s), "success", "local length error", "local QP operation error", "local EE context operation error", "local protection error",
		"flushed: an earlier request of the QP failed", "memory window bind error", "bad response error", "local access error", "remote invalid request error",
		"remote access error", "remote operation error", "transport retry count exceeded", "RNR retry count exceeded", "local RDD violation error",
		"remote invalid RD request", "aborted", "invalid EE context number", "invalid EE context state", "fatal error", "response timeout", "general error",
		"tag matching error", "tag matching rendezvous incomplete")
}

// cause is the usual cause, or "".
func (s status) cause() string {
	switch s {
	case localLength:
		return "a message is longer than what was posted to receive it, or than the device can send"
	case localOperation:
		return "the QP cannot do what was asked of it"
	case localProtection, localAccess:
		return "the local memory is not registered, or not for this"
	case remoteInvalid:
		return "the peer's QP does not take such requests: is the same test run on both sides?"
	case remoteAccess:
		return "the peer's memory is not registered there, not for this, or too small: do both sides run the same test with the same size?"
	case remoteOperation:
		return "the peer could not take the message: do both sides use the same size?"
	case retryExceeded:
		return "nothing returned from the peer: it has ended, the link is down, packets are lost, or GID, VLAN or MTU do not match"
	case rnrRetryExceeded:
		return "the peer has posted no receive for too long"
	}
	return ""
}

// A CompletionError is a failed work request.
type CompletionError struct {
	Status      status
	VendorError uint32
	QPN         uint32
	ID          uint64
	Device      string
	Port        int
}

func (e *CompletionError) Error() string {
	s := fmt.Sprintf("a request of QP 0x%06x on %s port %d failed: %s (status %d, vendor error 0x%x)", e.QPN, e.Device, e.Port, e.Status, int(e.Status), e.VendorError)
	if c := e.Status.cause(); c != "" {
		s += ": " + c
	}
	return s
}
