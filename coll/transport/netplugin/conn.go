//go:build cgo

package netplugin

/*
#include <stdlib.h>
#include "plugin.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

// slots is how many messages each end of a connection has room for. The plugin
// has so many requests under way at most, of MaxRequests that it must allow.
const slots = C.NP_SLOTS

// conn is what both ends of a connection have. mu is held within each call,
// none of which blocks: it keeps the worker, the watcher and Close apart from
// the one goroutine that uses the connection.
type conn struct {
	e             *Endpoint
	peer, channel int
	maxMessage    int

	mu     sync.Mutex
	closed bool // by this side
	gone   bool // the peer said goodbye
	ended  bool // the TCP connection did
	broken bool // something failed: nothing more is tried
	missed bool // more was wanted after the goodbye: it can be settled still, but not used
	lost   error

	wire   net.Conn          // the TCP connection
	ring   *C.struct_np_ring // nil before the plugin has connected, and after Close
	comm   *Comm
	region Region
	mem    []byte // the slots; it stays with those who look at a message when all else is closed
	stride int
	pin    runtime.Pinner
}

// Slots are aligned so, and their memory to pages: it is what adapters work in.
const (
	slotAlign = 64
	pageSize  = 4096
)

// open makes the slots of a connection that the plugin has made.
func (c *conn) open(comm *Comm) error {
	size := headerSize + c.maxMessage
	c.stride = (size + slotAlign - 1) &^ (slotAlign - 1)
	c.mem = pages(slots * c.stride)
	c.pin.Pin(&c.mem[0])
	region, err := comm.Register(c.mem)
	if err != nil {
		c.pin.Unpin()
		return err
	}
	c.comm, c.region = comm, region
	r := (*C.struct_np_ring)(C.calloc(1, C.sizeof_struct_np_ring))
	r.n, r.comm, r.region = comm.n.c, comm.c, region.c
	r.base = C.uintptr_t(uintptr(unsafe.Pointer(&c.mem[0])))
	r.stride, r.size, r.tag = C.size_t(c.stride), C.size_t(size), C.int(c.channel)
	c.ring = r
	return nil
}

// pages is memory of n bytes that begins at a page.
func pages(n int) []byte {
	b := make([]byte, n+pageSize)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (pageSize - 1)
	return b[skip : int(skip)+n : int(skip)+n]
}

// slot is the memory of request i, header and message.
func (c *conn) slot(i uint32) []byte {
	return c.mem[int(i%slots)*c.stride:][: headerSize+c.maxMessage : headerSize+c.maxMessage]
}

// usable reports whether anything can be done with the connection.
func (c *conn) usable() bool { return c.ring != nil && !c.closed && !c.broken && !c.missed }

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

// failCall is about a plugin's call.
func (c *conn) failCall(result C.int) {
	c.fail(fmt.Sprintf("network plugin %s: %s: %v", c.e.name, C.GoString(c.ring.call), Result(result)))
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

// watch listens to the TCP connection until it ends.
func (c *conn) watch(hear func(word, n uint32)) {
	for {
		word, n, err := readPair(c.wire)
		if err != nil {
			c.hangUp(err)
			return
		}
		hear(word, n)
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
}

// vanished reports that the peer is not there any more.
func (c *conn) vanished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// say sends a word of the goodbye. If it cannot be sent, the peer sees a loss,
// and there is one.
func (c *conn) say(word, n uint32) {
	if !c.ended && !c.broken {
		c.wire.Write(pairOf(word, n))
	}
}

// free closes the connection, at the plugin and over TCP.
func (c *conn) free() {
	c.mu.Lock()
	c.closed = true
	if c.ring != nil {
		if err := errors.Join(c.comm.Deregister(c.region), c.comm.Close()); err != nil {
			c.e.opt.Logf("closing a connection with rank %d: %v", c.peer, err)
		}
		C.free(unsafe.Pointer(c.ring))
		c.ring = nil
		c.pin.Unpin()
	}
	if c.wire != nil {
		c.wire.Close()
	}
	c.mu.Unlock()
}
