//go:build cgo

package netplugin

/*
#include <stdlib.h>
#include "plugin.h"
*/
import "C"

import (
	"errors"
	"unsafe"
)

// The plugin's calls, one by one: an Endpoint uses them for its setup, and the
// conformance suite (netplugintest) calls them. Messages of an Endpoint go through
// np_push and np_pull instead.

// A Listener waits for one sender.
type Listener struct {
	n      *Net
	c      unsafe.Pointer
	Handle [HandleSize]byte // for the sender
}

// errNoObject is the error of a call that must return an object at once and does not.
var errNoObject = errors.New("it returned success and no object")

// Listen starts to wait for a sender, on a device.
func (n *Net) Listen(device int) (*Listener, error) {
	handle := C.calloc(1, 2*HandleSize) // more than is allowed, to detect a plugin that writes too much
	defer C.free(handle)
	l := &Listener{n: n}
	if err := n.lib.failed("listen", C.np_listen(n.c, C.int(device), handle, &l.c)); err != nil {
		return nil, err
	}
	if l.c == nil {
		return nil, n.broken("listen", errNoObject)
	}
	b := unsafe.Slice((*byte)(handle), 2*HandleSize)
	copy(l.Handle[:], b)
	for _, x := range b[HandleSize:] {
		if x != 0 {
			return nil, errors.Join(n.broken("listen", errors.New("it wrote more than 128 bytes of handle")), l.Close())
		}
	}
	return l, nil
}

// broken returns an error about a plugin that violates the interface.
func (n *Net) broken(call string, err error) error {
	return errors.New("network plugin " + n.lib.name + ": " + call + ": " + err.Error())
}

// Accept returns the receiving end, or nil if the sender has not connected yet.
func (l *Listener) Accept() (*Comm, error) {
	c := &Comm{n: l.n, receives: true}
	if err := l.n.lib.failed("accept", C.np_accept(l.n.c, l.c, &c.c)); err != nil || c.c == nil {
		return nil, err
	}
	return c, nil
}

// Close closes the listener, not the connection that it accepted.
func (l *Listener) Close() error {
	return l.n.lib.failed("closeListen", C.np_close_listen(l.n.c, l.c))
}

// A Dialer connects to a listener. It keeps the handle at one address, as plugins may
// record their progress in it.
type Dialer struct {
	n      *Net
	device int
	handle unsafe.Pointer
}

// Dial starts to connect to a listener, from a device.
func (n *Net) Dial(device int, handle [HandleSize]byte) *Dialer {
	d := &Dialer{n: n, device: device, handle: C.calloc(1, HandleSize)}
	copy(unsafe.Slice((*byte)(d.handle), HandleSize), handle[:])
	return d
}

// Connect returns the sending end, or nil if the receiver has not accepted yet.
func (d *Dialer) Connect() (*Comm, error) {
	c := &Comm{n: d.n}
	if err := d.n.lib.failed("connect", C.np_connect(d.n.c, C.int(d.device), d.handle, &c.c)); err != nil || c.c == nil {
		return nil, err
	}
	return c, nil
}

// Close frees the handle, after the last Connect.
func (d *Dialer) Close() {
	C.free(d.handle)
	d.handle = nil
}

// A Comm is one end of a connection. It is used by one goroutine at a time.
type Comm struct {
	n        *Net
	c        unsafe.Pointer
	receives bool
}

// A Region is memory that is registered with a Comm.
type Region struct{ c unsafe.Pointer }

// A Request is a pending send or receive.
type Request struct{ c unsafe.Pointer }

// Register registers memory with the plugin. The memory must not move: it is C memory, or
// pinned.
func (c *Comm) Register(b []byte) (r Region, err error) {
	err = c.n.lib.failed("regMr", C.np_register(c.n.c, c.c, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), &r.c))
	return r, err
}

// Deregister reverses Register.
func (c *Comm) Deregister(r Region) error {
	return c.n.lib.failed("deregMr", C.np_deregister(c.n.c, c.c, r.c))
}

// Send starts to send b, which is in r. ok is false if the plugin cannot accept it now.
func (c *Comm) Send(b []byte, tag int, r Region) (q Request, ok bool, err error) {
	err = c.n.lib.failed("isend", C.np_isend(c.n.c, c.c, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), C.int(tag), r.c, &q.c))
	return q, q.c != nil, err
}

// Receive starts to receive at most len(b) bytes into b, which is in r. ok is false if
// the plugin cannot accept it now.
func (c *Comm) Receive(b []byte, tag int, r Region) (q Request, ok bool, err error) {
	err = c.n.lib.failed("irecv", C.np_irecv(c.n.c, c.c, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), C.int(tag), r.c, &q.c))
	return q, q.c != nil, err
}

// Test reports whether a request is done, and the length of its message. A request that
// is done is no longer valid.
func (c *Comm) Test(q Request) (done bool, length int, err error) {
	var d, n C.int
	err = c.n.lib.failed("test", C.np_test(c.n.c, q.c, &d, &n))
	return d != 0, int(n), err
}

// Close closes this end of the connection.
func (c *Comm) Close() error {
	if c.receives {
		return c.n.lib.failed("closeRecv", C.np_close_recv(c.n.c, c.c))
	}
	return c.n.lib.failed("closeSend", C.np_close_send(c.n.c, c.c))
}
