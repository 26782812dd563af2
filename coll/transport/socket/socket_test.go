package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/rendezvous"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
)

var testKey = []byte("the key of the tests, 32 bytes..")

// opener opens ranks whose options begin as one of opt, in turn.
func opener(opt ...Options) transporttest.Opener {
	return transporttest.Each(func(t testing.TB, r int) transporttest.Rank { return openRank(t, r, opt[r%len(opt)]) })
}

func openRank(t testing.TB, r int, opt Options) transporttest.Rank {
	t.Helper()
	opt.Rank, opt.Key, opt.Comm, opt.Fault = r, testKey, []byte("test"), new(transport.Fault)
	if opt.Logf == nil {
		opt.Logf = t.Logf
	}
	e, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return transporttest.Rank{Endpoint: e, Fault: opt.Fault}
}

func TestConformance(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	six := netip.MustParseAddr("::1")
	for _, tt := range []struct {
		name  string
		opt   Options
		short bool // run with -short, too
	}{
		{"one stream", Options{}, true},
		{"six", Options{Addrs: []netip.Addr{six}}, false},
		{"several streams", Options{PerThread: 3}, false},
		{"several addresses", Options{Addrs: []netip.Addr{loopback, six, netip.MustParseAddr("127.0.0.2")}}, false},
		{"helpers", Options{Threads: 2, PerThread: 2}, true},
		{"small messages only", Options{MaxMessage: 1000}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() && !tt.short {
				t.Skip("long")
			}
			transporttest.Run(t, opener(tt.opt))
		})
	}
	t.Run("small buffers", func(t *testing.T) {
		if testing.Short() {
			t.Skip("long")
		}
		transporttest.Run(t, transporttest.Each(func(t testing.TB, r int) transporttest.Rank {
			rank := openRank(t, r, Options{PerThread: 2, MaxMessage: 200_000})
			rank.Endpoint = smallBuffers{rank.Endpoint}
			return rank
		}))
	})
	t.Run("unequal ranks", func(t *testing.T) {
		if testing.Short() {
			t.Skip("long")
		}
		transporttest.Run(t, opener(Options{Threads: 2, PerThread: 2, MaxMessage: 300_000}, Options{PerThread: 2}, Options{Threads: 1, PerThread: 1}))
	})
}

// smallBuffers is an endpoint with little room in the kernel for what it sends.
type smallBuffers struct{ transport.Endpoint }

func (s smallBuffers) Tx(ctx context.Context, peer int, info []byte, channel int) (transport.Tx, error) {
	t, err := s.Endpoint.Tx(ctx, peer, info, channel)
	if err == nil {
		for k := range t.(*Tx).out {
			err = errors.Join(err, unix.SetsockoptInt(t.(*Tx).out[k].fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<10))
		}
	}
	return t, err
}

// TestAligned: messages that are peeked at can be taken for any element.
func TestAligned(t *testing.T) {
	ranks := opener(Options{})(t, 2)
	tx, rx := transporttest.Connect(t, ranks, 0, 1, 0)
	for _, n := range []int{1, 3, 8, 9001, 5, 8191, 8192, 8193, 70_001, 2, 7} {
		transporttest.Until(t, ranks, "room", func() bool { return tx.Post(make([]byte, n), transport.Header{}) })
		tx.Post(make([]byte, 3), transport.Header{}) // so that something odd lies behind
	}
	for range 22 {
		transporttest.Until(t, ranks, "a message", func() bool {
			tx.Idle()
			p, _, ok := rx.Peek()
			if ok && uintptr(unsafe.Pointer(unsafe.SliceData(p)))%align != 0 {
				t.Errorf("a message of %d bytes lies at %p", len(p), p)
			}
			return ok
		})
		rx.Release()
	}
}

// TestOptions: what cannot be is refused with the reason.
func TestOptions(t *testing.T) {
	good := Options{Key: testKey, Fault: new(transport.Fault)}
	for want, spoil := range map[string]func(*Options){
		"rank -1":        func(o *Options) { o.Rank = -1 },
		"the key has 3":  func(o *Options) { o.Key = o.Key[:3] },
		"no Fault":       func(o *Options) { o.Fault = nil },
		"17 threads":     func(o *Options) { o.Threads = 17 },
		"at most 64 soc": func(o *Options) { o.Threads, o.PerThread = 16, 5 },
		"messages of -1": func(o *Options) { o.MaxMessage = -1 },
		"needs a zone":   func(o *Options) { o.Addrs = []netip.Addr{netip.MustParseAddr("fe80::1")} },
		"not an address": func(o *Options) { o.Addrs = []netip.Addr{netip.IPv6Unspecified()} },
		"listen on":      func(o *Options) { o.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.77")} },
	} {
		o := good
		spoil(&o)
		e, err := Open(o)
		if err == nil {
			e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v; want an error with %q", err, want)
		}
	}
}

// TestFd: who sleeps on Fd is woken by a message, by room, and by an end.
func TestFd(t *testing.T) {
	for _, opt := range []Options{{}, {Threads: 1, PerThread: 2}} {
		ranks := opener(opt)(t, 2)
		tx, rx := transporttest.Connect(t, ranks, 0, 1, 0)
		sleep := func(r int) {
			t.Helper()
			e := ranks[r].Endpoint.(*Endpoint)
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(e.Fd()), Events: unix.POLLIN}}, int(transporttest.Patience.Milliseconds()))
			if err != nil && !errors.Is(err, unix.EINTR) || err == nil && n == 0 {
				t.Fatalf("nothing wakes who sleeps: %d, %v", n, err)
			}
			e.Drain()
		}
		size := tx.MaxMessage()
		buf, into := make([]byte, size), make([]byte, size)
		const total = 100
		var wg sync.WaitGroup
		wg.Go(func() {
			for range total {
				rx.Post(into)
				for {
					if _, _, ok := rx.Done(); ok {
						break
					}
					sleep(1)
				}
			}
		})
		for range total {
			for !tx.Post(buf, transport.Header{}) {
				sleep(0)
			}
		}
		for !tx.Idle() {
			sleep(0)
		}
		wg.Wait()
		ranks[0].Close()
		for ranks[1].Fault.Err() == nil {
			if rx.Peek(); ranks[1].Fault.Err() == nil {
				sleep(1)
			}
		}
	}
}

// TestFallback: a peer's address that does not connect is left to others.
func TestFallback(t *testing.T) {
	var log strings.Builder
	ranks := opener(Options{PerThread: 3, Logf: func(f string, a ...any) { fmt.Fprintf(&log, f, a...) }})(t, 2)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	i, err := rendezvous.ParseInfo(ranks[1].Info(), 1, "Socket")
	if err != nil {
		t.Fatal(err)
	}
	i.Addrs = append([]netip.AddrPort{dead}, i.Addrs...)
	tx, err := ranks[0].Tx(t.Context(), 1, i.Marshal(), 0)
	if err != nil {
		t.Fatal(err)
	}
	rx, err := ranks[1].Rx(t.Context(), 0, ranks[0].Info(), 0)
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Say(t, ranks, tx, rx, strings.Repeat("large", 80_000))
	if n := strings.Count(log.String(), "cannot be reached"); n != 1 {
		t.Errorf("%d complaints about the dead address; want 1:\n%s", n, log.String())
	}
	i.Addrs = i.Addrs[:1]
	if _, err := ranks[0].Tx(t.Context(), 1, i.Marshal(), 1); err == nil {
		t.Error("Tx to a dead address; want an error")
	}
}

// TestTxContext: a connection to one that says nothing ends with the context.
func TestTxContext(t *testing.T) {
	ranks := opener(Options{})(t, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	i := rendezvous.Info{MaxMessage: 100, Addrs: []netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}, Network: "Socket"}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := ranks[0].Tx(ctx, 1, i.Marshal(), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Tx = %v; want %v", err, context.DeadlineExceeded)
	}
}

// TestLate: a receiver that lives but does not receive for longer than
// Timeout, its window closed, is not lost.
func TestLate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ranks := opener(Options{Timeout: time.Second})(t, 2)
	tx, rx := transporttest.Connect(t, ranks, 0, 1, 0)
	n := 0
	for refused := 0; refused < 100; {
		if p := tx.Reserve(tx.MaxMessage()); p != nil {
			tx.Commit(len(p), transport.Header{Seq: uint32(n)})
			n++
		} else {
			refused++
			time.Sleep(50 * time.Millisecond)
		}
	}
	for i := range n {
		transporttest.Until(t, ranks, "a message", func() bool { tx.Idle(); _, h, ok := rx.Peek(); return ok && h.Seq == uint32(i) })
		rx.Release()
	}
}

// Gone reports whether the peer has said that it leaves.
func (c *conn) Gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// TestGone: a goodbye is known on both ends without being a fault.
func TestGone(t *testing.T) {
	ranks := opener(Options{Timeout: 200 * time.Millisecond})(t, 3)
	tx, rx := transporttest.Connect(t, ranks, 0, 1, 0)
	transporttest.Say(t, ranks, tx, rx, "hello")
	if tx.(*Tx).Gone() || rx.(*Rx).Gone() {
		t.Error("a peer is gone that is not")
	}
	ranks[1].Close()
	transporttest.Until(t, ranks, "the sender to see the goodbye", tx.(*Tx).Gone)
	if err := ranks[0].Fault.Err(); err != nil {
		t.Errorf("a goodbye is a fault: %v", err)
	}
	tx, rx = transporttest.Connect(t, ranks, 0, 2, 0)
	transporttest.Say(t, ranks, tx, rx, "hello")
	ranks[0].Close()
	for deadline := time.Now().Add(transporttest.Patience); !rx.(*Rx).Gone() && time.Now().Before(deadline); {
		rx.Peek()
	}
	ranks[2].Fault.Await(transporttest.Patience)
	if err := ranks[2].Fault.Err(); !rx.(*Rx).Gone() || err == nil || !strings.Contains(err.Error(), "good order") {
		t.Errorf("who waits for a message behind the goodbye gets %v", err)
	}
}
