package socket

import (
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

// conn is the part that both ends of a connection share. mu is held within each call,
// which never blocks: it separates the watcher and Close, which other goroutines call,
// from the one goroutine that uses the connection.
type conn struct {
	e    *Endpoint
	peer int

	mu     sync.Mutex
	closed bool // by this side
	gone   bool // the peer said goodbye
	broken bool // reported, or about to be
	lost   *transport.PeerError
}

// dead reports whether the connection is closed or broken, so that nothing more is tried.
func (c *conn) dead() bool { return c.closed || c.broken }

// fail breaks the connection; unlock reports it.
func (c *conn) fail(what string, silent time.Duration) {
	if c.dead() {
		return
	}
	c.broken = true
	c.lost = &transport.PeerError{Rank: c.peer, By: c.e.opt.Rank, What: what, Wait: silent}
}

// failed breaks the connection because of an error from the kernel.
func (c *conn) failed(err error) {
	switch {
	case c.gone:
		c.fail("it has closed its connections in good order, with more to do", 0)
	case errors.Is(err, io.EOF):
		c.fail("it closed the connection without a goodbye", 0)
	case errors.Is(err, unix.ETIMEDOUT):
		c.fail("its host does not answer", c.e.opt.Timeout)
	default:
		c.fail(err.Error(), 0)
	}
}

// unlock ends a call. It sets the fault after it releases the lock, because the fault's hook may
// use the connection, and late, because the peer may have ended through another rank's fault.
func (c *conn) unlock() {
	lost := c.lost
	c.lost = nil
	c.mu.Unlock()
	if lost != nil {
		c.e.opt.Fault.SetLate(lost)
	}
}

// bye sends a goodbye over a stream: the sender after its last message, the receiver in
// the reverse direction, which carries nothing else.
func bye(fd int) {
	var b [headerSize]byte
	(&header{kind: kindBye}).put(b[:])
	send(fd, b[:], nil) // if the buffer is full, the peer sees a loss, which is correct
}
