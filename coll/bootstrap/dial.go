package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

const (
	// dialTime bounds one attempt at one address. A lost SYN is sent again
	// after 1 and 3 seconds.
	dialTime = 5 * time.Second
	// stagger is how long the better address is tried alone: RFC 8305,
	// "Connection Attempt Delay".
	stagger = 250 * time.Millisecond
	// refusedTime is how long a refused connection is tried again where the
	// listener was there before its address was known: it is gone.
	refusedTime = 3 * time.Second
)

// A caller dials until it is let in.
type caller struct {
	addrs  []netip.AddrPort // best first
	secret []byte
	hello  hello
	late   bool // the listener may come later than the caller, and another be there before
}

// caller is one that calls who listens at the ID's addresses, as far as o admits
// them.
func (id ID) caller(h hello, o Options) (*caller, error) {
	addrs, err := id.addrs()
	if err != nil {
		return nil, err
	}
	admits, err := familyFilter(o.Family)
	if err != nil {
		return nil, err
	}
	c := &caller{secret: id.secret(), late: id.late(), hello: h}
	for _, a := range addrs {
		if admits(a.Addr()) {
			c.addrs = append(c.addrs, zones(a, o)...)
		}
	}
	if len(c.addrs) == 0 {
		return nil, fmt.Errorf("no interface leads to it within the family %q", o.Family)
	}
	return c, nil
}

// call returns an authenticated connection. ctx bounds all of it.
func (c *caller) call(ctx context.Context) (net.Conn, []byte, error) {
	var refusedSince time.Time
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		conn, transcript, err := c.try(ctx)
		switch {
		case err == nil:
			return conn, transcript, nil
		case errors.Is(err, ErrRefused) && !c.late:
			return nil, nil, err
		case !errors.Is(err, syscall.ECONNREFUSED) && !unreachable(err), c.late:
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = time.Now()
		case time.Since(refusedSince) > refusedTime:
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w (last attempt: %v)", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

func unreachable(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// try tries each address once: those that connect, in the order in which they
// do, until one lets us in. One at a time, since the listener must not see us
// twice.
func (c *caller) try(ctx context.Context) (net.Conn, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	for i, a := range c.addrs {
		go func() {
			conn, err := dialAfter(ctx, a, time.Duration(i)*stagger)
			select {
			case results <- result{conn, err}:
			case <-ctx.Done():
				if conn != nil {
					conn.Close()
				}
			}
		}()
	}
	var errs []error
	for range c.addrs {
		var r result
		select {
		case r = <-results:
		case <-ctx.Done():
			return nil, nil, errors.Join(append(errs, ctx.Err())...)
		}
		if r.err == nil {
			var transcript []byte
			if transcript, r.err = c.enter(ctx, r.conn); r.err == nil {
				return r.conn, transcript, nil
			}
		}
		errs = append(errs, r.err)
	}
	return nil, nil, &triedError{errs}
}

func dialAfter(ctx context.Context, a netip.AddrPort, wait time.Duration) (net.Conn, error) {
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", a.String())
}

// enter authenticates over conn, and closes it if that fails.
func (c *caller) enter(ctx context.Context, conn net.Conn) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(handshakeTime))
	transcript, err := greet(conn, c.secret, c.hello)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, &net.OpError{Op: "greet", Net: "tcp", Addr: conn.RemoteAddr(), Err: err}
	}
	conn.SetDeadline(time.Time{})
	return transcript, nil
}

// A triedError is why none of several addresses let us in, in one line.
type triedError struct{ errs []error }

func (e *triedError) Error() string {
	var s []string
	for _, err := range e.errs {
		s = append(s, err.Error())
	}
	return strings.Join(s, "; ")
}

func (e *triedError) Unwrap() []error { return e.errs }
