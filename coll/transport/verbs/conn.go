//go:build cgo && linux

package verbs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
	rdma "github.com/assay-hpc/assay/perftest/verbs"
)

// conn is what both ends of a connection have. mu is held within each call,
// none of which blocks: it keeps the watcher, the inspector and Close apart
// from the one goroutine that uses the connection.
type conn struct {
	e             *Endpoint
	peer, channel int
	maxMessage    int
	remote        string // the peer's device and port, for errors

	mu      sync.Mutex
	ready   bool // the connection is made: what is below is there
	stopped bool // nothing is posted any more
	closed  bool // by this side
	gone    bool // the peer said goodbye
	ended   bool // the TCP connection did
	broken  bool // something failed: nothing more is tried
	missed  bool // more was wanted after the goodbye
	lost    error

	wire   net.Conn      // the TCP connection
	heard  chan struct{} // closed when the peer said goodbye, or the TCP connection has ended
	once   sync.Once     // for heard
	parted sync.Once     // for part

	port   *port
	cq     *rdma.CQ
	qps    []*rdma.QP
	psns   []uint32
	mem    []byte // the slots; it stays with those who look at a message when all else is closed
	mr     *rdma.MR
	stride int
	pin    runtime.Pinner
	wc     [2 * slots]rdma.WC
}

func newConn(e *Endpoint, peer, channel, maxMessage int) conn {
	return conn{e: e, peer: peer, channel: channel, maxMessage: maxMessage, heard: make(chan struct{})}
}

// Slots are aligned so, and their memory to pages: it is what devices work in.
const (
	slotAlign = 64
	pageSize  = 4096
)

// pages is memory of n bytes that begins at a page. It does not move while it
// is pinned.
func pages(n int) []byte {
	b := make([]byte, n+pageSize)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (pageSize - 1)
	return b[skip : int(skip)+n : int(skip)+n]
}

// register makes memory known to the device.
func (c *conn) register(mem []byte, access rdma.Access) (*rdma.MR, error) {
	c.pin.Pin(&mem[0])
	return c.port.pd.Register(rdma.Address(mem), len(mem), access)
}

// makeSlots makes the memory that messages go from or to.
func (c *conn) makeSlots(access rdma.Access) (err error) {
	c.stride = (headerSize + c.maxMessage + slotAlign - 1) &^ (slotAlign - 1)
	c.mem = pages(slots * c.stride)
	c.mr, err = c.register(c.mem, access)
	return err
}

// slot is the memory of message i, header and message.
func (c *conn) slot(i uint32) []byte {
	return c.mem[int(i%slots)*c.stride:][: headerSize+c.maxMessage : headerSize+c.maxMessage]
}

// usable reports whether anything can be done with the connection.
func (c *conn) usable() bool { return c.ready && !c.closed && !c.broken && !c.missed }

// fail breaks the connection; unlock reports it.
func (c *conn) fail(what string) {
	if c.closed || c.broken {
		return
	}
	c.broken = true
	c.report(what)
}

func (c *conn) report(what string) {
	if !c.missed {
		c.lost = &transport.PeerError{Rank: c.peer, By: c.e.opt.Rank, What: what}
	}
}

// miss is about a peer that has left and from which more is wanted.
func (c *conn) miss() {
	c.report("it has closed its connections in good order, with more to do")
	c.missed = true
}

// failDevice is about a call or a request that failed. After a goodbye it is
// what must be expected.
func (c *conn) failDevice(err error) {
	if c.gone || c.stopped {
		c.broken = true
		return
	}
	c.fail(fmt.Sprintf("IB: from %v to %s: %v%s", c.port, c.remote, err, c.port.trouble()))
}

// poll hands completions to take, and breaks the connection on one that
// failed. It reports whether there may be more.
func (c *conn) poll(take func(*rdma.WC)) bool {
	n, err := c.cq.Poll(c.wc[:])
	if err != nil {
		c.failDevice(err)
		return false
	}
	for i := range c.wc[:n] {
		if c.wc[i].Status != rdma.Success {
			c.failDevice(c.cq.Failed(&c.wc[i], c.port.Number))
			return false
		}
		take(&c.wc[i])
	}
	return n == len(c.wc)
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

// watch listens to the TCP connection until it ends. part is the end's goodbye.
func (c *conn) watch(hear func(n uint32), part func()) {
	for {
		word, n, err := readPair(c.wire)
		if err != nil {
			c.hangUp(err)
			return
		}
		c.mu.Lock()
		if word == wordBye {
			c.gone = true
			hear(n)
		} else {
			c.fail(fmt.Sprintf("it sent the word %#x", word))
		}
		c.unlock()
		part()
		c.once.Do(func() { close(c.heard) })
	}
}

// hangUp notes the end of the TCP connection.
func (c *conn) hangUp(err error) {
	c.mu.Lock()
	c.ended = true
	switch {
	case c.gone, c.e.ctx.Err() != nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		c.fail("it closed the connection without a goodbye")
	case errors.Is(err, unix.ETIMEDOUT):
		c.fail("its host does not answer")
	default:
		c.fail(err.Error())
	}
	c.unlock()
	c.once.Do(func() { close(c.heard) })
}

// Pauses of a goodbye, and how long one waits for requests to end: if all is
// well, they take microseconds.
const (
	partPause    = 20 * time.Microsecond
	partPatience = 2 * time.Second
)

// goodbye posts nothing any more, waits until pending is false, and tells the
// peer so with the number that count returns. Both are called with the lock.
func (c *conn) goodbye(pending func() bool, count func() uint32) {
	c.parted.Do(func() {
		end := time.Now().Add(partPatience)
		for {
			c.mu.Lock()
			c.stopped = true
			done := !c.ready || c.broken || c.ended || !pending() || time.Now().After(end)
			if done && c.wire != nil {
				c.say(count())
			}
			c.unlock()
			if done {
				return
			}
			time.Sleep(partPause)
		}
	})
}

// say sends the word of the goodbye, or hangs up where something has failed: the
// peer is not to wait. If the word cannot be sent, the peer sees a loss, and
// there is one.
func (c *conn) say(n uint32) {
	switch {
	case c.broken:
		c.wire.Close()
	case !c.ended:
		c.wire.Write(pairOf(wordBye, n))
	}
}

// shut is the end of use by this side.
func (c *conn) shut() {
	c.mu.Lock()
	c.closed = true
	c.unlock()
}

// free takes the connection down. more is what the end has beside the slots.
func (c *conn) free(more func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.stopped, c.ready = true, true, false
	var errs []error
	for _, q := range c.qps {
		errs = append(errs, q.Close())
	}
	c.qps = nil
	errs = append(errs, more())
	if c.mr != nil {
		errs = append(errs, c.mr.Close())
		c.mr = nil
	}
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
		c.cq = nil
	}
	c.pin.Unpin()
	if err := errors.Join(errs...); err != nil {
		c.e.opt.Logf("IB: closing a connection with rank %d: %v", c.peer, err)
	}
	if c.wire != nil {
		c.wire.Close()
	}
}
