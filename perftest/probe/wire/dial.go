package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// keepalive notices within a minute that the peer's host, or the network to it, is down: the
// exchange after a long measurement has no other limit.
var keepalive = net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 4}

// Dial connects to a server at host:port. It makes one attempt, or retries for Options.Retry while
// no server listens.
func Dial(ctx context.Context, addr string, o Options) (*Conn, error) {
	d, err := o.dialer()
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(o.Retry)
	for {
		nc, err := d.DialContext(ctx, cmp.Or(o.Network, "tcp"), addr)
		switch {
		case err == nil:
			return NewConn(nc, Client, o), nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("connecting to %s: %w", addr, context.Cause(ctx))
		case !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(until):
			return nil, noServer(addr, err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done(): // the next attempt returns the error
		}
	}
}

func (o Options) dialer() (*net.Dialer, error) {
	d := &net.Dialer{Timeout: cmp.Or(o.DialTimeout, dialTimeout), KeepAliveConfig: keepalive}
	if o.Source != "" {
		ip := net.ParseIP(o.Source)
		if ip == nil {
			return nil, fmt.Errorf("the source %q is no IP address", o.Source)
		}
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	return d, nil
}

// noServer explains why a connection failed.
func noServer(addr string, err error) error {
	var dns *net.DNSError
	hint := "is the route there, and the network up?"
	var timeout net.Error
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		hint = "the name does not resolve on this host: is it right, and in its DNS or /etc/hosts?"
	case errors.As(err, &dns):
		hint = "this host's DNS does not answer (/etc/resolv.conf): give the server's address instead"
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = "the host is there and refuses: start the server first, with the same command without a host; was it given another port (-p), or does a firewall reject?"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		hint = "no host answers to this address, or there is no route: is the address right, and the host up?"
	case errors.As(err, &timeout) && timeout.Timeout():
		hint = "the address is silent: a firewall drops packets to the port, or no host has this address"
	}
	return fmt.Errorf("%w at %s: %w: %s", ErrNoServer, addr, err, hint)
}

// Accepted makes a server's channel from a connection that was accepted elsewhere, if its first
// bytes can be a version.
func Accepted(ctx context.Context, nc net.Conn, o Options) (*Conn, error) {
	c := NewConn(nc, Server, o)
	return c, c.peekVersion(ctx, cmp.Or(o.HelloTimeout, helloTimeout))
}

// A Listener waits for a client.
type Listener struct {
	ln *net.TCPListener
	o  Options
}

// Listen opens a server's port. addr is "host:port", usually with an empty host.
func Listen(ctx context.Context, addr string, o Options) (*Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepalive}
	ln, err := lc.Listen(ctx, cmp.Or(o.Network, "tcp"), addr)
	if err != nil {
		hint := ""
		if errors.Is(err, syscall.EADDRINUSE) {
			hint = ": another server runs there; end it, or give both sides another port (-p)"
		}
		return nil, fmt.Errorf("listening at %s: %w%s", addr, err, hint)
	}
	return &Listener{ln.(*net.TCPListener), o}, nil
}

// Addr is where the listener listens.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Close stops listening.
func (l *Listener) Close() error { return l.ln.Close() }

// Accept waits for one client and closes the listener. A connection counts as a client's once it
// has sent what can be a version. Others (port scanners, health checks) are closed, reported to
// Options.Rejected, and do not delay the client.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan *Conn)
	ended := make(chan error, 1)
	go func() { ended <- l.serve(ctx, found) }()
	select {
	case c := <-found:
		cancel()
		_ = l.ln.Close()
		<-ended
		return c, nil
	case err := <-ended:
		cancel()
		_ = l.ln.Close()
		return nil, err
	case <-ctx.Done():
		err := context.Cause(ctx)
		cancel()
		_ = l.ln.Close()
		<-ended
		return nil, fmt.Errorf("waiting for a client at %v: %w", l.ln.Addr(), err)
	}
}

// serve starts a goroutine for each connection that examines it, and returns when the listener is
// closed and all goroutines have ended.
func (l *Listener) serve(ctx context.Context, found chan<- *Conn) error {
	places := make(chan struct{}, candidates)
	defer func() {
		for range cap(places) { // until all goroutines have ended
			places <- struct{}{}
		}
	}()
	for {
		nc, err := l.ln.Accept()
		if err != nil {
			if ctx.Err() == nil && transient(err) {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return fmt.Errorf("accepting a client at %v: %w", l.ln.Addr(), err)
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			_ = nc.Close()
			continue
		}
		go func() {
			defer func() { <-places }()
			l.consider(ctx, nc, found)
		}()
	}
}

// transient reports whether a later accept may succeed: the connection was closed before it was
// accepted, or the process ran out of descriptors.
func transient(err error) bool {
	for _, t := range []error{syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// consider waits for a connection's first message.
func (l *Listener) consider(ctx context.Context, nc net.Conn, found chan<- *Conn) {
	c, err := Accepted(ctx, nc, l.o)
	if err != nil {
		_ = nc.Close()
		if l.o.Rejected != nil && ctx.Err() == nil {
			l.o.Rejected(err)
		}
		return
	}
	select {
	case found <- c:
	case <-ctx.Done():
		_ = nc.Close()
	}
}
