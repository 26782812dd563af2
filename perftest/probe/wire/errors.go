package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// What went wrong, for errors.Is. All but ErrNoServer come wrapped in an
// *Error.
var (
	// ErrGarbage: what arrived is not perftest's protocol at all.
	ErrGarbage = errors.New("the peer does not speak perftest's protocol")
	// ErrVersion: the peer is a perftest of a release that cannot be spoken to.
	ErrVersion = errors.New("the peer's release of perftest is too old")
	// ErrClosed: the peer closed or reset the connection.
	ErrClosed = errors.New("the peer closed the connection")
	// ErrTimeout: the peer is there, but what was awaited did not come.
	ErrTimeout = errors.New("the peer did not answer in time")
	// ErrMismatch: the two sides were started with different options.
	ErrMismatch = errors.New("the two sides were started with different options")
	// ErrNoServer: nobody listens at the address.
	ErrNoServer = errors.New("no server answers")
	// ErrLocal: a message of ours cannot be sent, since a value does not fit it.
	ErrLocal = errors.New("a value does not fit the message")
)

// An Error is a failed exchange.
type Error struct {
	Peer     string // the peer's address
	Exchange string // what was being exchanged: "QP 1's address record"
	Kind     error  // one of the sentinels above
	Got      []byte // what had arrived of the message
	Hint     string // the probable cause and what to do about it
	Err      error  // the cause below, such as a network error; may be nil
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

// Unwrap gives both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// printable shows bytes as text where they are, otherwise as hex; not more
// than a line of them.
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

// foreign names the protocol that bytes are of, for those that one meets:
// scanners, health checks, and services at the port that was meant for us.
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
