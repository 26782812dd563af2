package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Watch notices that the peer closes or resets the connection while nothing is exchanged, as during
// a measurement: the returned context is then cancelled, with an *Error as its cause. Watch reads
// nothing from the stream, so a message that arrives early is still available for the next
// exchange. stop ends watching and returns that error, or nil. It must be called before the next
// exchange, and may be called again.
func (c *Conn) Watch(ctx context.Context) (watched context.Context, stop func() error) {
	watched, cancel := context.WithCancelCause(ctx)
	if g, ok := c.nc.(interface{ Gone() <-chan struct{} }); ok {
		return c.watchGone(watched, cancel, g.Gone())
	}
	raw, ok := c.nc.(syscall.Conn)
	if !ok { // a pipe in tests
		return watched, func() error { cancel(nil); return nil }
	}
	ended := make(chan error, 1)
	go func() {
		err := c.watch(raw)
		cancel(err)
		ended <- err
	}()
	var result error
	stopped := false
	return watched, func() error {
		if !stopped {
			stopped = true
			_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // wakes the watcher
			result = <-ended
			_ = c.nc.SetReadDeadline(time.Time{})
			cancel(nil)
		}
		return result
	}
}

// watchGone is Watch for a connection that reports when the peer has disconnected.
func (c *Conn) watchGone(watched context.Context, cancel context.CancelCauseFunc, gone <-chan struct{}) (context.Context, func() error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-gone:
			cancel(c.gone(nil))
		case <-watched.Done():
		}
	}()
	return watched, func() error {
		cancel(nil)
		<-ended
		if err := context.Cause(watched); errors.Is(err, ErrClosed) {
			return err
		}
		return nil
	}
}

// watch blocks until the peer has disconnected, and returns that error, or until a deadline passes.
func (c *Conn) watch(nc syscall.Conn) error {
	raw, err := nc.SyscallConn()
	if err != nil {
		return c.gone(err)
	}
	var gone error
	err = raw.Read(func(fd uintptr) (done bool) {
		gone = hungUp(int(fd))
		return gone != nil
	})
	if gone == nil {
		if t, ok := err.(net.Error); ok && t.Timeout() {
			return nil
		}
		gone = err
	}
	return c.gone(gone)
}

func (c *Conn) gone(err error) error {
	return &Error{Peer: c.Peer(), Exchange: "while nothing was due", Kind: ErrClosed, Err: err, Hint: "the reason is in the other side's message"}
}

// hungUp queries the kernel about a socket without waiting. Data may be pending before the end of
// the stream, so a read would not detect it.
func hungUp(fd int) error {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	if _, err := unix.Poll(p, 0); err != nil && err != unix.EINTR && err != unix.EAGAIN {
		return err
	}
	switch {
	case p[0].Revents&unix.POLLERR != 0:
		if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && n != 0 {
			return syscall.Errno(n)
		}
		return fmt.Errorf("the connection is broken")
	case p[0].Revents&unix.POLLHUP != 0:
		return fmt.Errorf("both directions are closed")
	case p[0].Revents&unix.POLLRDHUP != 0:
		return fmt.Errorf("it sends no more")
	}
	return nil
}
