package meet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

const (
	// dialTime limits one attempt to connect. A lost SYN is resent after 1 and 3 seconds.
	dialTime = 5 * time.Second
	// Stagger is how long the better address is tried alone: RFC 8305, "Connection Attempt Delay".
	Stagger = 250 * time.Millisecond
	// refusedTime is how long refused connections are retried if the listener was there before its
	// address was known: after this time it is gone.
	refusedTime = 3 * time.Second
)

// A Caller connects to a Gate.
type Caller struct {
	Protocol Protocol
	Secret   []byte
	Claim    []byte
	Patience time.Duration // until the listener has authenticated itself; 0: the constant
	Dialer   net.Dialer
	Late     bool // the listener may start after the caller, and another process may listen there before
}

// Dial makes one call to an address, "host:port", limited by ctx. The caller owns the connection;
// the key is that of Greet.
func (c *Caller) Dial(ctx context.Context, addr string) (conn net.Conn, key []byte, err error) {
	conn, err = c.Dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	if key, err = c.Handshake(ctx, conn); err != nil {
		return nil, nil, err
	}
	return conn, key, nil
}

// Handshake makes a call over a connection to a Gate, limited by ctx. It closes conn on failure.
func (c *Caller) Handshake(ctx context.Context, conn net.Conn) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	patience := c.Patience
	if patience == 0 {
		patience = Patience
	}
	conn.SetDeadline(time.Now().Add(patience))
	key, err := c.Protocol.Greet(conn, c.Secret, c.Claim)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, &net.OpError{Op: "greet", Net: "tcp", Addr: conn.RemoteAddr(), Err: err}
	}
	return key, nil
}

// Call calls the addresses of one listener, best first, and retries until it is admitted, ctx ends,
// or a retry cannot succeed.
func (c *Caller) Call(ctx context.Context, addrs []string) (conn net.Conn, key []byte, err error) {
	var refusedSince time.Time
	err = Again(ctx, func() (final bool, err error) {
		conn, key, err = c.try(ctx, addrs)
		switch {
		case err == nil || c.Late:
			return false, err
		case errors.Is(err, ErrRefused):
			return true, err
		case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EHOSTUNREACH) && !errors.Is(err, syscall.ENETUNREACH):
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = time.Now()
		case time.Since(refusedSince) > refusedTime:
			return true, err
		}
		return false, err
	})
	return conn, key, err
}

// Again calls f until it returns no error or a final one, with backoff up to 500 ms. When ctx ends
// first, the error is ctx's cause.
func Again(ctx context.Context, f func() (final bool, err error)) error {
	var last error // that was not caused by the end of ctx
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		final, err := f()
		if err == nil || final {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last attempt: %v)", context.Cause(ctx), last)
		case <-time.After(pause):
		}
	}
}

// try tries each address once. It performs the handshake on the connections in the order in which
// they are established, until one is admitted, and one at a time, since the listener must not see
// the caller twice.
func (c *Caller) try(all context.Context, addrs []string) (net.Conn, []byte, error) {
	ctx, cancel := context.WithTimeout(all, dialTime)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	for i, a := range addrs {
		go func() {
			conn, err := c.dialAfter(ctx, time.Duration(i)*Stagger, a)
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
	for range addrs {
		var r result
		select {
		case r = <-results:
		case <-ctx.Done():
			return nil, nil, &triedError{append(errs, ctx.Err())}
		}
		if r.err == nil {
			var key []byte
			if key, r.err = c.Handshake(all, r.conn); r.err == nil {
				return r.conn, key, nil
			}
		}
		errs = append(errs, r.err)
	}
	return nil, nil, &triedError{errs}
}

func (c *Caller) dialAfter(ctx context.Context, wait time.Duration, addr string) (net.Conn, error) {
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c.Dialer.DialContext(ctx, "tcp", addr)
}

// A triedError is why none of several addresses admitted the caller, in one line.
type triedError struct{ errs []error }

func (e *triedError) Error() string {
	var s []string
	for _, err := range e.errs {
		s = append(s, err.Error())
	}
	return strings.Join(s, "; ")
}

func (e *triedError) Unwrap() []error { return e.errs }

// Brief returns the text of a connection error without the addresses, which Go's errors repeat.
func Brief(err error) string {
	var tried *triedError
	if errors.As(err, &tried) {
		return tried.Error()
	}
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed"
	case errors.As(err, &op) && op.Err != nil:
		return op.Err.Error()
	}
	return err.Error()
}
