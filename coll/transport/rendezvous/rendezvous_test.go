package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/meet"
)

var testKey = []byte("the key of the tests, 32 bytes..")

// A guest is a connection that was admitted.
type guest struct {
	from Stream
	c    net.Conn
}

// listen opens a rank's point, closed with the test.
func listen(t *testing.T, rank int, set func(*Options)) (*Point, chan guest) {
	t.Helper()
	guests := make(chan guest, 10)
	o := Options{Rank: rank, Comm: []byte("test"), Key: testKey, Network: "test", MaxMessage: 1, Logf: t.Logf, Admit: func(from Stream, c net.Conn) { guests <- guest{from, c} }}
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
		if err := a.Reach(5, b.Info()); err != nil {
			t.Errorf("Reach: %v", err)
		}
		c, err := a.Dial(t.Context(), b.Addrs(), Stream{Peer: 5, Channel: 7, Index: 2, Count: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		g := <-guests
		defer g.c.Close()
		if want := (Stream{Peer: 3, Channel: 7, Index: 2, Count: 4}); g.from != want {
			t.Errorf("%+v is there; want %+v", g.from, want)
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

// TestStrangers: a rank of another communicator, or one that wants another rank, is
// turned away, and knows why.
func TestStrangers(t *testing.T) {
	b, guests := listen(t, 1, nil)
	for _, tt := range []struct {
		name string
		set  func(*Options)
		s    Stream
		want string
	}{
		{"another key", func(o *Options) { o.Key = bytes.Repeat([]byte("x"), 16) }, Stream{Peer: 1, Count: 1}, "does not know the secret"},
		{"another communicator", func(o *Options) { o.Comm = []byte("other") }, Stream{Peer: 1, Count: 1}, "does not know the secret"},
		{"the same rank", func(o *Options) { o.Rank = 1 }, Stream{Peer: 1, Count: 1}, "it is from rank 1 to rank 1; this is rank 1"},
		{"another rank's", nil, Stream{Peer: 2, Count: 1}, "it is from rank 0 to rank 2; this is rank 1"},
		{"no streams", nil, Stream{Peer: 1}, "stream 0 of 0"},
		{"stream 4 of 4", nil, Stream{Peer: 1, Index: 4, Count: 4}, "stream 4 of 4"},
		{"too many streams", nil, Stream{Peer: 1, Count: MaxStreams + 1}, "stream 0 of 1025"},
		{"a channel that cannot be", nil, Stream{Peer: 1, Channel: -1, Count: 1}, "field 2 of what it wants"},
	} {
		a, _ := listen(t, 0, tt.set)
		c, err := a.Dial(t.Context(), b.Addrs(), tt.s)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, meet.ErrRefused) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
	if len(guests) != 0 {
		t.Error("a stranger was admitted")
	}
}

// FuzzClaim: a claim that is taken is written the same again.
func FuzzClaim(f *testing.F) {
	f.Add(Stream{Peer: 2, Channel: 3, Index: 4, Count: 5}.claim(1))
	f.Add(make([]byte, protocol.Claim))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != protocol.Claim {
			return
		}
		if s, err := parseClaim(b, 2); err == nil {
			from := s.Peer
			if s.Peer = 2; !bytes.Equal(s.claim(from), b) {
				t.Errorf("%x is accepted, and is %x when written again", b, s.claim(from))
			}
		}
	})
}

// TestAddressesThatDoNotWork: an address that is not there, or not yet, is left out, as are those
// beyond the limit.
func TestAddressesThatDoNotWork(t *testing.T) {
	p, _ := listen(t, 0, func(o *Options) {
		o.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("2001:db8::77"), netip.MustParseAddr("127.0.0.2")}
	})
	var used []string
	for _, a := range p.Addrs() {
		used = append(used, a.Addr().String())
	}
	if want := []string{"127.0.0.1", "127.0.0.2"}; !slices.Equal(used, want) || fmt.Sprint(p.local) != fmt.Sprint(want) {
		t.Errorf("it listens on %v and calls from %v; want %v", used, p.local, want)
	}
	p, _ = listen(t, 0, func(o *Options) {
		for i := range 3 * maxAddrs {
			o.Addrs = append(o.Addrs, netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}))
		}
	})
	if n := len(p.Addrs()); n != maxAddrs || p.Reach(1, p.Info()) != nil {
		t.Errorf("of %d addresses it uses %d: %v", 3*maxAddrs, n, p.Reach(1, p.Info()))
	}
}

// silentAddr returns an address at which connections are never established: it listens, and its
// queue is full.
func silentAddr(t *testing.T, ip [4]byte) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: ip}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4(ip), uint16(name.(*unix.SockaddrInet4).Port))
	for range 100 {
		c, err := net.DialTimeout("tcp", at.String(), 100*time.Millisecond)
		if err != nil {
			return at
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatalf("%v takes 100 connections that nobody accepts", at)
	return at
}

// TestSilentAddresses: pairs of addresses that are silent do not add up, and later streams do not
// try them first.
func TestSilentAddresses(t *testing.T) {
	a, _ := listen(t, 3, nil)
	b, guests := listen(t, 5, nil)
	var to Addrs
	for i := range 12 {
		to = append(to, silentAddr(t, [4]byte{127, 0, 2, byte(i)}))
	}
	to = append(to, b.Addrs()...)
	ctx, cancel := context.WithTimeout(t.Context(), 6*dialPatience) // half of what the pairs take in turn
	defer cancel()
	for index := range to {
		c, err := a.Dial(ctx, to, Stream{Peer: 5, Index: index, Count: len(to)})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		(<-guests).c.Close()
		if first := a.inTurn(ways(a.local, to), 0)[0]; first.to != b.Addrs()[0] {
			t.Fatalf("the next stream tries %v first", first)
		}
	}
}

// TestBadAddresses: a pair of addresses that did not connect is tried last.
func TestBadAddresses(t *testing.T) {
	p, _ := listen(t, 0, func(o *Options) {
		o.Addrs = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	})
	remote, err := parseAddrs("127.0.0.3:1,127.0.0.4:2")
	if err != nil {
		t.Fatal(err)
	}
	list := ways(p.local, remote)
	p.bad[list[1]] = true
	for index, want := range [][]int{{0, 2, 3, 1}, {2, 3, 0, 1}, {2, 3, 0, 1}, {3, 0, 2, 1}, {0, 2, 3, 1}} {
		for i, w := range p.inTurn(list, index) {
			if w != list[want[i]] {
				t.Errorf("stream %d: %v is number %d; want %v", index, w, i, list[want[i]])
			}
		}
	}
}

func TestWays(t *testing.T) {
	list := func(text string) (out []netip.Addr) {
		for _, s := range strings.Fields(text) {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	for _, tt := range []struct{ local, remote, want string }{
		{"10.0.0.1", "10.0.0.2", "10.0.0.1>10.0.0.2:1"},
		{"10.0.0.1", "2001:db8::1", ""},
		{"10.0.0.1", "127.0.0.1", ""},
		{"10.0.0.1 10.0.1.1", "10.0.0.2 10.0.1.2", "10.0.0.1>10.0.0.2:1 10.0.1.1>10.0.1.2:1 10.0.0.1>10.0.1.2:1 10.0.1.1>10.0.0.2:1"},
		{"10.0.0.1 10.0.1.1", "10.0.0.2", "10.0.0.1>10.0.0.2:1 10.0.1.1>10.0.0.2:1"},
		{"10.0.0.1 2001:db8::1", "2001:db8::2 10.0.0.2", "10.0.0.1>10.0.0.2:1 2001:db8::1>[2001:db8::2]:1"},
		{"fe80::1%eth0 fe80::1%eth1", "fe80::2 2001:db8::1", "fe80::1%eth0>[fe80::2%eth0]:1 fe80::1%eth1>[fe80::2%eth1]:1"},
	} {
		var remote Addrs
		for _, a := range list(tt.remote) {
			remote = append(remote, netip.AddrPortFrom(a, 1))
		}
		var got []string
		for _, p := range ways(list(tt.local), remote) {
			got = append(got, p.from.String()+">"+p.to.String())
		}
		if g := strings.Join(got, " "); g != tt.want {
			t.Errorf("ways(%s; %s) = %s; want %s", tt.local, tt.remote, g, tt.want)
		}
	}
}

func TestReach(t *testing.T) {
	four, _ := listen(t, 0, nil)
	six, _ := listen(t, 1, func(o *Options) { o.Addrs = []netip.Addr{netip.MustParseAddr("::1")} })
	for info, want := range map[string]string{
		six.Addrs().String(): "no pair of one family",
		"":                   "",
		"127.0.0.1":          "",
		"127.0.0.1:0":        "not in its plain form",
		"[fe80::1%lo]:99":    "not in its plain form",
	} {
		err := four.Reach(1, fmt.Appendf(nil, "%s 1 %s test", infoVersion, info))
		if err == nil || !strings.Contains(err.Error(), want) {
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
	to := Addrs{l.Addr().(*net.TCPAddr).AddrPort()}
	if _, err := a.Dial(ctx, to, Stream{Peer: 1, Count: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial with a context that ends: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, a.Close)
	if _, err := a.Dial(t.Context(), to, Stream{Peer: 1, Count: 1}); err == nil {
		t.Error("Dial of a closed point succeeds")
	}
	b, _ := listen(t, 0, nil)
	l.Close()
	if _, err := b.Dial(t.Context(), to, Stream{Peer: 1, Count: 1}); err == nil || !strings.Contains(err.Error(), "rank 1 cannot be reached at "+to.String()) {
		t.Errorf("Dial where nobody listens: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for want, spoil := range map[string]func(*Options){
		"rank -1":        func(o *Options) { o.Rank = -1 },
		"the key has 3":  func(o *Options) { o.Key = o.Key[:3] },
		"nothing admits": func(o *Options) { o.Admit = nil },
		"not an address": func(o *Options) { o.Addrs = []netip.Addr{netip.IPv6Unspecified()} },
		"needs a zone":   func(o *Options) { o.Addrs = []netip.Addr{netip.MustParseAddr("fe80::1")} },
		"listen on 192.": func(o *Options) { o.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.77")} },
	} {
		o := Options{Key: testKey, Admit: func(Stream, net.Conn) {}}
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
