package meet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// open opens a gate whose guests say hello, and returns where it is.
func open(t *testing.T, change func(g *Gate)) (*Gate, string) {
	t.Helper()
	g := &Gate{Protocol: protocol, Secret: []byte("a secret"), Name: "the test", Logf: t.Logf}
	g.Enter = func(c net.Conn, _, _ []byte) { WriteFrame(c, 1, []byte("hello")); c.Close() }
	if change != nil {
		change(g)
	}
	a, err := g.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g, a.String()
}

func caller() *Caller {
	return &Caller{Protocol: protocol, Secret: []byte("a secret"), Claim: []byte("me 1")}
}

// heard is what a gate's guest hears.
func heard(ctx context.Context, c *Caller, addrs ...string) error {
	conn, _, err := c.Call(ctx, addrs)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, p, err := ReadFrame(conn, 100); err != nil || string(p) != "hello" {
		return fmt.Errorf("it says %q, %v", p, err)
	}
	return nil
}

// TestVerdict: a caller that knows the secret and is not expected hears why, and does
// not come again.
func TestVerdict(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, why := range []string{"", "it is rank 9", "\x1b[31m", long} {
		var asked atomic.Int64
		_, addr := open(t, func(g *Gate) {
			g.Admit = func(claim []byte) error {
				asked.Add(1)
				if why == "" && string(claim) == "me 1" {
					return nil
				}
				return errors.New(why)
			}
		})
		err := heard(t.Context(), caller(), addr)
		switch {
		case why == "" && err != nil, asked.Load() != 1:
			t.Errorf("%v, after %d attempts", err, asked.Load())
		case why != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), fmt.Sprintf("%q", why)[1:5]) || strings.ContainsRune(err.Error(), 0x1b)):
			t.Errorf("%v; want %.20q", err, why)
		}
	}
}

// TestSlowVerdict: a caller does not give up, and come twice, when the listener has
// proved itself and takes its time.
func TestSlowVerdict(t *testing.T) {
	var asked atomic.Int64
	_, addr := open(t, func(g *Gate) {
		g.Admit = func([]byte) error {
			asked.Add(1)
			time.Sleep(500 * time.Millisecond)
			return nil
		}
	})
	c := caller()
	c.Patience = 250 * time.Millisecond
	if err := heard(t.Context(), c, addr); err != nil || asked.Load() != 1 {
		t.Errorf("%v, after %d attempts", err, asked.Load())
	}
}

// TestSquatters: connections that say nothing, more than may be in the handshake at
// once, keep nobody out, and the oldest of them go.
func TestSquatters(t *testing.T) {
	g, addr := open(t, nil)
	var squatters []net.Conn
	for range maxUnknown + 100 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		squatters = append(squatters, c)
	}
	if err := heard(t.Context(), caller(), addr); err != nil {
		t.Error(err)
	}
	g.mu.Lock()
	n := len(g.unknown)
	g.mu.Unlock()
	if n > maxUnknown {
		t.Errorf("%d connections are in the handshake; at most %d are to be", n, maxUnknown)
	}
	for i, c := range squatters[:100] {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("squatter %d: %v; want to be hung up on", i, err)
		}
	}
	// Close does not wait for those that are left.
	done := make(chan struct{})
	go func() { g.Close(); close(done) }()
	<-done
	for i, c := range squatters {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("squatter %d: %v; want to be hung up on", i, err)
		}
	}
}

// TestPatience: a caller that says nothing does not stay.
func TestPatience(t *testing.T) {
	var lines atomic.Int64
	_, addr := open(t, func(g *Gate) {
		g.Patience = 10 * time.Millisecond
		g.Logf = func(string, ...any) { lines.Add(1) }
	})
	const n = 40
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%v; want to be hung up on", err)
		}
	}
	if got := lines.Load(); got < 10 || got > 12 {
		t.Errorf("%d lines are logged about %d strangers; want 10, and one when they are 16 and 32", got, n)
	}
}

// TestCall: when a caller calls again, and when not.
func TestCall(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	_, here := open(t, nil)
	_, other := open(t, func(g *Gate) { g.Secret = []byte("another") })

	if err := heard(t.Context(), caller(), nobody, other, here); err != nil {
		t.Errorf("the third of three addresses: %v", err)
	}
	if err := heard(t.Context(), caller(), other); !errors.Is(err, ErrRefused) {
		t.Errorf("another secret: %v; want %v", err, ErrRefused)
	}
	if err := heard(t.Context(), caller(), nobody); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody: %v; want %v", err, syscall.ECONNREFUSED)
	}

	// One that is late is waited for, also where another was there before.
	for _, before := range []string{"nobody", "another"} {
		late := caller()
		late.Late = true
		first := &Gate{Protocol: protocol, Secret: []byte("another"), Name: "another", Logf: t.Logf}
		addr := nobody
		if before == "another" {
			a, err := first.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr = a.String()
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := heard(t.Context(), late, addr); err != nil {
				t.Errorf("%s, and then the late one: %v", before, err)
			}
		})
		time.Sleep(50 * time.Millisecond)
		first.Close()
		g := &Gate{Protocol: protocol, Secret: []byte("a secret"), Name: "the late one", Enter: func(c net.Conn, _, _ []byte) { WriteFrame(c, 1, []byte("hello")); c.Close() }}
		if _, err := g.Listen(addr); err != nil {
			t.Error(err)
		}
		wg.Wait()
		g.Close()
	}

	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, errors.New("no more patience"))
	defer cancel()
	late := caller()
	late.Late = true
	if err := heard(ctx, late, nobody); !says(err, "no more patience (last attempt: dial tcp ") {
		t.Errorf("nobody, for long: %v", err)
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	if _, _, err := caller().Dial(ctx, mute.Addr().String()); err == nil {
		t.Error("a listener that says nothing lets a caller in")
	}
}
