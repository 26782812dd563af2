package slots

import (
	"context"
	"encoding/binary"
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
	"github.com/assay-hpc/assay/coll/transport/rendezvous"
	"github.com/assay-hpc/assay/internal/meet"
)

// A Conn is what both ends of a connection have. Its lock is held within each
// call, none of which blocks: it keeps the worker, the watcher and Close apart
// from the one goroutine that uses the connection.
type Conn struct {
	Peer, Channel int
	Device        int // of this side, by number

	e          *Endpoint
	end        End
	point      rendezvous.Addrs // the peer's, for a sender
	maxMessage int
	answered   bool

	// What follows is looked at with the lock.
	mu      sync.Mutex
	Ready   bool   // the connection is made
	Stopped bool   // nothing is begun any more: Bye was said
	Closed  bool   // by this side
	Gone    bool   // the peer said goodbye
	Ended   bool   // the TCP connection did
	Broken  bool   // something failed: nothing more is tried
	Count   uint32 // messages that were sent, or released
	Told    uint32 // the number in the peer's goodbye

	missed bool // more was wanted after the goodbye: it can be settled still, but not used
	lost   error
	wire   net.Conn // the TCP connection; nil before it is dialed

	mem    []byte // the slots; it stays with those who look at a message when all else is closed
	stride int
	pin    runtime.Pinner
}

// Lock begins a look at the connection.
func (c *Conn) Lock() { c.mu.Lock() }

// Unlock ends it. A loss is reported outside of the lock: the hook of the Fault
// may use the connection.
func (c *Conn) Unlock() {
	lost := c.lost
	c.lost = nil
	c.mu.Unlock()
	if lost != nil {
		c.e.opt.Fault.Set(lost)
	}
}

// Slots are aligned so, and their memory to pages: it is what devices work in.
const (
	slotAlign = 64
	pageSize  = 4096
)

// Pages is memory of n bytes that begins at a page. It does not move until the
// connection is closed.
func (c *Conn) Pages(n int) []byte {
	b := make([]byte, n+pageSize)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (pageSize - 1)
	c.pin.Pin(&b[0])
	return b[skip : int(skip)+n : int(skip)+n]
}

// MakeSlots makes the slots' memory, which is to be registered, each of size
// bytes, so many bytes from the next one.
func (c *Conn) MakeSlots() (mem []byte, size, stride int) {
	size = HeaderSize + c.maxMessage
	c.stride = (size + slotAlign - 1) &^ (slotAlign - 1)
	c.mem = c.Pages(N * c.stride)
	return c.mem, size, c.stride
}

// slot is the memory of message i, header and message.
func (c *Conn) slot(i uint32) []byte {
	return c.mem[int(i%N)*c.stride:][: HeaderSize+c.maxMessage : HeaderSize+c.maxMessage]
}

// Filler makes what is in the slot of message i one that is not looked at, and
// returns its length.
func (c *Conn) Filler(i uint32) int {
	putHeader(c.slot(i), filler, i, 0, transport.Header{})
	return HeaderSize
}

// Usable reports whether anything can be done with the connection.
func (c *Conn) Usable() bool { return c.Ready && !c.Closed && !c.Broken && !c.missed }

// Fail breaks the connection; Unlock reports it.
func (c *Conn) Fail(what string) {
	if c.Closed || c.Broken {
		return
	}
	c.Broken = true
	c.report(what)
}

func (c *Conn) report(what string) {
	if !c.missed {
		c.lost = &transport.PeerError{Rank: c.Peer, By: c.e.opt.Rank, What: what}
	}
}

// miss is about a peer that has left and from which more is wanted.
func (c *Conn) miss() {
	c.report("it has closed its connections in good order, with more to do")
	c.missed = true
}

// Ask dials the peer, says what the network adds, and returns what the peer's
// answers.
func (c *Conn) Ask(ctx context.Context, text []byte) ([]byte, error) {
	wire, err := c.e.Dial(ctx, c.point, rendezvous.Stream{Peer: c.Peer, Channel: c.Channel, Count: 1})
	if err != nil {
		return nil, err
	}
	if err := c.e.keep(wire); err != nil {
		wire.Close()
		return nil, err
	}
	c.Lock()
	c.wire = wire
	c.Unlock()
	stop := context.AfterFunc(ctx, func() { wire.SetDeadline(time.Unix(1, 0)) })
	err = ask{uint32(c.Device), uint32(c.maxMessage), text}.write(wire)
	if err == nil {
		text, err = readAnswer(wire)
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return text, err
}

// keep has the kernel notice a peer that does not answer any more.
func (e *Endpoint) keep(wire net.Conn) error {
	t, ok := wire.(*net.TCPConn)
	if !ok {
		return nil // a pipe, in tests
	}
	every := max(e.opt.Timeout/4, time.Second)
	if err := t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: every, Interval: every, Count: 3}); err != nil {
		return err
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := raw.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(e.opt.Timeout.Milliseconds()))
	}); err != nil {
		return err
	}
	return serr
}

// ErrVanished is about a peer that hung up while a connection was made. It has
// its own error.
var ErrVanished = errors.New("it hung up while it connected")

// Answer tells the sender what the network adds.
func (c *Conn) Answer(text []byte) error { return c.answer(text, nil) }

func (c *Conn) answer(text []byte, failure error) error {
	c.answered = true
	if err := writeAnswer(c.wire, text, failure); err != nil {
		return fmt.Errorf("%w: %w", ErrVanished, err)
	}
	return nil
}

// Vanished reports that the peer is not there any more.
func (c *Conn) Vanished() bool {
	c.Lock()
	defer c.Unlock()
	return c.Ended
}

// Watch begins to listen to the TCP connection, until it ends.
func (c *Conn) Watch() { c.e.wg.Go(c.watch) }

func (c *Conn) watch() {
	for {
		n, err := readBye(c.wire)
		if err != nil {
			c.hangUp(err)
			return
		}
		c.Lock()
		c.Gone, c.Told = true, n
		c.Unlock()
		c.Leave()
	}
}

// hangUp notes the end of the TCP connection.
func (c *Conn) hangUp(err error) {
	c.Lock()
	c.Ended = true
	switch {
	case c.Gone, c.e.ctx.Err() != nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		c.Fail("it closed the connection without a goodbye")
	case errors.Is(err, unix.ETIMEDOUT):
		c.Fail("its host does not answer")
	default:
		c.Fail(err.Error())
	}
	c.Unlock()
}

// Made says, with the lock, that the connection is made.
func (c *Conn) Made() {
	c.Ready = true
	if c.Gone { // already
		c.Leave()
	}
}

// Leave has the worker settle the connection. It takes no lock.
func (c *Conn) Leave() { c.e.worker.add(c.settle) }

func (c *Conn) settle() bool {
	c.Lock()
	defer c.Unlock()
	switch {
	case c.Ready && !c.Broken:
		return c.end.Settle()
	case c.Broken, c.Closed: // a peer may be connecting, or wait
		c.Bye(0)
	}
	return true
}

// Bye tells the peer, once, that nothing is begun here any more, and a number.
// It hangs up where something has failed: the peer is not to wait. If the word
// cannot be sent, the peer sees a loss, and there is one.
func (c *Conn) Bye(n uint32) {
	if c.Stopped {
		return
	}
	c.Stopped = true
	switch {
	case c.wire == nil || c.Ended:
	case c.Broken:
		c.wire.Close()
	default:
		meet.WriteFrame(c.wire, frameBye, binary.BigEndian.AppendUint32(nil, n))
	}
}

// HangUp closes the TCP connection, as the death of the process would.
func (c *Conn) HangUp() {
	c.Lock()
	defer c.Unlock()
	if c.wire != nil {
		c.wire.Close()
	}
}

// free takes the connection down.
func (c *Conn) free() {
	c.Lock()
	c.Closed, c.Stopped, c.Ready = true, true, false
	if err := c.end.Free(); err != nil {
		c.e.Logf("closing a connection with rank %d: %v; its memory is not given back", c.Peer, err)
		kept.Lock()
		kept.pins = append(kept.pins, c.pin)
		kept.Unlock()
		c.pin = runtime.Pinner{}
	}
	c.pin.Unpin()
	c.Unlock()
	c.HangUp()
}

// kept holds memory that a device may still write to, for as long as the
// process runs.
var kept struct {
	sync.Mutex
	pins []runtime.Pinner
}
