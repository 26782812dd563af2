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

// A Conn is the part that both ends of a connection share. Each call holds its lock, and
// none blocks: the lock separates the worker, the watcher and Close from the one
// goroutine that uses the connection.
type Conn struct {
	Peer, Channel int
	Device        int // number of this side's device

	e          *Endpoint
	end        End
	point      rendezvous.Addrs // the peer's, for a sender
	maxMessage int
	answered   bool

	// The lock protects the following fields.
	mu      sync.Mutex
	Ready   bool   // the connection is made
	Stopped bool   // no more requests are started: Bye was called
	Closed  bool   // by this side
	Gone    bool   // the peer said goodbye
	Ended   bool   // the TCP connection has ended
	Broken  bool   // something failed: nothing more is tried
	Count   uint32 // messages sent, or released
	Told    uint32 // the number in the peer's goodbye

	missed bool // more was needed after the peer's goodbye: the connection can still be settled, but not used
	lost   error
	wire   net.Conn // the TCP connection; nil before it is dialed

	mem    []byte // the slots; callers that still read a message keep it alive after everything else is closed
	stride int
	pin    runtime.Pinner
}

// Lock locks the connection.
func (c *Conn) Lock() { c.mu.Lock() }

// Unlock unlocks the connection. It reports a loss after that, because the hook of the
// Fault may use the connection, and late, because the peer may have ended through another
// rank's fault.
func (c *Conn) Unlock() {
	lost := c.lost
	c.lost = nil
	c.mu.Unlock()
	if lost != nil {
		c.e.opt.Fault.SetLate(lost)
	}
}

// Alignment of the slots, and of their memory: devices work in pages.
const (
	slotAlign = 64
	pageSize  = 4096
)

// Pages allocates n bytes that begin at a page boundary. The memory does not move until
// the connection is closed.
func (c *Conn) Pages(n int) []byte {
	b := make([]byte, n+pageSize)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (pageSize - 1)
	c.pin.Pin(&b[0])
	return b[skip : int(skip)+n : int(skip)+n]
}

// MakeSlots allocates the memory of the slots, which the network has to register. Each
// slot has size bytes; two consecutive slots begin stride bytes apart.
func (c *Conn) MakeSlots() (mem []byte, size, stride int) {
	size = HeaderSize + c.maxMessage
	c.stride = (size + slotAlign - 1) &^ (slotAlign - 1)
	c.mem = c.Pages(N * c.stride)
	return c.mem, size, c.stride
}

// slot returns the memory of message i: header and message.
func (c *Conn) slot(i uint32) []byte {
	return c.mem[int(i%N)*c.stride:][: HeaderSize+c.maxMessage : HeaderSize+c.maxMessage]
}

// Filler writes an empty message, which the receiver discards, into the slot of message
// i, and returns its length.
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

// miss reports a peer that has closed while this rank still needs it.
func (c *Conn) miss() {
	c.report("it has closed its connections in good order, with more to do")
	c.missed = true
}

// Ask dials the peer, sends the network's data, and returns the data in the peer's
// answer.
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

// keep makes the kernel detect a peer that no longer answers.
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

// ErrVanished means that the peer hung up while the connection was set up. The peer has
// its own error to report.
var ErrVanished = errors.New("it hung up while it connected")

// Answer sends the network's data to the sender.
func (c *Conn) Answer(text []byte) error { return c.answer(text, nil) }

func (c *Conn) answer(text []byte, failure error) error {
	c.answered = true
	if err := writeAnswer(c.wire, text, failure); err != nil {
		return fmt.Errorf("%w: %w", ErrVanished, err)
	}
	return nil
}

// Vanished reports whether the peer has hung up.
func (c *Conn) Vanished() bool {
	c.Lock()
	defer c.Unlock()
	return c.Ended
}

// Watch starts to read the TCP connection, until it ends.
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

// hangUp records the end of the TCP connection.
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

// Made marks the connection as ready. The caller holds the lock.
func (c *Conn) Made() {
	c.Ready = true
	if c.Gone { // the peer has already said goodbye
		c.Leave()
	}
}

// Leave lets the worker settle the connection. It does not take the lock.
func (c *Conn) Leave() { c.e.worker.add(c.settle) }

func (c *Conn) settle() bool {
	c.Lock()
	defer c.Unlock()
	switch {
	case c.Ready && !c.Broken:
		return c.end.Settle()
	case c.Broken, c.Closed: // a peer may still be connecting, or waiting
		c.Bye(0)
	}
	return true
}

// Bye tells the peer, once, that this side starts no more requests, and a number. After a
// failure it hangs up instead, so that the peer does not wait. If the goodbye cannot be
// sent, the peer sees a loss, which is correct.
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

// free releases the connection.
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
