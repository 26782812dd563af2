package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// A Conn is the control channel. Only one goroutine at a time may make exchanges on it; Close may
// be called from any.
type Conn struct {
	nc      net.Conn
	role    Role
	timeout time.Duration
	vigil   *Vigil // of a wait for a peer that measures; nil: none
	early   []byte // bytes of the first message that were read ahead
	failed  error  // by an exchange, after which the stream is out of step
	cm      bool   // the connection is over rdma_cm
	binary  int    // size of a record over rdma_cm, once the peer's version is known
}

// NewConn makes a channel from an existing connection.
func NewConn(nc net.Conn, role Role, o Options) *Conn {
	return &Conn{nc: nc, role: role, timeout: cmp.Or(o.Timeout, exchangeTimeout), cm: o.CM}
}

// Peer is the other side's address.
func (c *Conn) Peer() string { return c.nc.RemoteAddr().String() }

// A Vigil replaces the time limit of exchanges that wait for a peer's measurement, which may take
// longer than any exchange. Ended is called after each Step: a text ends the wait, with that text as
// the hint of an ErrTimeout; with "" it goes on.
type Vigil struct {
	Step  time.Duration
	Ended func() (hint string)
}

// Keep sets the vigil of the following exchanges. release returns to the time limit.
func (c *Conn) Keep(v Vigil) (release func()) {
	c.vigil = &v
	return func() { c.vigil = nil }
}

// Close closes the connection without sending bye.
func (c *Conn) Close() error { return c.nc.Close() }

// bye is what releases up to 23.07 send before they close.
var bye = []byte("done\x00")

// Bye says goodbye as the releases up to 23.07 do, and closes. No peer waits for it, and a peer
// that has already disconnected is not an error. Over rdma_cm nothing is sent; there, a queue pair
// that is destroyed at once might not acknowledge the peer's last message.
func (c *Conn) Bye() {
	if c.cm {
		c.AwaitClose(context.Background(), cmFarewell)
		return
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.nc.Write(bye) // newer peers have already closed
	_ = c.nc.Close()
}

// cmFarewell is how long the peer may take to close an rdma_cm connection.
const cmFarewell = 500 * time.Millisecond

// AwaitClose waits until the peer closes its end, at most for the given time, and then closes ours.
// A latency test of writes has no last exchange, so each side must keep its queue pair alive until
// the other is done. It reports whether the peer closed.
func (c *Conn) AwaitClose(ctx context.Context, grace time.Duration) bool {
	release := c.limit(ctx, grace)
	_, err := io.CopyN(io.Discard, c.nc, 1<<16)
	release()
	_ = c.nc.Close()
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// limit sets the deadlines for the following operations: d from now, the context's deadline, and
// immediately when the context is cancelled. The returned function removes them.
func (c *Conn) limit(ctx context.Context, d time.Duration) (release func()) {
	c.setDeadline(ctx, d)
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.nc.SetDeadline(time.Unix(1, 0))
		close(cancelled)
	})
	return func() {
		if !stop() {
			<-cancelled // otherwise it would set its deadline after this
		}
		_ = c.nc.SetDeadline(time.Time{})
	}
}

func (c *Conn) setDeadline(ctx context.Context, d time.Duration) {
	at := time.Now().Add(d)
	if t, ok := ctx.Deadline(); ok && t.Before(at) {
		at = t
	}
	_ = c.nc.SetDeadline(at) // a closed connection returns an error when it is used
}

// swap makes one exchange: it sends mine with one write, and reads the same number of bytes.
func (c *Conn) swap(ctx context.Context, what string, mine []byte) ([]byte, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	limit, hint := c.timeout, ""
	if c.vigil != nil {
		limit = c.vigil.Step
	}
	defer c.limit(ctx, limit)()
	theirs := make([]byte, len(mine))
	n := 0
	send := func() error {
		if c.vigil != nil { // the peer's buffer has room for this one
			c.setDeadline(ctx, c.timeout)
		}
		_, err := c.nc.Write(mine)
		return err
	}
	receive := func() (err error) { n, hint, err = c.read(ctx, theirs); return err }
	first, second := receive, send
	if c.role == Client {
		first, second = send, receive
	}
	err := first()
	if err == nil {
		err = second()
	}
	if err != nil {
		return nil, c.fail(c.broken(ctx, what, theirs[:n], len(mine), err, hint))
	}
	return theirs, nil
}

// read fills b, first with the bytes that were read ahead. hint is the vigil's, if that ended.
func (c *Conn) read(ctx context.Context, b []byte) (n int, hint string, err error) {
	n = copy(b, c.early)
	c.early = c.early[n:]
	for {
		m, err := io.ReadFull(c.nc, b[n:])
		n += m
		if c.vigil == nil || !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return n, "", err
		}
		if hint := c.vigil.Ended(); hint != "" {
			return n, hint, err
		}
		c.setDeadline(ctx, c.vigil.Step)
		if ctx.Err() != nil { // cancelled in between, which this deadline has undone
			return n, "", err
		}
	}
}

// fail stores an error: after it the streams are out of step, and any further exchange would return
// garbage.
func (c *Conn) fail(err error) error {
	c.failed = err
	return err
}

// broken explains a failed read or write.
func (c *Conn) broken(ctx context.Context, what string, got []byte, want int, err error, hint string) error {
	e := &Error{Peer: c.Peer(), Exchange: what, Got: got, Err: err}
	switch {
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s: %s: %w", c.Peer(), what, context.Cause(ctx))
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.Kind, e.Err = ErrTimeout, nil
		e.Hint = cmp.Or(hint, fmt.Sprintf("nothing arrived for %v: it hangs, is stopped, or waits for something else: compare both command lines, which must ask for the same test with the same -n, -q, -b and -a", c.timeout))
	default:
		e.Kind = ErrClosed
		e.Hint = "the reason is in the other side's message"
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			e.Err = nil
		}
	}
	if len(got) > 0 {
		e.partial(got, want)
	}
	return e
}

// partial is for a message that arrived only in part.
func (e *Error) partial(got []byte, want int) {
	if hint, kind := diagnose(got, want); kind != nil {
		e.Kind, e.Hint = kind, hint
		return
	}
	if len(got) == plainParamsBytes && want == paramsBytes {
		e.Hint = "its perftest was built without mlx5dv, so its parameter block is shorter: build it with rdma-core's mlx5dv.h"
		return
	}
	e.Hint = fmt.Sprintf("only %d of %d bytes arrived; %s", len(got), want, e.Hint)
}

// mismatch is for a complete message that is not the expected one.
func (c *Conn) mismatch(what string, got []byte, err error) error {
	e := &Error{Peer: c.Peer(), Exchange: what, Kind: ErrMismatch, Got: got, Err: err}
	if hint, kind := diagnose(got, len(got)); kind != nil {
		e.Kind, e.Hint, e.Err = kind, hint, nil
	} else {
		e.Hint = "compare both command lines: which test, -q, -b, -a and -D"
	}
	return c.fail(e)
}
