package socket

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// nets are two network namespaces that are joined by one or several links.
type nets struct {
	name  [2]string
	addrs [2][]netip.Addr // one for each link
}

// twoHosts makes two namespaces joined by veth pairs, or skips. Addresses
// are IPv4, or link-local IPv6.
func twoHosts(t testing.TB, links int, six bool) nets {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("there is no ip(8) to make network namespaces with: install iproute2")
	}
	n := nets{name: [2]string{fmt.Sprintf("assay-a%d", os.Getpid()), fmt.Sprintf("assay-b%d", os.Getpid())}}
	for _, name := range n.name {
		if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
			t.Skipf("no network namespace can be made here: %s", out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
		command(t, "ip", "-n", name, "link", "set", "lo", "up")
	}
	for l := range links {
		dev := fmt.Sprintf("as%d", l)
		command(t, "ip", "-n", n.name[0], "link", "add", dev, "type", "veth", "peer", "name", dev, "netns", n.name[1])
		for r, name := range n.name {
			command(t, "ip", "-n", name, "link", "set", dev, "addrgenmode", "none")
			addr := netip.MustParseAddr(fmt.Sprintf("10.99.%d.%d", l, r+1))
			prefix := "/24"
			if six {
				addr, prefix = netip.MustParseAddr(fmt.Sprintf("fe80::%d:%d", l+1, r+1)), "/64"
			}
			args := []string{"-n", name, "addr", "add", addr.String() + prefix, "dev", dev}
			if six {
				args = append(args, "nodad")
				addr = addr.WithZone(dev)
			}
			command(t, "ip", args...)
			command(t, "ip", "-n", name, "link", "set", dev, "up")
			n.addrs[r] = append(n.addrs[r], addr)
		}
	}
	return n
}

// inside is a command in a namespace; in this one if it has no name.
func inside(netns string, args ...string) *exec.Cmd {
	if netns != "" {
		args = append([]string{"ip", "netns", "exec", netns}, args...)
	}
	return exec.Command(args[0], args[1:]...)
}

func command(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// A flow is what was measured of a stream.
type flow struct {
	rate float64    // bytes a second
	cpu  [2]float64 // processor seconds for each GB, of the sender and the receiver
}

// iperf is one TCP stream of iperf3, from the first to the second namespace.
func iperf(t testing.TB, n nets, seconds int) flow {
	t.Helper()
	server := inside(n.name[1], "iperf3", "-s", "-1")
	if err := server.Start(); err != nil {
		t.Skipf("there is no iperf3 to compare with: %v", err)
	}
	defer server.Wait()
	time.Sleep(300 * time.Millisecond)
	client := inside(n.name[0], "iperf3", "-J", "-c", n.addrs[1][0].String(), "-t", fmt.Sprint(seconds))
	out, err := client.Output()
	if err != nil {
		server.Process.Kill()
		t.Fatalf("iperf3: %v\n%s", err, out)
	}
	var r struct {
		End struct {
			Received struct {
				Bits    float64 `json:"bits_per_second"`
				Seconds float64
			} `json:"sum_received"`
			CPU struct {
				Host   float64 `json:"host_total"`
				Remote float64 `json:"remote_total"`
			} `json:"cpu_utilization_percent"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	f := flow{rate: r.End.Received.Bits / 8}
	f.cpu = [2]float64{r.End.CPU.Host / 100 / f.rate * 1e9, r.End.CPU.Remote / 100 / f.rate * 1e9}
	return f
}

// own is a stream of ours.
func own(t testing.TB, n nets, j job) flow {
	t.Helper()
	out := runPair(t, n, j)
	var f flow
	if _, err := fmt.Sscan(out[0]+" "+out[1], new(float64), &f.cpu[0], &f.rate, &f.cpu[1]); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return f
}

// BenchmarkVeth compares the stream between two namespaces with iperf3's, turn
// by turn: -benchtime 5x is five turns. The figures are the best rate of each,
// their ratio, and the processor seconds for each GB of sender and receiver.
// ASSAY_BENCH_NET=loopback does without namespaces, ASSAY_BENCH_NOSPIN=1 shows
// processor time without spinning, NCCL's variables set threads and streams.
func BenchmarkVeth(b *testing.B) {
	n := nets{addrs: [2][]netip.Addr{{netip.MustParseAddr("127.0.0.1")}, {netip.MustParseAddr("127.0.0.1")}}}
	if os.Getenv("ASSAY_BENCH_NET") != "loopback" {
		n = twoHosts(b, 1, false)
	}
	threads, per := envInt("NCCL_SOCKET_NTHREADS", 0), envInt("NCCL_NSOCKS_PERTHREAD", 0)
	for _, size := range []int{64 << 10, 128 << 10, 256 << 10, 512 << 10} {
		b.Run(fmt.Sprintf("stream/bytes=%d", size), func(b *testing.B) {
			var peer, ours []flow
			for range b.N {
				peer = append(peer, iperf(b, n, 1))
				ours = append(ours, own(b, n, job{Do: "stream", Size: size, Count: 2_000_000_000 / size, MaxMessage: size, Threads: threads, PerThread: per}))
			}
			p, o := summary(peer), summary(ours)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(p.rate/1e9, "iperf3-GB/s")
			b.ReportMetric(o.rate/1e9, "GB/s")
			b.ReportMetric(o.rate/p.rate, "ratio")
			for i, end := range []string{"send", "recv"} {
				b.ReportMetric(p.cpu[i], "iperf3-"+end+"-s/GB")
				b.ReportMetric(o.cpu[i], end+"-s/GB")
			}
		})
	}
	for _, size := range []int{8, 256, 1 << 10, 8 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("pingpong/bytes=%d", size), func(b *testing.B) {
			best := math.Inf(1)
			for range b.N {
				ns, err := strconv.ParseFloat(runPair(b, n, job{Do: "pingpong", Size: size, Count: 2000, Threads: threads, PerThread: per})[0], 64)
				if err != nil {
					b.Fatal(err)
				}
				best = min(best, ns)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(best, "ns/half")
		})
	}
}

func envInt(name string, def int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return v
	}
	return def
}

// summary is the best rate and the least processor time: what others take of
// the machine meanwhile is noise that only adds.
func summary(list []flow) flow {
	s := list[0]
	for _, f := range list {
		s.rate = max(s.rate, f.rate)
		for i := range s.cpu {
			s.cpu[i] = min(s.cpu[i], f.cpu[i])
		}
	}
	return s
}
