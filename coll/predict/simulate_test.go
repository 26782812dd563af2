package predict

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

func newSchedule(t testing.TB, c op.Collective, algorithm string, o schedule.Options) *schedule.Schedule {
	t.Helper()
	s, err := schedule.New(c, algorithm, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSimulateByHand: cases whose time is worked out on paper. A byte takes
// 1 ns through a port, 2 ns through an uplink.
func TestSimulateByHand(t *testing.T) {
	flat := Topology{Ranks: 4, Port: 1 * GBps}
	late := flat
	late.Latency = 100
	split := Topology{Ranks: 4, Domain: 2, Port: 1 * GBps, Uplink: GBps / 2, UplinkLatency: 1000, Latency: 100}
	for _, tt := range []struct {
		name      string
		c         op.Collective
		algorithm string
		t         Topology
		r         Run
		want      time.Duration
	}{
		// A ring of 4 has 6 transfers of a quarter each.
		{"ring", op.AllReduce, schedule.Ring, flat, Run{Bytes: 4000}, 6 * 1000},
		{"ring, latency", op.AllReduce, schedule.Ring, late, Run{Bytes: 4000}, 6 * (1000 + 100)},
		// Two windows double the latency: a lane finishes one before the next.
		{"ring, windows", op.AllReduce, schedule.Ring, late, Run{Bytes: 4000, Window: 500}, 2 * 6 * (500 + 100)},
		{"ring, last window is half", op.AllReduce, schedule.Ring, late, Run{Bytes: 4000, Window: 400}, 6*1000 + 3*6*100},
		{"ring, nothing", op.AllReduce, schedule.Ring, late, Run{}, 6 * 100},
		// Message k leaves a domain at 0, 2, 4.1, 6.1, 8.2 and 10.2 µs: when the uplink
		// is free, or 1.1 µs after the one that came in 3 µs after it had left the
		// other domain; the last one arrives 3 µs later.
		{"ring, domains", op.AllReduce, schedule.Ring, split, Run{Bytes: 4000}, 13200},
		// A chain of 3 hops, 4 windows: the windows follow one another, the lane of
		// a middle rank does one at a time.
		{"chain", op.Broadcast, schedule.Ring, late, Run{Bytes: 4000, Window: 1000}, 3*(1000+100) + 3*1000},
		// All-to-all: everyone sends and receives 3 messages of 1000; ports are busy all the time.
		{"all-to-all", op.AllToAll, schedule.OneShot, flat, Run{Bytes: 4000}, 3 * 1000},
	} {
		s := newSchedule(t, tt.c, tt.algorithm, schedule.Options{Ranks: tt.t.Ranks})
		got, err := simulate(s, tt.t, tt.r, false)
		if err != nil || got != tt.want {
			t.Errorf("%s: Simulate = %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

// pair is a schedule of lanes given step by step.
func pair(ranks int, programs ...[]schedule.Lane) *schedule.Schedule {
	return &schedule.Schedule{
		Collective: op.AllReduce, Algorithm: "test", Ranks: ranks, Blocks: 1, Channels: 1,
		Program: func(r int) schedule.Program { return schedule.Program{Lanes: programs[r]} },
	}
}

func send(to int32) schedule.Step {
	return schedule.Step{Recv: schedule.Nobody, Send: to, A: schedule.Ref{Buf: schedule.Input}, Data: schedule.Span{N: 1}}
}

func recv(from int32) schedule.Step {
	return schedule.Step{Recv: from, Send: schedule.Nobody, Dst: schedule.Ref{Buf: schedule.Output}, Data: schedule.Span{N: 1}}
}

func steps(s ...schedule.Step) []schedule.Lane { return []schedule.Lane{{Steps: s}} }

// TestContention: messages that share a port or uplink follow one another,
// others do not wait.
func TestContention(t *testing.T) {
	flat := Topology{Ranks: 4, Port: 1 * GBps}
	cross := Topology{Ranks: 4, Domain: 2, Port: 1 * GBps, Uplink: 1 * GBps}
	apart := pair(4, steps(send(1)), steps(recv(0)), steps(send(3)), steps(recv(2)))
	fanIn := pair(4, steps(send(3)), steps(send(3)), steps(send(3)), steps(recv(0), recv(1), recv(2)))
	shared := pair(4, steps(send(2)), steps(send(3)), steps(recv(0)), steps(recv(1)))
	multi := func(from int32) []schedule.Lane { s := recv(from); s.Multi = true; return steps(s) }
	for _, tt := range []struct {
		name string
		s    *schedule.Schedule
		t    Topology
		want time.Duration
	}{
		{"apart", apart, flat, 1000},
		{"three into one port", fanIn, flat, 3000},
		{"two through one uplink", shared, cross, 2000},
		{"one to everyone leaves once", pair(4, steps(send(schedule.Everyone)), multi(0), multi(0), multi(0)), flat, 1000},
	} {
		if got, err := simulate(tt.s, tt.t, Run{Bytes: 1000}, false); err != nil || got != tt.want {
			t.Errorf("%s: Simulate = %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

// TestSlots: a sender runs ahead as far as there are slots, no further.
func TestSlots(t *testing.T) {
	// Rank 1 takes its message only when rank 2, in its own time, has sent one.
	slow := pair(3, steps(send(1)), steps(recv(2), recv(0)), steps(send(1)))
	topo := Topology{Ranks: 3, Port: 1 * GBps, Latency: 5000}
	for _, tt := range []struct {
		slots int
		want  time.Duration
	}{
		// 4 windows of 1000 from two senders share rank 1's port in turn; with one
		// slot each window waits for the release of the one before and arrives
		// 5 µs later.
		{1, 4 * (2000 + 5000)},
		{8, 8000 + 5000},
	} {
		got, err := simulate(slow, topo, Run{Bytes: 4000, Window: 1000, Slots: tt.slots}, false)
		if err != nil || got != tt.want {
			t.Errorf("%d slots: Simulate = %v, %v; want %v", tt.slots, got, err, tt.want)
		}
	}
}

func TestDeadlock(t *testing.T) {
	s := pair(2, steps(recv(1), send(1)), steps(recv(0), send(0)))
	if _, err := Simulate(s, Topology{Ranks: 2, Port: GBps}, Run{Bytes: 8}); err == nil || !strings.Contains(err.Error(), "waits for ever") {
		t.Errorf("Simulate of a deadlock = %v", err)
	}
}

func TestBadTopology(t *testing.T) {
	s := newSchedule(t, op.AllReduce, schedule.Ring, schedule.Options{Ranks: 4})
	for _, tt := range []struct {
		t    Topology
		r    Run
		want string
	}{
		{Topology{}, Run{}, "0 ranks"},
		{Topology{Ranks: 4, Domain: 3, Port: 1}, Run{}, "domains of 3"},
		{Topology{Ranks: 4}, Run{}, "a port of 0"},
		{Topology{Ranks: 4, Domain: 2, Port: 1}, Run{}, "without an uplink"},
		{Topology{Ranks: 4, Port: 1, Latency: -1}, Run{}, "negative"},
		{Topology{Ranks: 8, Port: 1}, Run{}, "4 ranks on a topology of 8"},
		{Topology{Ranks: 4, Port: 1}, Run{Bytes: -1}, "negative"},
	} {
		if _, err := Simulate(s, tt.t, tt.r); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Simulate on %+v = %v; want %q", tt.t, err, tt.want)
		}
	}
}

// TestFastIsExact: neither the rotation nor the steady pace changes a result.
func TestFastIsExact(t *testing.T) {
	topologies := []Topology{
		{Ranks: 2, Port: 3 * GBps, Latency: 700},
		{Ranks: 6, Port: 3 * GBps, Latency: 700},
		{Ranks: 12, Domain: 4, Port: 3 * GBps, Latency: 700, Uplink: 2 * GBps, UplinkLatency: 5000},
		{Ranks: 16, Domain: 8, Port: 3 * GBps, Latency: 700, Uplink: GBps, UplinkLatency: 5000},
		{Ranks: 16, Domain: 8, Port: 3 * GBps, Latency: 700, Uplink: 5 * GBps, UplinkLatency: 5000},
	}
	rotated := 0
	for _, topo := range topologies {
		for c := range op.NumCollectives {
			for _, a := range schedule.Algorithms(c) {
				if a == schedule.CollNet {
					continue
				}
				for _, channels := range []int{1, 3} {
					s, err := schedule.New(c, a, schedule.Options{Ranks: topo.Ranks, Channels: channels, Groups: groups(topo)})
					if err != nil {
						continue // it needs what there is not
					}
					if rotation(s, topo) < topo.Ranks {
						rotated++
					}
					for _, r := range []Run{{Bytes: 1 << 20}, {Bytes: 1 << 20, Window: 1 << 12}, {Bytes: 1<<20 + 4444, Window: 1 << 10, Slots: 3}} {
						if testing.Short() && (channels > 1 || r.Window == 1<<10 && topo.Ranks > 6) {
							continue
						}
						checkFast(t, s, topo, r)
					}
				}
			}
		}
	}
	if rotated < 10 {
		t.Errorf("%d schedules are rotations of themselves: the fast path is not tested", rotated)
	}
}

func groups(t Topology) [][]int {
	g := make([][]int, t.domains())
	for r := range t.Ranks {
		g[r/t.domain()] = append(g[r/t.domain()], r)
	}
	return g
}

func checkFast(t *testing.T, s *schedule.Schedule, topo Topology, r Run) {
	t.Helper()
	name := fmt.Sprintf("%v %s, %d ranks in domains of %d, %d channels, %+v", s.Collective, s.Algorithm, topo.Ranks, topo.Domain, s.Channels, r)
	exact, err1 := simulate(s, topo, r, false)
	fast, err2 := simulate(s, topo, r, true)
	if err1 != nil || err2 != nil {
		t.Errorf("%s: %v, %v", name, err1, err2)
		return
	}
	if math.Abs(float64(exact-fast)) > 2+1e-6*float64(exact) {
		t.Errorf("%s: fast %v, exact %v", name, fast, exact)
	}
}

// TestBandwidthOptimal: large rings reach the bandwidth that theory gives.
func TestBandwidthOptimal(t *testing.T) {
	for _, n := range []int{2, 3, 8, 64} {
		topo := Topology{Ranks: n, Port: 10 * GBps, Latency: 100}
		s := newSchedule(t, op.AllReduce, schedule.Ring, schedule.Options{Ranks: n})
		const bytes = 10e9
		got, err := Simulate(s, topo, Run{Bytes: bytes})
		want := 2 * float64(n-1) / float64(n) * bytes / 10e9
		if err != nil || math.Abs(got.Seconds()/want-1) > 1e-3 {
			t.Errorf("%d ranks: %v, %v; want %.4f s", n, got, err, want)
		}
	}
}

// TestLarge: 1,440 ranks in 20 domains, where only the fast path can go.
func TestLarge(t *testing.T) {
	topo := Topology{Ranks: 1440, Domain: 72, Port: 700 * GBps, Uplink: 3000 * GBps, Latency: 3000, UplinkLatency: 14000}
	s := newSchedule(t, op.AllReduce, schedule.Ring, schedule.Options{Ranks: 1440})
	const bytes, windows = 1440 << 20, 2
	got, err := Simulate(s, topo, Run{Bytes: bytes, Window: bytes / 1440 / windows})
	// Every step of a domain's first rank waits for the network; the wave of
	// waiting takes the latency of as many steps as the ring has.
	low := 2 * 1439.0 / 1440 * bytes / 700e9
	high := low + windows*2878*14e-6
	if err != nil || got.Seconds() < low || got.Seconds() > high {
		t.Errorf("Simulate = %v, %v; want %.4f to %.4f s", got, err, low, high)
	}
}

// TestExtrapolation: where the pace of the first windows stands for all, it is
// nearly theirs.
func TestExtrapolation(t *testing.T) {
	topo := Topology{Ranks: 32, Domain: 8, Port: 250 * GBps, Latency: 4000, Uplink: 100 * GBps, UplinkLatency: 14000}
	s := newSchedule(t, op.AllReduce, schedule.DoubleTree, schedule.Options{Ranks: 32, Groups: groups(topo)})
	m := compile(s, topo, ncclSteps, topo.Ranks)
	const windows = 600
	runs, most := 0, 0
	run := func(n int) (float64, error) {
		runs, most = runs+1, max(most, n)
		return m.run(n, func(int) float64 { return 3 * mib })
	}
	exact, err := m.extrapolate(windows, run)
	if err != nil || runs != 1 {
		t.Fatalf("a small job takes %d runs, %v; want one, of all windows", runs, err)
	}
	idle := make([]task, exactWork/windows) // makes it too much work, and does nothing
	for i := range idle {
		idle[i].recv = -1
	}
	m.lane(idle)
	runs, most = 0, 0
	got, err := m.extrapolate(windows, run)
	if err != nil || math.Abs(got/exact-1) > 0.01 {
		t.Errorf("extrapolate(%d) = %.6f s, %v; want %.6f", windows, got, err, exact)
	}
	if runs != 2 || most != 2*paceFrom {
		t.Errorf("%d runs of up to %d windows; want two short ones", runs, most)
	}
}

func BenchmarkSimulate1440(b *testing.B) {
	topo := Topology{Ranks: 1440, Domain: 72, Port: 700 * GBps, Uplink: 3000 * GBps, Latency: 3000, UplinkLatency: 14000}
	s := newSchedule(b, op.AllReduce, schedule.Ring, schedule.Options{Ranks: 1440})
	for b.Loop() {
		if _, err := Simulate(s, topo, Run{Bytes: 16 << 30, Window: 1 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzSimulate: the fast way and the exact one agree on any ring and tree.
func FuzzSimulate(f *testing.F) {
	f.Add(uint8(6), uint8(2), uint16(900), uint32(70000), uint16(5000), uint8(3))
	f.Fuzz(func(t *testing.T, ranks, domain uint8, latency uint16, bytes uint32, window uint16, slots uint8) {
		n := 2 + int(ranks)%10
		d := 1 + int(domain)%n
		if n%d != 0 {
			d = n
		}
		topo := Topology{
			Ranks: n, Domain: d, Port: 3 * GBps, Uplink: GBps, Latency: time.Duration(latency), UplinkLatency: 2 * time.Duration(latency),
		}
		r := Run{Bytes: int64(bytes % (1 << 18)), Window: int64(window) + 200, Slots: schedule.MinSlots + int(slots)%8}
		for _, a := range []string{schedule.Ring, schedule.DoubleTree} {
			checkFast(t, newSchedule(t, op.AllReduce, a, schedule.Options{Ranks: n}), topo, r)
		}
	})
}
