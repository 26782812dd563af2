package socket

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxPending bounds the handshakes under way: strangers that say nothing hold
// no more descriptors than that. When they are so many, those older than
// grace give way; a genuine peer is done within milliseconds, unless a
// thousand of them come at once to a busy machine.
const (
	maxPending = 256
	grace      = time.Second
)

// A candidate is a connection in handshake.
type candidate struct {
	net.Conn
	since time.Time
}

// accept takes connections until the listener is closed.
func (e *Endpoint) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			if e.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			e.opt.Logf("socket: accept on %v: %v", l.Addr(), err)
			select { // no descriptor is free, say: others may give one back
			case <-time.After(100 * time.Millisecond):
			case <-e.ctx.Done():
			}
			continue
		}
		if !e.begin(c) {
			c.Close()
			return
		}
		e.wg.Go(func() {
			defer e.end(c)
			if err := e.admit(c); err != nil {
				e.stranger(c, err)
			}
		})
	}
}

// begin lists a connection as in handshake; false when the endpoint is closed.
// It waits while there are too many.
func (e *Endpoint) begin(c net.Conn) bool {
	for {
		e.mu.Lock()
		room := len(e.pending) < maxPending
		if !room && time.Since(e.pending[0].since) > grace {
			e.pending[0].Close()
			e.pending = slices.Delete(e.pending, 0, 1)
			room = true
		}
		closed := e.closed
		if room && !closed {
			e.pending = append(e.pending, candidate{c, time.Now()})
		}
		e.mu.Unlock()
		if room || closed {
			return !closed
		}
		time.Sleep(time.Millisecond)
	}
}

func (e *Endpoint) end(c net.Conn) {
	c.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pending = slices.DeleteFunc(e.pending, func(p candidate) bool { return p.Conn == c })
}

// stranger logs who was turned away: the first few, and then ever fewer.
func (e *Endpoint) stranger(c net.Conn, why error) {
	e.mu.Lock()
	e.strangers++
	n, closed := e.strangers, e.closed
	e.mu.Unlock()
	if closed {
		return
	}
	if n <= 10 || n&(n-1) == 0 {
		e.opt.Logf("socket: dropped a connection from %v to %v: %v (%d so far)", c.RemoteAddr(), c.LocalAddr(), why, n)
	}
}

// admit shakes hands and gives the stream to its receiving end.
func (e *Endpoint) admit(c net.Conn) error {
	c.SetDeadline(time.Now().Add(helloPatience))
	w, err := e.opt.receive(c)
	if err != nil {
		return err
	}
	fd, err := takeFd(c)
	if err != nil {
		return err
	}
	if err := e.tune(fd); err != nil {
		unix.Close(fd)
		return err
	}
	// The answer is the first thing sent: it always fits the kernel's buffer.
	if _, err := unix.Write(fd, w.answer); err != nil {
		unix.Close(fd)
		return err
	}
	return e.attach(w.hello, fd)
}

// attach puts a stream in its place, or closes it. The last one of a
// connection makes it ready.
func (e *Endpoint) attach(h hello, fd int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		unix.Close(fd)
		return net.ErrClosed
	}
	r := e.rxLocked(rxKey{h.source, h.channel})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.arrived == nil {
		r.arrived = make([]int, h.streams)
		for i := range r.arrived {
			r.arrived[i] = -1
		}
	}
	if len(r.arrived) != h.streams || r.arrived[h.index] >= 0 {
		unix.Close(fd)
		return fmt.Errorf("stream %d of %d from rank %d, channel %d, is there already", h.index, h.streams, h.source, h.channel)
	}
	r.arrived[h.index] = fd
	if slices.Contains(r.arrived, -1) {
		return nil
	}
	if err := r.open(); err != nil {
		r.fail("its connection cannot be used here: "+err.Error(), 0) // the next call on r reports it
		return err
	}
	return nil
}
