package choose

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/predict"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/internal/golden"
)

// fourLocal and twoNodes are communicators that nothing was measured for.
func fourLocal(t testing.TB, settings ...string) *Env {
	return testEnv(t, []int{4}, 4, Transport{}, settings...)
}

func twoNodes(t testing.TB) *Env { return testEnv(t, []int{4, 4}, 4, Socket) }

// reckon says what a tuner reckons an operation to take, in seconds. Sizes are as
// fill counts them.
func reckon(t testing.TB, u *Tuner, c op.Collective, want Choice, bytes int64) float64 {
	t.Helper()
	seconds := -1.0
	u.candidates(c, u.series(c), bytes, bytes, func(k candidate) {
		if k.Algorithm == want.Algorithm && k.Protocol == want.Protocol && k.Channels == want.Channels {
			seconds = k.seconds
		}
	})
	if seconds <= 0 {
		t.Fatalf("%v by %v: %g s", c, want, seconds)
	}
	return seconds
}

// at is a size as Pick counts it.
func at(u *Tuner, c op.Collective, bytes int64) int { return int(bytes) / c.Longest(u.ranks) }

// TestPickTable: what the model picks, for people to judge.
func TestPickTable(t *testing.T) {
	var b strings.Builder
	for _, e := range []struct {
		name string
		*Env
	}{
		{"4 ranks, shared memory, 4 cores", fourLocal(t)},
		{"16 ranks, shared memory, 2 cores", testEnv(t, []int{16}, 2, Transport{})},
		{"4 ranks, sockets", testEnv(t, []int{1, 1, 1, 1}, 4, Socket)},
		{"8 ranks on 2 nodes", twoNodes(t)},
	} {
		fmt.Fprintf(&b, "%s\n", e.name)
		u := tunerOf(t, e.Env)
		for c := range op.NumCollectives {
			for _, size := range []int64{8, 4 << 10, 64 << 10, 1 << 20, 64 << 20, 1 << 30} {
				p := u.Pick(c, at(u, c, size))
				s := reckon(t, u, c, p, size)
				fmt.Fprintf(&b, "  %-13v %10d  %-18s %-6s %d channels, window %7d, %.1f us\n", c, size, p.Algorithm, p.Protocol, p.Channels, p.Window, s*1e6)
			}
		}
	}
	golden.Check(t, "pick.golden", b.String())
}

// TestPickIsRunnable: each choice is a schedule that exists and runs.
func TestPickIsRunnable(t *testing.T) {
	for _, e := range []*Env{
		testEnv(t, []int{1}, 1, Transport{}), testEnv(t, []int{2}, 2, Transport{}), fourLocal(t), testEnv(t, []int{7}, 2, Transport{}), twoNodes(t),
		testEnv(t, []int{1, 1, 1, 1, 1}, 1, Socket), testEnv(t, []int{1024}, 2, Transport{}),
	} {
		u := tunerOf(t, e)
		for c := range op.NumCollectives {
			seen := map[Choice]bool{}
			for size := 0; size < 1<<38; size = size*2 + 1 {
				p := u.Pick(c, size)
				if seen[p] {
					continue
				}
				seen[p] = true
				s, err := schedule.New(c, p.Algorithm, schedule.Options{Ranks: u.ranks, Channels: p.Channels, Groups: e.Hosts})
				if err != nil {
					t.Errorf("%d ranks, %v of %d bytes: %v", u.ranks, c, size, err)
				} else if u.ranks < 100 {
					topo := predict.Topology{Ranks: u.ranks, Domain: u.ranks / u.groups, Port: predict.GBps, Uplink: predict.GBps}
					if _, err := predict.Simulate(s, topo, predict.Run{Bytes: 1000}); err != nil {
						t.Errorf("%d ranks, %v of %d bytes: %v", u.ranks, c, size, err)
					}
				}
			}
		}
	}
}

// TestModelOrder: what theory says must come out, whatever the figures.
func TestModelOrder(t *testing.T) {
	u := tunerOf(t, testEnv(t, []int{63}, 63, Transport{}))
	time := func(algorithm string, size int64) float64 {
		return reckon(t, u, op.AllReduce, Choice{Algorithm: algorithm, Protocol: Simple, Channels: 1}, size)
	}
	for _, tt := range []struct {
		fast, slow string
		size       int64
	}{
		{schedule.Recursive, schedule.Ring, 8}, {schedule.RecursiveDoubling, schedule.Recursive, 8},
		{schedule.Ring, schedule.RecursiveDoubling, 1 << 30}, {schedule.Ring, schedule.OneShot, 1 << 30},
		{schedule.DoubleTree, schedule.Tree, 1 << 30}, {schedule.Recursive, schedule.Tree, 1 << 30},
	} {
		if f, s := time(tt.fast, tt.size), time(tt.slow, tt.size); f >= s {
			t.Errorf("%d bytes: %s %.2g s, %s %.2g s; want the first to be faster", tt.size, tt.fast, f, tt.slow, s)
		}
	}
	nodes := tunerOf(t, testEnv(t, []int{8, 8, 8, 8, 8, 8, 8, 8}, 8, Socket))
	if p := nodes.Pick(op.AllReduce, 256<<20); p.Algorithm != schedule.Hierarchical && p.Algorithm != schedule.Ring && p.Algorithm != schedule.DoubleTree {
		t.Errorf("large AllReduce on 8 nodes by %s: every rank sends everything between nodes", p.Algorithm)
	}
}

func TestOverrides(t *testing.T) {
	sizes := []int64{0, 8, 1000, 4096, 4999, 5000, 65536, 1 << 20, 256 << 20, 1 << 40}
	for _, tt := range []struct {
		settings string
		ok       func(c op.Collective, size int64, p Choice) bool
	}{
		{"NCCL_ALGO=ring,one-shot", func(_ op.Collective, _ int64, p Choice) bool {
			return p.Algorithm == "ring" || p.Algorithm == "one-shot"
		}},
		{"NCCL_ALGO=allreduce:^one-shot", func(c op.Collective, _ int64, p Choice) bool {
			return c != op.AllReduce || p.Algorithm != "one-shot"
		}},
		{"NCCL_ALGO=allreduce:collnetdirect", func(_ op.Collective, _ int64, p Choice) bool { return p.Algorithm != schedule.CollNet }},
		{"NCCL_PROTO=simple", func(c op.Collective, _ int64, p Choice) bool { return p.Protocol == Simple || c > op.ReduceScatter }}, // NCCL has no others
		{"NCCL_RINGS=0_1_2_3|0_2_1_3|0_1_3_2", func(c op.Collective, _ int64, p Choice) bool {
			ring := schedule.Algorithms(c)[0] == schedule.Ring
			return ring == (p.Algorithm == schedule.Ring) && (!ring || p.Channels == 3)
		}},
		{"NCCL_RINGS=0_1_2_3 NCCL_ALGO=broadcast:^ring", func(c op.Collective, _ int64, p Choice) bool {
			return c != op.Broadcast || p.Algorithm != schedule.Ring
		}},
		{"NCCL_MIN_NRINGS=3 NCCL_MAX_NRINGS=5", func(_ op.Collective, _ int64, p Choice) bool { return p.Channels >= 3 && p.Channels <= 5 }},
		{"NCCL_MIN_NRINGS=20", func(_ op.Collective, _ int64, p Choice) bool { return p.Channels == 20 }},
		{"NCCL_BUFFSIZE=65536", func(_ op.Collective, _ int64, p Choice) bool { return p.Window <= 8<<10 }},
		{"NCCL_MIN_NRINGS=4 NCCL_SINGLE_RING_THRESHOLD=5000", func(_ op.Collective, size int64, p Choice) bool {
			return size < 5000 && p.Channels == 1 || size >= 5000 && p.Channels >= 4
		}},
		{"NCCL_MIN_NRINGS=4 NCCL_SINGLE_RING_THRESHOLD=0", func(_ op.Collective, _ int64, p Choice) bool { return p.Channels >= 4 }},
		{"NCCL_LL_THRESHOLD=5000", func(_ op.Collective, size int64, p Choice) bool { return (size < 5000) == (p.Protocol == LL) }},
		{"NCCL_LL_THRESHOLD=0", func(_ op.Collective, _ int64, p Choice) bool { return p.Protocol == Simple }},
		{"NCCL_LL_THRESHOLD=5000 NCCL_PROTO=simple", func(c op.Collective, _ int64, p Choice) bool {
			return p.Protocol == Simple || c > op.ReduceScatter
		}},
	} {
		u := tunerOf(t, fourLocal(t, fields(tt.settings)...))
		for c := range op.NumCollectives {
			for _, size := range sizes {
				n := int64(at(u, c, size) * c.Longest(u.ranks))
				if p := u.Pick(c, at(u, c, size)); p.Algorithm == "" || !tt.ok(c, n, p) {
					t.Errorf("%s: %v of %d bytes: %+v", tt.settings, c, n, p)
				}
			}
		}
	}
}

// fields are settings with spaces between them; in lists of rings _ stands for one.
func fields(settings string) []string {
	all := strings.Fields(settings)
	for i, s := range all {
		if rings, ok := strings.CutPrefix(s, "NCCL_RINGS="); ok {
			all[i] = "NCCL_RINGS=" + strings.ReplaceAll(rings, "_", " ")
		}
	}
	return all
}

func TestTunerErrors(t *testing.T) {
	for _, tt := range []struct {
		e    *Env
		want string
	}{
		{new(Env), "0 ranks"},
		{testEnv(t, []int{1, 1}, 1, Transport{}), `2 hosts over "SHM" and ""`},
		{testEnv(t, []int{2}, 2, Transport{}, "NCCL_SHM_DISABLE=1"), `over "" and ""`},
	} {
		if _, err := tt.e.Tuner(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Tuner() = %v; want %q", err, tt.want)
		}
	}
}

// TestUnlimited: a collective that NCCL_ALGO leaves no algorithm may use all, and the tuner says so.
func TestUnlimited(t *testing.T) {
	for _, tt := range []struct {
		e    *Env
		c    op.Collective // one that uses all
		want string
	}{
		{fourLocal(t, "NCCL_ALGO=Tree"), op.AllGather, "NCCL_ALGO=Tree leaves no algorithm for AllGather, ReduceScatter; all may run"},
		{fourLocal(t, "NCCL_ALGO=ring", "ASSAY_SAME_BITS=1"), op.AllReduce, "NCCL_ALGO=ring leaves no algorithm for AllReduce, Reduce, ReduceScatter with ASSAY_SAME_BITS=1; all may run"},
		{fourLocal(t, "NCCL_ALGO=ring"), op.AllToAll, ""},
	} {
		free := *tt.e
		free.Algo = knob.Filter{}
		got, all := tunerOf(t, tt.e), tunerOf(t, &free)
		if got.Warning != tt.want || got.Pick(tt.c, 4096) != all.Pick(tt.c, 4096) {
			t.Errorf("%q, %+v; want %q, %+v", got.Warning, got.Pick(tt.c, 4096), tt.want, all.Pick(tt.c, 4096))
		}
	}
}

// TestTotal: whatever the ranks, their hosts and their settings, a tuner says how
// each operation is done, or why there can be none, and one that is made anew says the same.
func TestTotal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	made := 0
	for range 200 {
		hosts := make([]int, 1+random.IntN(4))
		for i := range hosts {
			hosts[i] = 1 + random.IntN(9)
		}
		var settings []string
		for _, s := range []string{
			one("", "NCCL_ALGO=ring,tree,one-shot", "NCCL_ALGO=^double-tree", "NCCL_ALGO=allreduce:collnetdirect", "NCCL_ALGO=tree"), one("", "NCCL_PROTO=LL", "NCCL_PROTO=^LL"),
			one("", "NCCL_MIN_NRINGS=3", "NCCL_MAX_NRINGS=2"), one("", "NCCL_BUFFSIZE=20000"), one("", "NCCL_LL_THRESHOLD=777"), one("", "NCCL_SINGLE_RING_THRESHOLD=12345"), one("", "NCCL_SHM_DISABLE=1"), one("", "ASSAY_SAME_BITS=1"), one("", "ASSAY_TUNING=testdata/own.json"),
		} {
			if s != "" {
				settings = append(settings, s)
			}
		}
		net := []Transport{Socket, Network{Mbit: 1 + random.IntN(400_000)}.Transport("IB")}[random.IntN(2)]
		cores := 1 + random.IntN(10)
		e := testEnv(t, hosts, cores, net, settings...)
		u, err := e.Tuner()
		if err != nil {
			t.Errorf("%v: %v", settings, err)
			continue
		}
		made++
		again := tunerOf(t, testEnv(t, hosts, cores, net, settings...))
		for c := op.NumCollectives - 1; c < op.NumCollectives; c-- { // in another order
			for n := 1; n < 1<<40; n *= 3 {
				a, b := u.Pick(c, n), again.Pick(c, n)
				if e.SameBits && !schedule.InOrder(c, a.Algorithm) {
					t.Fatalf("%v of %d bytes on %v with %v: %+v", c, n, hosts, settings, a)
				}
				if a != b || a.Algorithm == "" || a.Channels < 1 || a.Channels > e.Channels() || a.Window < 1 || a.Window > int64(e.Slot) {
					t.Fatalf("%v of %d bytes on %v with %v: %+v and %+v", c, n, hosts, settings, a, b)
				}
			}
		}
	}
	if made < 50 {
		t.Errorf("%d of 200 Envs have a tuner", made)
	}
}

// TestLogarithms: ours are those of package math, but for rounding.
func TestLogarithms(t *testing.T) {
	for x := 1e-12; x < 1e15; x *= 1.37 {
		if l := math.Log(x); math.Abs(ln(x)-l) > 1e-14*max(1, math.Abs(l)) || math.Abs(exp(l)-x) > 1e-13*x {
			t.Errorf("ln(%g) = %g, exp(%g) = %g", x, ln(x), l, exp(l))
		}
	}
}

func TestCandidates(t *testing.T) {
	u := tunerOf(t, fourLocal(t, "NCCL_MIN_NCHANNELS=2"))
	last := 0.0
	for _, c := range u.Candidates(op.AllReduce, 65536) {
		if s := reckon(t, u, op.AllReduce, c, 65536); s < last {
			t.Errorf("candidate %+v takes %g s after %g s; want the fastest first", c, s, last)
		} else {
			last = s
		}
	}
	if n := len(u.Candidates(op.SendRecv, 8)); n != 2 {
		t.Errorf("%d candidates for SendRecv; want 2 protocols", n)
	}
}

// TestMeasured: a measurement decides at its size, and bends the model around it.
func TestMeasured(t *testing.T) {
	plain := tunerOf(t, fourLocal(t))
	const size = 1 << 20
	first := plain.Pick(op.AllReduce, size)
	model := reckon(t, plain, op.AllReduce, first, size)
	tables := new(Tables)
	tuned := func(e *Env) *Tuner {
		e.Tuning.Tables = tables
		return tunerOf(t, e)
	}
	points := tables.At(plain.Place(op.AllReduce))
	points.Put(first, size, 1) // replaced by the next
	points.Put(first, size, int64(model*1e9*1000))
	if len(points.Rows) != 1 || len(points.Rows[0].Took) != 1 {
		t.Fatalf("%+v; want the newer one only", points)
	}
	u := tuned(fourLocal(t))
	if got := u.Pick(op.AllReduce, size); got.String() == first.String() {
		t.Errorf("Pick = %+v, which was measured to take a thousand times as long", got)
	}
	factor := func(u *Tuner, bytes int64) float64 {
		return reckon(t, u, op.AllReduce, first, bytes) / reckon(t, plain, op.AllReduce, first, bytes)
	}
	for _, at := range []int64{size, size / 2, size * 2} { // there, below and above all points
		if f := factor(u, at); math.Abs(f-1000) > 20 { // messages are not as long as those it was measured with
			t.Errorf("%d bytes take %g times as long; want 1000 times", at, f)
		}
	}
	points.Put(first, 16*size, 100)
	u = tuned(fourLocal(t))
	last := math.Inf(1)
	for at := int64(size); at <= 16*size; at *= 2 {
		if f := factor(u, at); f >= last {
			t.Errorf("%d bytes: factor %.3g after %.3g; want it to fall towards the second point", at, f, last)
		} else {
			last = f
		}
	}
	if a, b := tuned(twoNodes(t)).Pick(op.AllReduce, size), tunerOf(t, twoNodes(t)).Pick(op.AllReduce, size); a != b {
		t.Errorf("Pick = %+v, bent by measurements of another communicator; want %+v", a, b)
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	u := tunerOf(t, twoNodes(t))
	size := 0
	if n := testing.AllocsPerRun(1000, func() { u.Pick(op.AllReduce, size); size += 4099 }); n != 0 {
		t.Errorf("Pick allocates %g times", n)
	}
}

func BenchmarkPick(b *testing.B) {
	u := tunerOf(b, twoNodes(b))
	b.ReportAllocs()
	size := 1
	for b.Loop() {
		u.Pick(op.AllReduce, size)
		size = size*5&(1<<30-1) | 1
	}
}

func BenchmarkTuner(b *testing.B) {
	e := testEnv(b, []int{2}, 2, Transport{})
	for b.Loop() {
		tunerOf(b, e).Pick(op.AllReduce, 8)
	}
}
