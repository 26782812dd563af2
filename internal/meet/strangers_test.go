package meet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/rendezvous"
	"github.com/assay-hpc/assay/coll/transport/socket"
	"github.com/assay-hpc/assay/harness/gather"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/meet"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/perftest/tcp"
)

var (
	secret  = []byte("a secret for the tests, 32 bytes")
	patient = bootstrap.Options{Ifname: "lo", Family: "AF_INET", Timeout: 5 * time.Minute}
)

// A place is what strangers may find: start opens its listeners, perhaps a moment
// after it has returned, and come has genuine callers come in, and closes all.
type place struct {
	name      string
	listeners int
	protocol  meet.Protocol
	start     func(t *testing.T, logf func(string, ...any)) (come func() error)
}

var places = []place{
	{"a root and its first rank", 2, meet.Protocol{Name: "b2", Claim: 16}, func(t *testing.T, logf func(string, ...any)) func() error {
		o := patient
		o.Logf = logf
		root, err := bootstrap.NewRoot(o)
		if err != nil {
			t.Fatal(err)
		}
		const ranks = 12
		var nets [ranks]*bootstrap.Net
		var errs [ranks]error
		var wg sync.WaitGroup
		join := func(r int) {
			wg.Go(func() { nets[r], errs[r] = bootstrap.Join(context.Background(), root.ID(), r, ranks, o) })
		}
		join(0)
		return func() error {
			for r := 1; r < ranks; r++ {
				join(r)
			}
			wg.Wait()
			defer root.Close()
			if err := errors.Join(errs[:]...); err != nil {
				return err
			}
			for r, n := range nets {
				wg.Go(func() {
					got, err := n.AllGather(context.Background(), []byte{byte(r)})
					for from := range got {
						if len(got[from]) != 1 || got[from][0] != byte(from) {
							err = fmt.Errorf("rank %d has %v of rank %d", r, got[from], from)
						}
					}
					errs[r] = errors.Join(err, n.Close())
				})
			}
			wg.Wait()
			return errors.Join(errs[:]...)
		}
	}},
	{"the first of a group", 1, meet.Protocol{Name: "b2", Claim: 16}, func(t *testing.T, logf func(string, ...any)) func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close()
		o := patient
		o.Logf = logf
		return job(t, "NCCL_COMM_ID="+addr+" ASSAY_JOB_SECRET=s", func(w bootstrap.World) error {
			c, err := bootstrap.Await(context.Background(), w, nil, o)
			if err != nil {
				return err
			}
			_, err = c.Exchange(context.Background(), nil, func(all [][]byte) ([][]byte, error) { return nil, nil })
			c.Close(nil)
			return err
		})
	}},
	{"the sharing of an ID, a root and its first rank", 3, meet.Protocol{Name: "b2", Claim: 16}, func(t *testing.T, logf func(string, ...any)) func() error {
		o := patient
		o.Logf = logf
		return job(t, "MASTER_ADDR=127.0.0.1 ASSAY_JOB_SECRET=s TORCHELASTIC_RUN_ID=strangers"+strconv.Itoa(os.Getpid()), func(w bootstrap.World) error {
			id, root, err := bootstrap.ShareID(context.Background(), w, o)
			if err != nil {
				return err
			}
			n, err := bootstrap.Join(context.Background(), id, w.Rank, w.Size, o)
			if err == nil {
				err = n.Close()
			}
			if root != nil {
				root.Close()
			}
			return err
		})
	}},
	{"the socket transport", 1, meet.Protocol{Name: "r2", Claim: 16}, func(t *testing.T, logf func(string, ...any)) func() error {
		open := func(rank int) *socket.Endpoint {
			e, err := socket.Open(socket.Options{Rank: rank, Key: secret, Comm: []byte("strangers"), Fault: new(transport.Fault), Logf: logf})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		here := open(1)
		return func() error {
			peer := open(0)
			defer peer.Close()
			defer here.Close()
			_, err := peer.Tx(context.Background(), 1, here.Info(), 0)
			return err
		}
	}},
	{"a rendezvous", 1, meet.Protocol{Name: "r2", Claim: 16}, func(t *testing.T, logf func(string, ...any)) func() error {
		admitted := make(chan int, 1000)
		open := func(rank int) *rendezvous.Point {
			p, err := rendezvous.Listen(rendezvous.Options{Rank: rank, Key: secret, Comm: []byte("strangers"), Logf: logf, Admit: func(from rendezvous.Stream, c net.Conn) {
				c.Close()
				admitted <- from.Peer
			}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		here := open(1)
		return func() error {
			peer := open(0)
			c, err := peer.Dial(context.Background(), here.Addrs(), rendezvous.Stream{Peer: 1, Count: 1})
			if err == nil {
				c.Close()
			}
			peer.Close()
			here.Close()
			if n := len(admitted); err == nil && n != 1 {
				err = fmt.Errorf("%d were admitted; want 1", n)
			}
			return err
		}
	}},
	{"measuring TCP", 1, meet.Protocol{Name: "p2", Claim: 20}, func(t *testing.T, _ func(string, ...any)) func() error {
		s, err := tcp.Listen("127.0.0.1:0", secret)
		if err != nil {
			t.Fatal(err)
		}
		return func() error {
			_, err := tcp.Measure(context.Background(), s.Addr().String(), secret, tcp.Options{Limit: 5 * time.Minute})
			if err != nil && (strings.Contains(err.Error(), ": measuring to it: ") || strings.Contains(err.Error(), ": measuring from it: ")) {
				err = nil // it came in, and the machine is busy
			}
			return errors.Join(err, s.Close())
		}
	}},
	{"gathering", 1, meet.Protocol{Name: "g2", Claim: 12}, func(t *testing.T, logf func(string, ...any)) func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		run := func(rank int, l net.Listener) (*gather.Summary, error) {
			own := gather.Summarize(rank, certificate.New(certificate.Predicate{Suite: "node", Verdict: result.Pass}))
			s, _, err := gather.Run(context.Background(), own, gather.Options{
				Rank: rank, Size: 2, Token: secret, Listener: l, Limit: 5 * time.Minute, Logf: logf,
				Peers: func(context.Context, int) (string, error) { return addr, nil },
			})
			return s, err
		}
		first := make(chan error, 1)
		go func() {
			s, err := run(0, l)
			if err == nil && s.Ranks != 2 {
				err = fmt.Errorf("%d ranks were counted; missing: %v", s.Ranks, s.Missing)
			}
			first <- err
		}()
		return func() error {
			_, err := run(1, nil)
			return errors.Join(err, <-first)
		}
	}},
}

// job runs rank 0 of two processes at once, and the other one when it comes.
func job(t *testing.T, environ string, run func(w bootstrap.World) error) (come func() error) {
	world := func(rank int) bootstrap.World {
		m := map[string]string{"RANK": strconv.Itoa(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
		for f := range strings.FieldsSeq(environ) {
			k, v, _ := strings.Cut(f, "=")
			m[k] = v
		}
		w, err := bootstrap.Detect(func(k string) string { return m[k] })
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := make(chan error, 1)
	w := world(0)
	go func() { first <- run(w) }()
	return func() error { return errors.Join(run(world(1)), <-first) }
}

// listening returns where this process listens, and how many sockets it has.
func listening(t *testing.T) (at map[netip.AddrPort]bool, all int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	at = map[netip.AddrPort]bool{}
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || !strings.HasPrefix(to, "socket:") {
			continue
		}
		all++
		fd, _ := strconv.Atoi(e.Name())
		if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || n == 0 {
			continue
		}
		switch a, _ := unix.Getsockname(fd); a := a.(type) {
		case *unix.SockaddrInet4:
			at[netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))] = true
		case *unix.SockaddrInet6:
			at[netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))] = true
		}
	}
	return at, all
}

// A stranger throws what is no handshake at a listener: noise, or what it has heard
// of the protocol. Those that stay silent are left to the caller.
func stranger(t *testing.T, rng *rand.Rand, p meet.Protocol, addr string) (silent net.Conn) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil
	}
	const proof, reply = 32, 8 + 32 + 32
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	hello := append([]byte("assay\x00"+p.Name), noise(p.Claim+32)...)
	msg := append(hello[:len(hello):len(hello)], noise(proof)...)
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	switch rng.IntN(11) {
	case 0: // noise
		msg = noise(1 + rng.IntN(300))
	case 1: // cut
		msg = msg[:rng.IntN(len(msg))]
	case 2: // another version, or part of assay
		msg[rng.IntN(8)] ^= 1 << rng.IntN(8)
	case 3: // a wrong proof, which this is already
	case 4: // another secret
		if _, err := p.Greet(c, []byte("another secret"), hello[8:][:p.Claim]); err == nil {
			t.Error("another secret is good, too")
		}
		c.Close()
		return nil
	case 5: // the listener's own proof, reflected
		c.Write(hello)
		var heard [reply]byte
		if _, err := io.ReadFull(c, heard[:]); err != nil {
			c.Close()
			return nil
		}
		msg = heard[reply-proof:]
	case 6: // much, and a frame with a length that is a lie
		msg = append(append(msg, 255, 255, 255, 255, 1), noise(64<<10)...)
	case 7: // somebody else's protocol
		msg = []byte("GET / HTTP/1.1\r\nHost: here\r\n\r\n")
	case 8: // half open: a part of it, and then silence
		c.Write(hello[:rng.IntN(len(hello)+1)])
		return c
	case 9: // silence
		return c
	case 10: // reset
		c.Write(hello)
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
		return nil
	}
	defer c.Close()
	c.Write(msg)
	if rng.IntN(4) == 0 {
		return nil // hang up at once
	}
	c.(*net.TCPConn).CloseWrite()
	if heard, err := io.ReadAll(c); len(heard) > reply {
		t.Errorf("a stranger was let in at %s and heard %q", addr, heard[reply:])
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stranger stays at %s", addr)
	}
	return nil
}

// TestStrangers: thousands of strangers, at every listener that this module has but
// perftest's own, keep no genuine caller out; none gets in, and nothing is left of them.
func TestStrangers(t *testing.T) {
	total, squatters := 10000, 520 // which is more than may be in the handshake at once
	if testing.Short() {
		total, squatters = 1500, 40
	}
	before, sockets := listening(t)
	goroutines := runtime.NumGoroutine()

	type open struct {
		place
		addr string
	}
	var all []open
	come := make([]func() error, len(places))
	lines := make([]atomic.Int64, len(places))
	for i, p := range places {
		come[i] = p.start(t, func(string, ...any) { lines[i].Add(1) })
		for want := p.listeners; want > 0; time.Sleep(time.Millisecond) {
			now, _ := listening(t)
			for a := range now {
				if before[a] {
					continue
				}
				before[a] = true
				want--
				if a.Addr().IsUnspecified() {
					a = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port())
				}
				all = append(all, open{p, a.String()})
			}
		}
	}

	var silent []net.Conn
	for _, o := range all {
		for range squatters {
			c, err := net.Dial("tcp", o.addr)
			if err != nil {
				t.Fatal(err)
			}
			silent = append(silent, c)
		}
	}
	var thrown, wg = atomic.Int64{}, sync.WaitGroup{}
	var mu sync.Mutex
	errs := make([]error, len(places))
	for w := range 32 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for i := int(thrown.Add(1)); i <= total; i = int(thrown.Add(1)) {
				if i == total/2 {
					for k := range come {
						wg.Go(func() { errs[k] = come[k]() })
					}
				}
				o := all[i%len(all)]
				if c := stranger(t, rng, o.protocol, o.addr); c != nil {
					mu.Lock()
					silent = append(silent, c)
					if len(silent) > len(all)*squatters+200 {
						silent[0].Close()
						silent = silent[1:]
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for _, c := range silent {
		c.Close()
	}
	for i, p := range places {
		if errs[i] != nil {
			t.Errorf("%s: %v", p.name, errs[i])
		}
		if n := lines[i].Load(); n > 150 {
			t.Errorf("%s: %d lines are logged", p.name, n)
		}
	}
	for wait := time.Millisecond; ; wait *= 2 {
		_, left := listening(t)
		running := runtime.NumGoroutine()
		if left <= sockets && running <= goroutines {
			return
		}
		if wait > time.Minute {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d sockets are left, and %d goroutines; there were %d and %d\n%s", left, running, sockets, goroutines, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(wait)
	}
}
