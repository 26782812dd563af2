package socket

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Tests between two network namespaces, as between two hosts.

func TestHosts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		links int
		six   bool
		job   job
	}{
		{"IPv4", 1, false, job{}},
		{"link-local IPv6, two links", 2, true, job{}},
		{"two links, helpers", 2, false, job{Threads: 1, PerThread: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := twoHosts(t, tt.links, tt.six)
			tt.job.Do, tt.job.Size, tt.job.Count = "exchange", 300_000, 100
			for r, got := range runPair(t, n, tt.job) {
				if got != "right" {
					t.Errorf("rank %d: %s", r, got)
				}
			}
		})
	}
}

// TestKilled: each side of a connection notices that the other process is
// killed, one of them sending, one receiving.
func TestKilled(t *testing.T) {
	n := twoHosts(t, 1, false)
	for victim := range 2 {
		c := startPair(t, n, job{Do: "wait", Millis: 5000})
		c[0].expect(t, "ready")
		c[1].expect(t, "ready")
		c[victim].cmd.Process.Kill()
		want := fmt.Sprintf("rank %d is lost", victim)
		if got := c[1-victim].expect(t, "result"); !strings.Contains(got, want) {
			t.Errorf("rank %d, killed, leaves %q; want %q", victim, got, want)
		}
	}
}

// TestHalfOpen: when the link is cut, no packet says so. The side with data
// under way notices after Timeout, the other one by keep-alive.
func TestHalfOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	n := twoHosts(t, 1, false)
	c := startPair(t, n, job{Do: "wait", Millis: 2000})
	c[0].expect(t, "ready")
	c[1].expect(t, "ready")
	command(t, "ip", "-n", n.name[0], "link", "set", "as0", "down")
	for r := range c {
		want := fmt.Sprintf("rank %d is lost", 1-r)
		if got := c[r].expect(t, "result"); !strings.Contains(got, want) {
			t.Errorf("rank %d says %q; want %q", r, got, want)
		}
	}
}

// TestLossy exchanges messages over a link that loses 1 % of the packets and
// delays the others by 50 ms each way.
func TestLossy(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	n, dropped := lossyHosts(t, 50*time.Millisecond, 0.01)
	for r, got := range runPair(t, n, job{Do: "exchange", Size: 150_000, Count: 20, Threads: 1, PerThread: 2}) {
		if got != "right" {
			t.Errorf("rank %d: %s", r, got)
		}
	}
	if dropped.Load() == 0 {
		t.Error("the link has lost no packet: nothing was tested")
	}
}

// lossyHosts joins two namespaces by a link of our own: tc's netem is not in
// every kernel, the tun device nearly so.
func lossyHosts(t *testing.T, delay time.Duration, loss float64) (nets, *atomic.Int64) {
	t.Helper()
	dropped := new(atomic.Int64)
	n := twoHosts(t, 0, false)
	var tun [2]*os.File
	for r, name := range n.name {
		tun[r] = openTun(t, name)
		t.Cleanup(func() { tun[r].Close() })
		addr := fmt.Sprintf("10.98.0.%d", r+1)
		command(t, "ip", "-n", name, "addr", "add", addr, "peer", fmt.Sprintf("10.98.0.%d", 2-r), "dev", "tun0")
		command(t, "ip", "-n", name, "link", "set", "tun0", "up")
		n.addrs[r] = []netip.Addr{netip.MustParseAddr(addr)}
	}
	for r := range tun {
		go relay(tun[r], tun[1-r], delay, loss, dropped)
	}
	return n, dropped
}

// openTun makes a tun device in a namespace.
func openTun(t *testing.T, netns string) *os.File {
	t.Helper()
	type result struct {
		f   *os.File
		err error
	}
	ch := make(chan result)
	go func() {
		// The thread changes its namespace: it ends with this goroutine.
		runtime.LockOSThread()
		f, err := func() (*os.File, error) {
			ns, err := os.Open("/var/run/netns/" + netns)
			if err != nil {
				return nil, err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, err
			}
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			req, err := unix.NewIfreq("tun0")
			if err != nil {
				return nil, err
			}
			req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
				return nil, err
			}
			return os.NewFile(uintptr(fd), "tun0"), nil
		}()
		ch <- result{f, err}
	}()
	r := <-ch
	if r.err != nil {
		t.Skipf("no tun device can be made here: %v", r.err)
	}
	return r.f
}

// relay carries packets from one device to another, late, and not all.
func relay(from, to *os.File, delay time.Duration, loss float64, dropped *atomic.Int64) {
	type packet struct {
		due  time.Time
		data []byte
	}
	queue := make(chan packet, 10_000)
	go func() {
		for p := range queue {
			time.Sleep(time.Until(p.due))
			to.Write(p.data)
		}
	}()
	defer close(queue)
	rnd := rand.New(rand.NewPCG(1, 1))
	buf := make([]byte, 1<<16)
	for {
		k, err := from.Read(buf)
		if err != nil {
			return
		}
		if rnd.Float64() < loss {
			dropped.Add(1)
			continue
		}
		select {
		case queue <- packet{time.Now().Add(delay), append([]byte(nil), buf[:k]...)}:
		default: // the queue is full: a router drops, too
		}
	}
}
