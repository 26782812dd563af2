package socket

import (
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

// conn is what both ends of a connection have. mu is held within each call,
// which never blocks: it keeps Close, which others call, and the watcher
// apart from the one goroutine that uses the connection.
type conn struct {
	e    *Endpoint
	peer int

	mu     sync.Mutex
	closed bool // by this side
	gone   bool // the peer said goodbye
	broken bool // reported, or about to be
	lost   *transport.PeerError
}

// dead reports that nothing more is to be tried on the connection.
func (c *conn) dead() bool { return c.closed || c.broken }

// fail breaks the connection; unlock reports it.
func (c *conn) fail(what string, silent time.Duration) {
	if c.dead() {
		return
	}
	c.broken = true
	c.lost = &transport.PeerError{Rank: c.peer, By: c.e.opt.Rank, What: what, Wait: silent}
}

// failed breaks the connection because of what the kernel said.
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

// unlock ends a call. The fault is set outside of the lock: its hook may use
// the connection.
func (c *conn) unlock() {
	lost := c.lost
	c.lost = nil
	c.mu.Unlock()
	if lost != nil {
		c.e.opt.Fault.Set(lost)
	}
}

// bye says goodbye over a stream: from the sender behind its last message,
// from the receiver on the way back, on which there is nothing else.
func bye(fd int) {
	var b [headerSize]byte
	(&header{kind: kindBye}).put(b[:])
	send(fd, b[:], nil) // if there is no room, the peer will see a loss, and there is one
}
