// Package rendezvous brings the two ends of a connection together: a rank's
// Point listens on TCP, a sender dials it and says who it is and which channel
// it wants, and both get a TCP connection over which they exchange what their
// network needs: a handle, say, or a queue pair's number.
//
// It is for transports over networks of which a connection must first be
// agreed on, and which do not notice by themselves that a peer has died: as
// long as both live the TCP connection stays, and its end is the news.
//
// Each side proves to the other that it has the communicator's key, by a
// mutual challenge and response (handshake.go). Nothing is encrypted.
package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Options say how a Point is to be. Rank, Key and Admit must be given.
type Options struct {
	Rank int    // of this process in the communicator
	Comm []byte // names the communicator and the transport: those of others are strangers
	Key  []byte // secret of the communicator, 16 bytes or more

	// Addrs are this host's addresses to listen on. None means the loopback
	// address. Link-local ones need their zone.
	Addrs []netip.Addr

	// Admit is given each connection of a genuine peer, in a goroutine of its
	// own. The connection is Admit's to close.
	Admit func(peer, channel int, c net.Conn)

	// Timeout is how long a peer may leave data unacknowledged before the
	// connection breaks; 0 stands for DefaultTimeout.
	Timeout time.Duration

	Logf func(format string, args ...any) // strangers; may be nil
}

// DefaultTimeout is for Options.Timeout.
const DefaultTimeout = 30 * time.Second

func (o *Options) check() error {
	switch {
	case o.Rank < 0:
		return fmt.Errorf("rendezvous: rank %d is negative", o.Rank)
	case len(o.Key) < 16:
		return fmt.Errorf("rendezvous: the key has %d bytes; want 16 or more", len(o.Key))
	case o.Admit == nil:
		return errors.New("rendezvous: there is nobody to admit peers")
	case len(o.Addrs) > maxAddrs:
		return fmt.Errorf("rendezvous: %d addresses; want at most %d", len(o.Addrs), maxAddrs)
	}
	for _, a := range o.Addrs {
		if !a.IsValid() || a.IsUnspecified() {
			return fmt.Errorf("rendezvous: %v is no address of an interface", a)
		}
	}
	return nil
}

func (o *Options) setDefaults() {
	if len(o.Addrs) == 0 {
		o.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
}

// A Point is where a rank's peers find it. Its methods may be called by many
// goroutines.
type Point struct {
	opt       Options
	info      string
	listeners []net.Listener
	ctx       context.Context // done by Close
	cancel    context.CancelFunc
	wg        sync.WaitGroup // acceptors, handshakes and what they admit

	mu        sync.Mutex
	pending   map[net.Conn]time.Time // in handshake, since when
	strangers int
}

// Listen opens a point. It is to be closed.
func Listen(opt Options) (*Point, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	opt.setDefaults()
	p := &Point{opt: opt, pending: map[net.Conn]time.Time{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	var addrs []netip.AddrPort
	for _, a := range opt.Addrs {
		var lc net.ListenConfig
		l, err := lc.Listen(p.ctx, "tcp", netip.AddrPortFrom(a, 0).String())
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("rendezvous: listen on %v: %w", a, err)
		}
		p.listeners = append(p.listeners, l)
		addrs = append(addrs, l.Addr().(*net.TCPAddr).AddrPort())
	}
	p.info = formatAddrs(addrs)
	for _, l := range p.listeners {
		p.wg.Go(func() { p.accept(l) })
	}
	return p, nil
}

// Info holds the addresses that the point listens on, as one word of text. It
// is not secret.
func (p *Point) Info() string { return p.info }

// Reach reports why a point with this Info cannot be dialed from here; nil if
// it can, as far as addresses tell.
func (p *Point) Reach(info string) error {
	addrs, err := parseAddrs(info)
	if err != nil {
		return err
	}
	if len(p.ways(addrs)) == 0 {
		return fmt.Errorf("it listens on %v, this rank uses %v: no pair of one family; choose interfaces with NCCL_SOCKET_IFNAME", addrs, p.opt.Addrs)
	}
	return nil
}

// Close lets nobody in any more, and waits for what Admit does: that has to
// end by itself.
func (p *Point) Close() {
	p.cancel()
	for _, l := range p.listeners {
		l.Close()
	}
	p.mu.Lock()
	for c := range p.pending {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// maxPending bounds the handshakes under way: strangers that say nothing hold
// no more descriptors than that. When they are so many, the oldest gives way if
// it is older than grace; a genuine peer is done within milliseconds.
const (
	maxPending = 256
	grace      = time.Second
)

// accept takes connections until the listener is closed.
func (p *Point) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			if p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			p.opt.Logf("rendezvous: accept on %v: %v", l.Addr(), err)
			select { // no descriptor is free, say: others may give one back
			case <-time.After(100 * time.Millisecond):
			case <-p.ctx.Done():
			}
			continue
		}
		if !p.begin(c) {
			c.Close()
			return
		}
		p.wg.Go(func() { p.admit(c) })
	}
}

// begin lists a connection as in handshake; false when the point is closed. It
// waits while there are too many.
func (p *Point) begin(c net.Conn) bool {
	for p.ctx.Err() == nil {
		p.mu.Lock()
		if len(p.pending) >= maxPending {
			p.evict()
		}
		room := len(p.pending) < maxPending && p.ctx.Err() == nil
		if room {
			p.pending[c] = time.Now()
		}
		p.mu.Unlock()
		if room {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// evict hangs up on the oldest handshake if it is old enough.
func (p *Point) evict() {
	var oldest net.Conn
	for c, since := range p.pending {
		if oldest == nil || since.Before(p.pending[oldest]) {
			oldest = c
		}
	}
	if time.Since(p.pending[oldest]) > grace {
		oldest.Close()
		delete(p.pending, oldest)
	}
}

// admit shakes hands, and hands a genuine peer's connection on.
func (p *Point) admit(c net.Conn) {
	c.SetDeadline(time.Now().Add(helloPatience))
	h, err := p.opt.receive(c)
	p.mu.Lock()
	delete(p.pending, c)
	p.mu.Unlock()
	if err == nil {
		err = p.opt.keep(c)
	}
	if err != nil {
		p.stranger(c, err)
		c.Close()
		return
	}
	p.opt.Admit(h.source, h.channel, c)
}

// stranger logs who was turned away: the first few, and then ever fewer.
func (p *Point) stranger(c net.Conn, why error) {
	p.mu.Lock()
	p.strangers++
	n := p.strangers
	p.mu.Unlock()
	if p.ctx.Err() == nil && (n <= 10 || n&(n-1) == 0) {
		p.opt.Logf("rendezvous: dropped a connection from %v to %v: %v (%d so far)", c.RemoteAddr(), c.LocalAddr(), why, n)
	}
}
