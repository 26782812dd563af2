package tcp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// namespaces makes two, without a link between them.
func namespaces(t *testing.T) (names [2]string) {
	t.Helper()
	if testing.Short() {
		t.Skip("namespaces take seconds")
	}
	if os.Getuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("there is no ip here: apt-get install iproute2")
	}
	for i := range names {
		names[i] = fmt.Sprintf("tcp%d-%d", os.Getpid()%100000, i)
		if out, err := exec.Command("ip", "netns", "add", names[i]).CombinedOutput(); err != nil {
			t.Skipf("no network namespaces here: %s", out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "del", names[i]).Run() })
		ip(t, "-n", names[i], "link", "set", "lo", "up")
	}
	return names
}

// linked makes two that have eth0, 10.97.0.1 and .2 and link-local addresses.
func linked(t *testing.T) (names [2]string) {
	t.Helper()
	names = namespaces(t)
	ip(t, "link", "add", "name", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
	for i, n := range names {
		// No waiting for duplicate address detection.
		ip(t, "netns", "exec", n, "sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0")
		ip(t, "-n", n, "addr", "add", fmt.Sprintf("10.97.0.%d/24", i+1), "dev", "eth0")
		ip(t, "-n", n, "link", "set", "eth0", "up")
	}
	return names
}

// shape limits what a namespace sends; the queue is deep.
func shape(t *testing.T, netns, rate string) {
	t.Helper()
	out, err := exec.Command("tc", "-n", netns, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms").CombinedOutput()
	if err != nil {
		t.Skipf("tc makes no tbf here: %v: %s", err, out)
	}
}

// TestShaped: each direction has its own rate, and what is left in the queue of
// the first does not come into the second's.
func TestShaped(t *testing.T) {
	n := linked(t)
	shape(t, n[0], "100mbit")
	shape(t, n[1], "200mbit")
	addr := serveIn(t, n[1], "10.97.0.2:0")
	for _, o := range []Options{
		{Duration: 400 * time.Millisecond, Warmup: 200 * time.Millisecond},
		{Duration: 400 * time.Millisecond, Warmup: 200 * time.Millisecond, Streams: 1},
		{Duration: time.Second, Warmup: 200 * time.Millisecond, Both: true},
	} {
		begun := time.Now()
		r := measureIn(t, n[0], addr, o)
		t.Logf("%+v in %v: %+v", o, time.Since(begun), r)
		// Acknowledgements wait in the queue of the other direction.
		least, most := 0.4, 0.6
		if o.Both {
			most = 0.9
		}
		if ratio := r.Forward.Rate / r.Back.Rate; ratio < least || ratio > most {
			t.Errorf("%+v: forward/back is %.3f; want about 0.5", o, ratio)
		}
		// Headers take 5 %; the bucket of 64 kB may be full at first, and what was
		// lost before the warm-up ended sets free what had come after it.
		if mbit := r.Forward.Rate * 8 / 1e6; mbit < 75 || mbit > 115 {
			t.Errorf("%+v: forward at %.1f Mbit/s; want nearly 100", o, mbit)
		}
		if r.Forward.RTT < r.Forward.MinRTT || r.Forward.RTT < time.Millisecond {
			t.Errorf("%+v: round trips of %v under load, %v without", o, r.Forward.RTT, r.Forward.MinRTT)
		}
	}
}

// TestLinkLocal: addresses with a zone, on both sides.
func TestLinkLocal(t *testing.T) {
	n := linked(t)
	var addrs [2]netip.Addr
	for i := range n {
		for _, word := range strings.Fields(ip(t, "-n", n[i], "-6", "addr", "show", "dev", "eth0", "scope", "link")) {
			if p, err := netip.ParsePrefix(word); err == nil {
				addrs[i] = p.Addr().WithZone("eth0")
			}
		}
	}
	if !addrs[0].IsValid() || !addrs[1].IsValid() {
		t.Skip("no IPv6 here")
	}
	addr := serveIn(t, n[1], netip.AddrPortFrom(addrs[1], 0).String())
	if !strings.Contains(addr, "%eth0]:") {
		t.Errorf("the server listens at %s; want a zone", addr)
	}
	r := measureIn(t, n[0], addr, Options{Duration: 300 * time.Millisecond, LocalAddr: addrs[0]})
	if r.Forward.Rate <= 0 || r.Back.Rate <= 0 {
		t.Errorf("%+v", r)
	}
}

// TestLoss: 2 % of what goes forward is lost, nothing of what comes back. The
// link is of our own making: netem is not in every kernel.
func TestLoss(t *testing.T) {
	n := namespaces(t)
	var tun [2]*os.File
	var wg sync.WaitGroup
	for i := range tun {
		tun[i] = openTun(t, n[i])
		ip(t, "-n", n[i], "addr", "add", fmt.Sprintf("10.97.0.%d", i+1), "peer", fmt.Sprintf("10.97.0.%d", 2-i), "dev", "tun0")
		ip(t, "-n", n[i], "link", "set", "tun0", "up")
		// So little is on its way that the devices' queues lose nothing.
		ip(t, "netns", "exec", n[i], "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 65536 65536")
	}
	// Later than serveIn's: it waits for the server to end.
	defer wg.Wait()
	defer tun[1].Close()
	defer tun[0].Close()
	dropped := 0
	rng := rand.New(rand.NewPCG(1, 2))
	wg.Go(func() {
		relay(tun[0], tun[1], func(b []byte) bool {
			lost := len(b) > 500 && rng.Float64() < 0.02
			if lost {
				dropped++
			}
			return lost
		})
	})
	wg.Go(func() { relay(tun[1], tun[0], func([]byte) bool { return false }) })
	addr := serveIn(t, n[1], "10.97.0.2:0")
	r := measureIn(t, n[0], addr, Options{Duration: 2 * time.Second, Warmup: 100 * time.Millisecond})
	t.Logf("%+v", r)
	if share := r.Forward.ResentShare(); share < 0.005 || share > 0.06 {
		t.Errorf("%.4f of %d segments were sent again; want about 0.02", share, r.Forward.Segments)
	}
	if f, b := r.Forward.ResentShare(), r.Back.ResentShare(); b > f/2 {
		t.Errorf("%.4f were sent again where nothing is lost, %.4f where 0.02 are", b, f)
	}
}

// openTun makes a tun device in a namespace.
func openTun(t *testing.T, netns string) *os.File {
	t.Helper()
	var f *os.File
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread changes its namespace: it ends with this goroutine.
		runtime.LockOSThread()
		f, err = func() (*os.File, error) {
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
				unix.Close(fd)
				return nil, err
			}
			return os.NewFile(uintptr(fd), "tun0"), nil
		}()
	}()
	<-done
	if err != nil {
		t.Skipf("no tun device can be made here: %v", err)
	}
	return f
}

// relay carries packets from one device to another until one is closed.
func relay(from, to *os.File, lost func([]byte) bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if !lost(b[:n]) {
			to.Write(b[:n])
		}
	}
}
