package fabric

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// softPorts makes n ports of soft RoCE on one bridge, rw0 to rwN: port i sends what leaves wi, and
// receives what leaves bi. It takes the virtual machine of .ci/rdma.
func softPorts(t *testing.T, n int) {
	t.Helper()
	if os.Getenv("ASSAY_RDMA_VM") == "" {
		t.Skip("it changes the network, and is for the virtual machine of .ci/rdma")
	}
	sh(t, "sysctl -qw net.core.netdev_max_backlog=100000; modprobe -a bridge veth sch_netem rdma_rxe && ip link add rdma-br type bridge && ip link set rdma-br up")
	t.Cleanup(func() { sh(t, "ip link del rdma-br") })
	for i := range n {
		sh(t, fmt.Sprintf(`ip link add w%[1]d type veth peer name b%[1]d
			sysctl -qw net.ipv4.conf.w%[1]d.accept_local=1 net.ipv4.conf.w%[1]d.rp_filter=0 net.ipv4.conf.w%[1]d.arp_ignore=1 net.ipv4.conf.w%[1]d.arp_announce=2
			ip address add 10.8.0.%[2]d/24 dev w%[1]d
			ip link set b%[1]d mtu 9000 master rdma-br up
			ip link set w%[1]d mtu 9000 up`, i, i+1))
		t.Cleanup(func() { sh(t, fmt.Sprintf("rdma link del rw%[1]d; ip link del w%[1]d", i)) })
		for k := range n {
			if k != i {
				rule := fmt.Sprintf("pref 11 oif w%d to 10.8.0.%d lookup main", i, k+1)
				sh(t, "ip rule add "+rule)
				t.Cleanup(func() { sh(t, "ip rule del "+rule) })
			}
		}
		sh(t, fmt.Sprintf("rdma link add rw%[1]d type rxe netdev w%[1]d", i))
		gid := fmt.Sprintf("/sys/class/infiniband/rw%d/ports/1/gids/1", i)
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if b, err := os.ReadFile(gid); err == nil && strings.TrimSpace(string(b)) == fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a08:%04x", i+1) {
				break
			} else if time.Now().After(end) {
				t.Fatalf("%s: %q, %v", gid, b, err)
			}
		}
	}
}

func sh(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-euc", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// netem disturbs what port i sends, or receives.
func netem(t *testing.T, what string, i int, receives bool) {
	device := fmt.Sprintf("w%d", i)
	if receives {
		device = fmt.Sprintf("b%d", i)
	}
	sh(t, fmt.Sprintf("tc qdisc replace dev %s root netem %s", device, what))
	t.Cleanup(func() { sh(t, fmt.Sprintf("tc qdisc del dev %s root", device)) })
}

// TestRDMAProber: what netem does to a port is seen in the reads, or in the counters of the end that
// counts it. What a busy machine adds is not judged.
func TestRDMAProber(t *testing.T) {
	softPorts(t, 2)
	tree, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	prober := func(i int) *rdmaProber {
		return &rdmaProber{tree, map[string]rdmaPort{"port/1": {device: fmt.Sprintf("rw%d", i), number: 1, rate: 1e6}}}
	}
	for _, tt := range []struct {
		name, netem string // what happens to what the first one sends
		quiet       bool
		good        func(m Measured, other Ends) bool
	}{
		{"nothing", "", false, func(m Measured, other Ends) bool {
			return m.There > 0 && m.Back > 0 && m.Trips.Count == smallReads-1 && m.Trips.Median > 0 && m.Trips.Tail >= m.Trips.Median &&
				m.Ends.Small.Sent >= smallReads && m.Ends.Large.Sent > m.Ends.Small.Sent && other.Large.Sent > 0
		}},
		{"quiet", "", true, func(m Measured, other Ends) bool {
			return m.There == 0 && m.Trips.Count == 1999 && m.Ends.Small.Sent >= 2000 && m.Ends.Large == Counts{} && other.Large == Counts{}
		}},
		{"late", "delay 3ms", true, func(m Measured, _ Ends) bool { return m.Trips.Median >= 3*time.Millisecond }},
		{"lost", "loss 5%", true, func(m Measured, other Ends) bool {
			there, back := hunt.Packets{}, hunt.Packets{}
			addCounted([2]Ends{m.Ends, other}, m.Trips.Held, &there, &back)
			return m.Ends.Small.Resent > 10 && there.Lost > 10 && m.Trips.Held > 10
		}},
		{"twice", "duplicate 20%", true, func(_ Measured, other Ends) bool { return other.Small.Repeats > 10 }},
		{"cut", "loss 100%", true, func(m Measured, _ Ends) bool { return m.Trips.Broken && m.Ends.Small.Resent >= 3 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.netem != "" {
				netem(t, tt.netem, 0, false)
			}
			// On a machine without time soft RoCE's writes fail when their acknowledgements are late.
			for try := 1; ; try++ {
				m := Measurement{time.Millisecond, tt.quiet}
				at, wait, err := prober(1).Listen(t.Context(), "port/1", m)
				if err != nil {
					t.Fatal(err)
				}
				var other Ends
				done := make(chan error)
				go func() {
					var err error
					other, err = wait()
					done <- err
				}()
				got, err := prober(0).Measure(t.Context(), "port/1", "127.0.0.1", at, m)
				err = errors.Join(err, <-done)
				t.Logf("%+v; the other end: %+v; %v", got, other, err)
				if err == nil && tt.good(got, other) {
					break
				}
				if err == nil || try == 5 {
					t.Fatal("that is not what was done")
				}
			}
		})
	}
}

// TestRDMAHuntFaults finds what netem does to one of four ports of soft RoCE, ASSAY_RDMA_HUNTS times of
// each kind. It takes a machine that has time for the virtual one.
func TestRDMAHuntFaults(t *testing.T) {
	trials, err := strconv.Atoi(os.Getenv("ASSAY_RDMA_HUNTS"))
	if err != nil {
		t.Skip("ASSAY_RDMA_HUNTS says how many")
	}
	const n = 4
	softPorts(t, n)
	tree, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		watch time.Duration
		do    func(t *testing.T, bad int)
		is    []hunt.Kind // none: clean
	}{
		{"nothing", 0, func(*testing.T, int) {}, nil},
		{"nothing, watched", time.Minute, func(*testing.T, int) {}, nil},
		{"late", 0, func(t *testing.T, bad int) { netem(t, "delay 100ms limit 100000", bad, false) }, []hunt.Kind{hunt.Late, hunt.Slow}},
		{"long tail", 0, func(t *testing.T, bad int) {
			netem(t, "delay 100us 50ms 0 distribution pareto limit 100000", bad, false)
		}, []hunt.Kind{hunt.Late, hunt.Slow, hunt.Lossy, hunt.Reordering}},
		{"loses what it sends", 0, func(t *testing.T, bad int) { netem(t, "loss 3%", bad, false) }, []hunt.Kind{hunt.Lossy}},
		{"loses what it receives", 0, func(t *testing.T, bad int) { netem(t, "loss 3%", bad, true) }, []hunt.Kind{hunt.Lossy}},
		{"duplicates", 0, func(t *testing.T, bad int) { netem(t, "duplicate 5%", bad, false) }, []hunt.Kind{hunt.Duplicating}},
		{"comes and goes", time.Minute, func(t *testing.T, bad int) { flaps(t, bad, 4*time.Second, 400*time.Millisecond) }, []hunt.Kind{hunt.Flapping, hunt.Lossy}},
	} {
		for trial := range trials {
			bad := (trial + len(tt.name)) % n
			t.Run(fmt.Sprintf("%s/%d", tt.name, trial), func(t *testing.T) {
				tt.do(t, bad)
				fs := machines(t, n, nil)
				errs := make([]error, n)
				var r *HuntReport
				all(n, func(rank int) {
					port := rdmaPort{device: fmt.Sprintf("rw%d", rank), number: 1, rate: 1e6}
					o := HuntOptions{Options: hunt.Options{Seed: uint64(trial) + 1}, Tool: RDMA, Duration: time.Millisecond, For: tt.watch, Ports: []string{"port/1"}, RDMA: &rdmaProber{tree, map[string]rdmaPort{"port/1": port}}}
					got, err := fs[rank].Hunt(t.Context(), o)
					if errs[rank] = err; rank == 0 {
						r = got
					}
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				var page strings.Builder
				if err := r.WriteText(&page); err != nil {
					t.Fatal(err)
				}
				t.Logf("node%d %s\n%s", bad, tt.name, page.String())
				who := map[string]hunt.Kind{}
				for _, s := range r.Suspects {
					who[strings.Join(slices.Concat(s.Machines, s.Peers), "+")] = s.Kind
				}
				kind, named := who[fmt.Sprintf("node%d", bad)]
				if len(r.Lost) > 0 || len(who) > len(tt.is[:min(1, len(tt.is))]) || len(tt.is) > 0 && (!named || !slices.Contains(tt.is, kind)) {
					t.Errorf("accused: %v, lost %v; want node%d, %v", slices.Collect(maps.Keys(who)), r.Lost, bad, tt.is)
				}
			})
		}
	}
}

// flaps lets nothing through a port for a while, again and again.
func flaps(t *testing.T, i int, every, down time.Duration) {
	netem(t, "loss 0%", i, false)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, one := range []struct {
				loss string
				d    time.Duration
			}{{"0%", every - down}, {"100%", down}} {
				_ = exec.Command("tc", "qdisc", "change", "dev", fmt.Sprintf("w%d", i), "root", "netem", "loss", one.loss).Run()
				select {
				case <-stop:
					return
				case <-time.After(one.d):
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}
