package oci

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A stallError says that a registry accepted a connection and then sent or received nothing.
type stallError struct{ After time.Duration }

func (e *stallError) Error() string { return fmt.Sprintf("no byte moved for %v", e.After) }

// Timeout makes it a temporary network error.
func (e *stallError) Timeout() bool { return true }

// roundTrip sends a request and aborts it if no byte of the request or of its answer moves for the
// stall time. The total time is not limited: a layer may take hours.
func roundTrip(base http.RoundTripper, req *http.Request, stall time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	w := &watch{stall: stall, cancel: cancel}
	w.timer = time.AfterFunc(stall, func() { cancel(&stallError{stall}) })
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &watched{req.Body, w, ctx, false}
	}
	resp, err := base.RoundTrip(req)
	w.timer.Stop() // the timer runs again while the answer's body is read
	if err != nil {
		w.end()
		return resp, because(ctx, err)
	}
	resp.Body = &watched{resp.Body, w, ctx, true}
	return resp, nil
}

// because replaces "context canceled" if the stall was the cause.
func because(ctx context.Context, err error) error {
	if s, ok := context.Cause(ctx).(*stallError); ok {
		return s
	}
	return err
}

type watch struct {
	stall  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func (w *watch) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// watched is a request or response body. Closing the response body ends the watch.
type watched struct {
	io.ReadCloser
	*watch
	ctx    context.Context
	answer bool
}

// Read resets the timer. A Read of a response waits for the registry. A Read of a request is called
// when the registry has accepted the previous bytes.
func (b *watched) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	if b.answer {
		b.timer.Stop()
	}
	if err != nil && err != io.EOF {
		err = because(b.ctx, err)
	}
	return n, err
}

func (b *watched) Close() error {
	err := b.ReadCloser.Close()
	if b.answer {
		b.end()
	}
	return err
}
