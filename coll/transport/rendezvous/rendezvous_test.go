package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

var testKey = []byte("the key of the tests, 32 bytes..")

// A guest is a connection that was admitted.
type guest struct {
	peer, channel int
	c             net.Conn
}

// listen opens a rank's point, closed with the test.
func listen(t *testing.T, rank int, set func(*Options)) (*Point, chan guest) {
	t.Helper()
	guests := make(chan guest, 10)
	o := Options{Rank: rank, Comm: []byte("test"), Key: testKey, Logf: t.Logf, Admit: func(peer, channel int, c net.Conn) { guests <- guest{peer, channel, c} }}
	if set != nil {
		set(&o)
	}
	p, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, guests
}

func TestMeet(t *testing.T) {
	for _, addrs := range [][]netip.Addr{nil, {netip.MustParseAddr("::1")}, {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.2")}} {
		a, _ := listen(t, 3, func(o *Options) { o.Addrs = addrs })
		b, guests := listen(t, 5, func(o *Options) { o.Addrs = addrs })
		if err := a.Reach(b.Info()); err != nil {
			t.Errorf("Reach: %v", err)
		}
		c, err := a.Dial(t.Context(), 5, b.Info(), 7)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		g := <-guests
		defer g.c.Close()
		if g.peer != 3 || g.channel != 7 {
			t.Errorf("rank %d, channel %d is there; want rank 3, channel 7", g.peer, g.channel)
		}
		for _, way := range [][2]net.Conn{{c, g.c}, {g.c, c}} {
			var got [5]byte
			if _, err := way[0].Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(way[1], got[:]); err != nil || string(got[:]) != "hello" {
				t.Errorf("read %q, %v", got, err)
			}
		}
	}
}

// TestStrangers: who is of another communicator, or wants another rank, is
// turned away, and knows it.
func TestStrangers(t *testing.T) {
	b, guests := listen(t, 1, nil)
	for name, set := range map[string]func(*Options){
		"another key":          func(o *Options) { o.Key = bytes.Repeat([]byte("x"), 16) },
		"another communicator": func(o *Options) { o.Comm = []byte("other") },
		"the same rank":        func(o *Options) { o.Rank = 1 },
	} {
		a, _ := listen(t, 0, set)
		if c, err := a.Dial(t.Context(), 1, b.Info(), 0); err == nil {
			c.Close()
			t.Errorf("%s: Dial succeeds", name)
		}
	}
	a, _ := listen(t, 0, nil)
	if c, err := a.Dial(t.Context(), 2, b.Info(), 0); err == nil {
		c.Close()
		t.Error("Dial of another rank succeeds")
	}
	c, err := net.Dial("tcp", b.Info())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.0\r\n%s\r\n\r\n", strings.Repeat("x", 100))
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of a stranger stays: %v", err)
	}
	if len(guests) != 0 {
		t.Error("a stranger was admitted")
	}
}

// TestMimic: an acceptor that does not have the key is found out.
func TestMimic(t *testing.T) {
	o := Options{Rank: 0, Key: testKey}
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		defer there.Close()
		other := Options{Rank: 1, Key: bytes.Repeat([]byte("x"), 16)}
		challenge := append([]byte(magic), make([]byte, nonceSize)...)
		there.Write(challenge)
		var b [bodySize + macSize]byte
		io.ReadFull(there, b[:])
		there.Write(other.mac("accept", challenge, b[:bodySize]))
	}()
	if err := o.greet(here, hello{0, 1, 0}); err == nil || !strings.Contains(err.Error(), "not of this communicator") {
		t.Errorf("greet: %v", err)
	}
}

func TestReach(t *testing.T) {
	four, _ := listen(t, 0, nil)
	six, _ := listen(t, 1, func(o *Options) { o.Addrs = []netip.Addr{netip.MustParseAddr("::1")} })
	for info, want := range map[string]string{
		six.Info():        "no pair of one family",
		"":                "",
		"127.0.0.1":       "",
		"127.0.0.1:0":     "not in its plain form",
		"[fe80::1%lo]:99": "not in its plain form",
	} {
		if err := four.Reach(info); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Reach(%q) = %v; want an error with %q", info, err, want)
		}
	}
}

// TestDialEnds: with its context, with its point, and when nobody listens.
func TestDialEnds(t *testing.T) {
	a, _ := listen(t, 0, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0") // says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Dial(ctx, 1, l.Addr().String(), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial with a context that ends: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, a.Close)
	if _, err := a.Dial(t.Context(), 1, l.Addr().String(), 0); err == nil {
		t.Error("Dial of a closed point succeeds")
	}
	b, _ := listen(t, 0, nil)
	gone := l.Addr().String()
	l.Close()
	if _, err := b.Dial(t.Context(), 1, gone, 0); err == nil || !strings.Contains(err.Error(), "rank 1 cannot be reached at "+gone) {
		t.Errorf("Dial where nobody listens: %v", err)
	}
}

// TestCloseHangsUp: Close does not wait for strangers that say nothing.
func TestCloseHangsUp(t *testing.T) {
	p, _ := listen(t, 0, nil)
	for range 5 {
		c, err := net.Dial("tcp", p.Info())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	time.Sleep(20 * time.Millisecond)
	start := time.Now()
	p.Close()
	if d := time.Since(start); d >= helloPatience {
		t.Errorf("Close took %v", d)
	}
}

func TestOptions(t *testing.T) {
	for want, spoil := range map[string]func(*Options){
		"rank -1":        func(o *Options) { o.Rank = -1 },
		"the key has 3":  func(o *Options) { o.Key = o.Key[:3] },
		"nobody":         func(o *Options) { o.Admit = nil },
		"no address":     func(o *Options) { o.Addrs = []netip.Addr{netip.IPv6Unspecified()} },
		"65 addresses":   func(o *Options) { o.Addrs = make([]netip.Addr, 65) },
		"listen on 192.": func(o *Options) { o.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.77")} },
	} {
		o := Options{Key: testKey, Admit: func(int, int, net.Conn) {}}
		spoil(&o)
		p, err := Listen(o)
		if err == nil {
			p.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Listen = %v; want an error with %q", err, want)
		}
	}
}
