package socket

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// takeFd duplicates a connection's descriptor, non-blocking and outside of the runtime's
// poller. The caller must close the net.Conn.
func takeFd(c net.Conn) (int, error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, ferr := -1, error(nil)
	if err := raw.Control(func(p uintptr) {
		fd, ferr = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return -1, err
	}
	return fd, os.NewSyscallError("fcntl", ferr)
}

// tcpRTOMaxMS bounds the pause between retransmissions and between probes of
// a closed window (linux/tcp.h, since Linux 6.15).
const tcpRTOMaxMS = 44

// tune sets a stream's options. TCP_USER_TIMEOUT is not one of them: it also ends a
// connection with a live receiver that has kept its window closed for that time (Linux
// 5.11 and later), and a rank that is late is not lost. watch.go implements the rule
// instead.
func (e *Endpoint) tune(fd int) error {
	seconds := func(d time.Duration) int { return int(max(d/time.Second, 1)) }
	for _, o := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(e.opt.Timeout / 2)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(e.opt.Timeout / 6)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("socket option %d: %w", o.name, err)
		}
	}
	// Older kernels pause for up to two minutes, and detect a half-open connection with a
	// closed window that much later.
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, tcpRTOMaxMS, int(min(max(e.opt.Timeout/4, time.Second), 2*time.Minute).Milliseconds()))
	return nil
}

// errAgain is unix.EAGAIN as an error, created once, so that the message path does not
// allocate.
var errAgain error = unix.EAGAIN

// send writes a and then b as far as the buffer has space; it returns 0 and errAgain if
// there is none. It does not raise SIGPIPE.
func send(fd int, a, b []byte) (int, error) {
	return transfer(unix.SYS_SENDTO, unix.SYS_SENDMSG, fd, a, b)
}

// receive reads the available data into a and then into b. It returns 0 and errAgain if
// there is none, 0 and nil at the end of the stream.
func receive(fd int, a, b []byte) (int, error) {
	return transfer(unix.SYS_RECVFROM, unix.SYS_RECVMSG, fd, a, b)
}

// rawSize is the largest transfer that bypasses the scheduler: such a call takes
// microseconds, and a small message must not lose its processor at the end of the call. A
// longer one may.
const rawSize = 64 << 10

// transfer makes the plain call if there is one buffer, and the vector call if there are
// two. The plain call was measured to be a tenth faster for small messages.
func transfer(plain, vector uintptr, fd int, a, b []byte) (int, error) {
	if len(a) == 0 {
		a, b = b, nil
	}
	var iov [2]unix.Iovec
	var msg unix.Msghdr
	call := plain
	n, flags := uintptr(len(a)), uintptr(unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	data := unsafe.Pointer(unsafe.SliceData(a))
	if len(b) > 0 {
		for i, p := range [2][]byte{a, b} {
			iov[i].Base = unsafe.SliceData(p)
			iov[i].SetLen(len(p))
		}
		msg.Iov = &iov[0]
		msg.SetIovlen(2)
		call, data = vector, unsafe.Pointer(&msg)
		n, flags = flags, 0
	}
	for {
		var r uintptr
		var errno syscall.Errno
		if len(a)+len(b) <= rawSize {
			r, _, errno = unix.RawSyscall6(call, uintptr(fd), uintptr(data), n, flags, 0, 0)
		} else {
			r, _, errno = unix.Syscall6(call, uintptr(fd), uintptr(data), n, flags, 0, 0)
		}
		switch errno {
		case 0:
			return int(r), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, errAgain
		default:
			return 0, errno
		}
	}
}
