package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Kinds of errors, for errors.Is. All except ErrNoServer are wrapped in an *Error.
var (
	// ErrGarbage: the received bytes are not perftest's protocol.
	ErrGarbage = errors.New("the peer does not speak perftest's protocol")
	// ErrVersion: the peer is a perftest of an unsupported release.
	ErrVersion = errors.New("the peer's release of perftest is too old")
	// ErrClosed: the peer closed or reset the connection.
	ErrClosed = errors.New("the peer closed the connection")
	// ErrTimeout: the peer is connected, but did not send the expected message in time.
	ErrTimeout = errors.New("the peer did not answer in time")
	// ErrMismatch: the two sides were started with different options.
	ErrMismatch = errors.New("the two sides were started with different options")
	// ErrNoServer: no server listens at the address.
	ErrNoServer = errors.New("no server answers")
	// ErrLocal: a message of ours cannot be sent, because a value does not fit.
	ErrLocal = errors.New("a value does not fit the message")
)

// An Error is a failed exchange.
type Error struct {
	Peer     string // the peer's address
	Exchange string // what was being exchanged: "QP 1's address record"
	Kind     error  // one of the sentinels above
	Got      []byte // the part of the message that had arrived
	Hint     string // the probable cause and what to do about it
	Err      error  // the underlying error, such as a network error; may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %v", e.Peer, e.Exchange, e.Kind)
	if e.Err != nil {
		fmt.Fprintf(&b, " (%v)", e.Err)
	}
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	if len(e.Got) > 0 {
		fmt.Fprintf(&b, "; received %s", printable(e.Got))
	}
	return b.String()
}

// Unwrap returns both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// printable formats bytes as text if they are text, otherwise as hex, up to one line.
func printable(b []byte) string {
	const most = 48
	text := bytes.TrimRight(b, "\x00")
	for _, c := range text {
		if c < ' ' && c != '\r' && c != '\n' || c > '~' {
			return cut(fmt.Sprintf("% x", b[:min(len(b), most/2)]), len(b) > most/2)
		}
	}
	if len(text) == 0 {
		return fmt.Sprintf("%d zero bytes", len(b))
	}
	return cut(fmt.Sprintf("%q", text[:min(len(text), most)]), len(text) > most)
}

func cut(s string, was bool) string {
	if was {
		return s + "…"
	}
	return s
}

// foreign names the protocol of the bytes, for the common ones: scanners, health checks, and other
// services at the port.
func foreign(b []byte) string {
	for _, p := range []struct{ prefix, name string }{
		{"GET ", "an HTTP request"}, {"HEAD ", "an HTTP request"}, {"POST ", "an HTTP request"}, {"OPTIONS ", "an HTTP request"},
		{"CONNECT ", "an HTTP request"}, {"PRI * HTTP", "an HTTP/2 request"}, {"HTTP/", "an HTTP server's answer"},
		{"SSH-", "an SSH greeting"}, {"\x16\x03", "a TLS hello"}, {"\x15\x03", "a TLS alert"},
		{"220 ", "a mail or FTP server's greeting"}, {"\x03\x00\x00", "a remote desktop request"},
	} {
		n := min(len(b), len(p.prefix))
		if n >= 2 && string(b[:n]) == p.prefix[:n] {
			return p.name
		}
	}
	return ""
}
