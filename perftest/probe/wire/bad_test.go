package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// words are a report's in wire form.
func words(v ...uint64) (b []byte) {
	for _, w := range v {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	return b
}

// TestBadPeers: every peer that does not play its part gives an error of the
// right kind, which names the exchange and the likely cause.
func TestBadPeers(t *testing.T) {
	long := func(t *testing.T) []byte { return marshal(t, record(t, Client)) }
	validated := func(t *testing.T) []byte {
		b := long(t)
		return append(append(append([]byte{}, b[:gidAt]...), "00007f0000000000:"...), b[gidAt:]...)
	}
	helloOf := func(ctx context.Context, c *Conn) error { _, _, err := c.Hello(ctx, hello, false); return err }
	swap := func(gid bool) func(context.Context, *Conn) error {
		return func(ctx context.Context, c *Conn) error {
			_, err := c.SwapFor(ctx, "QP 1's address record", Address{HasGID: gid})
			return err
		}
	}
	report := func(ctx context.Context, c *Conn) error { _, err := c.SwapReport(ctx, Report{}); return err }
	send := func(b ...[]byte) func(*testing.T, *net.TCPConn) {
		return func(_ *testing.T, nc *net.TCPConn) { scripted(nc, b...) }
	}
	sendThen := func(f func(*testing.T) []byte, after func(*net.TCPConn)) func(*testing.T, *net.TCPConn) {
		return func(t *testing.T, nc *net.TCPConn) { scripted(nc, f(t)); after(nc) }
	}
	stay, leave := func(*net.TCPConn) {}, func(nc *net.TCPConn) { nc.Close() }
	short := func(t *testing.T) []byte { return marshal(t, Address{}) }
	for _, tt := range []struct {
		name string
		peer func(*testing.T, *net.TCPConn)
		do   func(context.Context, *Conn) error
		kind error
		want string
	}{
		{"silent", func(*testing.T, *net.TCPConn) {}, helloOf, ErrTimeout, "the protocol version: the peer did not answer in time"},
		{"closes", func(_ *testing.T, nc *net.TCPConn) { nc.Close() }, helloOf, ErrClosed, "the other side's message"},
		{"resets", func(_ *testing.T, nc *net.TCPConn) { _ = nc.SetLinger(0); nc.Close() }, helloOf, ErrClosed, "connection reset by peer"},
		{"HTTP server", send([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")), helloOf, ErrGarbage, "this is an HTTP server's answer; received \"HTTP/1.1 400 Bad"},
		{"SSH server", send([]byte("SSH-2.0-OpenSSH_9.2p1\r\n")), helloOf, ErrGarbage, "this is an SSH greeting"},
		{"TLS", send(append([]byte("\x16\x03\x01\x02\x00\x01"), make([]byte, 20)...)), helloOf, ErrGarbage, "this is a TLS hello"},
		{"binary", send(bytes.Repeat([]byte{0xff}, 16)), helloOf, ErrGarbage, "another service at this port"},
		{"too old", send(version("5.60")), helloOf, ErrVersion, "it announces 5.60, and 5.70 is the oldest"},
		{"no NUL", send([]byte("6.06606060606060")), helloOf, ErrGarbage, "the protocol version"},
		{"cycle 0", send(version("6.06"), make([]byte, 4)), helloOf, ErrGarbage, "the cycle buffer's size"},
		{"cycle of gigabytes", send(version("6.06"), []byte{0x7f, 0, 0, 0}), helloOf, ErrGarbage, "2130706432 is not between"},
		{"no MTU", send(version("6.06"), []byte{0, 0, 16, 0}, []byte{0, 0, 0, 64}, []byte("00")), helloOf, ErrMismatch, "raw Ethernet"},
		{"half a record", sendThen(func(t *testing.T) []byte { return long(t)[:50] }, stay), swap(true), ErrTimeout, "QP 1's address record: the peer did not answer in time: only 50 of 108 bytes arrived"},
		{"half a record and gone", sendThen(func(t *testing.T) []byte { return long(t)[:50] }, leave), swap(true), ErrClosed, "only 50 of 108 bytes arrived"},
		{"short for long", sendThen(short, stay), swap(true), ErrMismatch, hintNoGID},
		{"short for long and gone", sendThen(short, leave), swap(true), ErrMismatch, hintNoGID},
		{"long for short", sendThen(long, stay), swap(false), ErrMismatch, hintGID},
		{"validated for long", sendThen(validated, stay), swap(true), ErrMismatch, hintValidated},
		{"validated for short", sendThen(func(t *testing.T) []byte {
			return []byte("0000:0001:000012:f31695:000002e7:000055d2af833000:000055d2af833000:00000000\x00")
		}, stay), swap(false), ErrMismatch, hintValidated},
		{"report for record", sendThen(func(*testing.T) []byte { return append(words(65536, 20, 1, 2, 3), make([]byte, 68)...) }, stay), swap(true), ErrMismatch, hintReport},
		{"first word of a report", sendThen(func(*testing.T) []byte { return words(65536) }, stay), swap(true), ErrMismatch, hintReport},
		{"block for record", sendThen(func(t *testing.T) []byte { return block(t, params()) }, stay), swap(true), ErrMismatch, hintParams},
		{"upper case", sendThen(func(t *testing.T) []byte { return bytes.ToUpper(long(t)) }, stay), swap(true), ErrMismatch, "is not 6 hex digits"},
		{"record for report", sendThen(long, stay), report, ErrMismatch, hintRecord},
		{"farewell for record", sendThen(func(*testing.T) []byte { return bye }, leave), swap(true), ErrMismatch, hintBye},
		{"block too small", sendThen(func(t *testing.T) []byte { return block(t, params())[:312] }, stay), func(ctx context.Context, c *Conn) error { _, err := c.SwapParams(ctx, params()); return err }, ErrTimeout, "built without mlx5dv"},
		{"record for block", sendThen(func(t *testing.T) []byte { return bytes.Repeat(long(t), 3) }, stay), func(ctx context.Context, c *Conn) error { _, err := c.SwapParams(ctx, params()); return err }, ErrMismatch, "the parameter block"},
	} {
		for _, role := range []Role{Client, Server} {
			t.Run(tt.name+"/"+role.String(), func(t *testing.T) {
				t.Parallel()
				ours, theirs := tcpPair(t)
				tt.peer(t, theirs)
				if tt.name == "resets" {
					time.Sleep(20 * time.Millisecond) // until it has arrived
				}
				err := tt.do(soon(t), NewConn(ours, role, Options{Timeout: 2 * time.Second}))
				var e *Error
				if !errors.Is(err, tt.kind) || err == nil {
					t.Fatalf("error %v; want %v", err, tt.kind)
				}
				if tt.name == "resets" && role == Client {
					return // broken pipe or reset, as it happens
				}
				if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %q; want %q in it", err, tt.want)
				}
				if !errors.As(err, &e) || e.Peer != ours.RemoteAddr().String() {
					t.Errorf("error %#v does not name the peer", err)
				}
			})
		}
	}
}

// TestStopsReading: a peer that reads nothing does not hang us.
func TestStopsReading(t *testing.T) {
	a, _ := net.Pipe() // without a buffer: a write waits for its reader
	_, err := NewConn(a, Client, Options{Timeout: 50 * time.Millisecond}).SwapFor(t.Context(), "an address record", Address{})
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("error %v", err)
	}
}

// TestCancel: a context ends a wait at once, with its cause.
func TestCancel(t *testing.T) {
	cause := errors.New("the measurement failed")
	wait := func(f func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
		if err := f(ctx); !errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
	}
	ours, _ := tcpPair(t)
	wait(func(ctx context.Context) error {
		_, err := NewConn(ours, Server, Options{}).SwapFor(ctx, "an address record", Address{})
		return err
	})
	ln, err := Listen(t.Context(), "127.0.0.1:0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	wait(func(ctx context.Context) error { _, err := ln.Accept(ctx); return err })
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := port.Addr().String()
	port.Close()
	wait(func(ctx context.Context) error {
		_, err := Dial(ctx, addr, Options{Retry: time.Minute})
		return err
	})
}

// TestAcceptPassesScanners: whatever else connects is told and turned away,
// and the client is served meanwhile.
func TestAcceptPassesScanners(t *testing.T) {
	var mu sync.Mutex
	var rejected []string
	ln, err := Listen(t.Context(), "127.0.0.1:0", Options{HelloTimeout: 300 * time.Millisecond, Rejected: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		rejected = append(rejected, err.Error())
	}})
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	open := func(text string) net.Conn {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_, _ = io.WriteString(nc, text)
		return nc
	}
	got := make(chan *Conn, 1)
	go func() {
		c, err := ln.Accept(soon(t))
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	open("").Close()
	open("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	open("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
	open("6.0")
	for range 2 * candidates {
		open("") // neither sends nor closes
	}
	c, err := Dial(soon(t), addr, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { _, _, _ = c.Hello(soon(t), hello, false) }()
	server := <-got
	if server == nil {
		t.FailNow()
	}
	defer server.Close()
	if _, _, err := server.Hello(soon(t), hello, false); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the listener is open still: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(rejected, "\n")
	for _, want := range []string{"this is an HTTP request", "this is a TLS hello", "connected and closed", "sent nothing that could be a version"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q among the rejected:\n%s", want, all)
		}
	}
}

// TestDialErrors say what to do.
func TestDialErrors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if _, err := Listen(t.Context(), addr, Options{}); err == nil || !strings.Contains(err.Error(), "another server runs there") {
		t.Errorf("a port in use: %v", err)
	}
	ln.Close()
	if _, err := Dial(t.Context(), addr, Options{}); !errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), "start the server first") {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := Dial(t.Context(), addr, Options{Source: "ib0"}); err == nil || !strings.Contains(err.Error(), `"ib0" is no IP address`) {
		t.Errorf("a bad source: %v", err)
	}
	for want, err := range map[string]error{
		"a firewall drops packets":        os.ErrDeadlineExceeded,
		"the host is there and refuses":   syscall.ECONNREFUSED,
		"no host answers to this address": syscall.EHOSTUNREACH,
		"does not resolve on this host":   &net.DNSError{Name: "x", IsNotFound: true},
		"this host's DNS does not answer": &net.DNSError{Name: "x", IsTimeout: true},
		"is the route there":              syscall.EPERM,
	} {
		if got := noServer("x:1", fmt.Errorf("dial: %w", err)); !errors.Is(got, ErrNoServer) || !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %v; want %q", err, got, want)
		}
	}
}

// TestDialRetries until somebody listens.
func TestDialRetries(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	go func() {
		time.Sleep(150 * time.Millisecond)
		l, err := Listen(t.Context(), addr, Options{})
		if err != nil {
			return
		}
		_, _ = l.Accept(soon(t))
	}()
	c, err := Dial(soon(t), addr, Options{Retry: 5 * time.Minute, Source: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.nc.Write(version("6.06"))
	c.Close()
}

// TestWatch: the peer's end is noticed during a measurement, also behind data
// that nobody has read, and takes nothing from the stream.
func TestWatch(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn){
		"closes":        func(nc *net.TCPConn) { nc.Close() },
		"resets":        func(nc *net.TCPConn) { _ = nc.SetLinger(0); nc.Close() },
		"data, then":    func(nc *net.TCPConn) { scripted(nc, make([]byte, 8)); nc.Close() },
		"data, a while": func(nc *net.TCPConn) { scripted(nc, make([]byte, 8)); time.Sleep(20 * time.Millisecond); nc.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := tcpPair(t)
			c := NewConn(ours, Server, Options{})
			ctx, stop := c.Watch(t.Context())
			leave(theirs)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Minute):
				t.Fatal("nothing was noticed")
			}
			if err := stop(); !errors.Is(err, ErrClosed) || !errors.Is(context.Cause(ctx), ErrClosed) || stop() != err {
				t.Errorf("stop = %v, cause %v", err, context.Cause(ctx))
			}
		})
	}
}

// TestWatchStops: without an end nothing is reported, and the next exchange
// has all of its data.
func TestWatchStops(t *testing.T) {
	ours, theirs := tcpPair(t)
	c := NewConn(ours, Server, Options{})
	for range 3 {
		ctx, stop := c.Watch(t.Context())
		scripted(theirs, marshal(t, Address{QPN: 7}))
		time.Sleep(5 * time.Millisecond)
		if err := context.Cause(ctx); err != nil {
			t.Fatalf("cause %v", err)
		}
		if err := stop(); err != nil {
			t.Fatalf("stop = %v", err)
		}
		if a, err := c.SwapFor(soon(t), "an address record", Address{}); err != nil || a.QPN != 7 {
			t.Fatalf("Swap = %+v, %v", a, err)
		}
	}
}

// TestAwaitClose: the peer's end, or the grace.
func TestAwaitClose(t *testing.T) {
	ours, theirs := tcpPair(t)
	go func() { scripted(theirs, bye); theirs.Close() }()
	if !NewConn(ours, Client, Options{}).AwaitClose(t.Context(), 5*time.Second) {
		t.Error("the peer's end was not noticed")
	}
	ours, _ = tcpPair(t)
	if NewConn(ours, Client, Options{}).AwaitClose(t.Context(), 20*time.Millisecond) {
		t.Error("an end that was none")
	}
}
