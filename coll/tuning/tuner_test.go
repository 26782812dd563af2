package tuning

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/internal/golden"
)

var (
	fourLocal = Env{Ranks: 4, Cores: 4, Local: SHM}
	twoNodes  = Env{Ranks: 8, Groups: 2, Cores: 4, Local: SHM, Net: Socket}
)

func newTuner(t testing.TB, e Env, o Overrides, m *Measurements) *Tuner {
	t.Helper()
	u, err := NewTuner(e, o, m)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// only is a Filter that allows some names.
type only []string

func (o only) Allows(_ op.Collective, name string) bool {
	for _, n := range o {
		if n == name {
			return true
		}
	}
	return false
}

// deny is a Filter that denies one name to one collective.
type deny struct {
	c    op.Collective
	name string
}

func (d deny) Allows(c op.Collective, name string) bool { return c != d.c || name != d.name }

// TestPickTable: what the model picks, for people to judge.
func TestPickTable(t *testing.T) {
	var b strings.Builder
	for _, e := range []struct {
		name string
		Env
	}{
		{"4 ranks, shared memory, 4 cores", fourLocal},
		{"16 ranks, in one process, 2 cores", Env{Ranks: 16, Cores: 2, Local: InProcess}},
		{"4 ranks, sockets", Env{Ranks: 4, Groups: 4, Cores: 4, Local: SHM, Net: Socket}},
		{"8 ranks on 2 nodes", twoNodes},
	} {
		fmt.Fprintf(&b, "%s\n", e.name)
		u := newTuner(t, e.Env, NoOverrides, nil)
		for c := range op.NumCollectives {
			for _, size := range []int64{8, 4 << 10, 64 << 10, 1 << 20, 64 << 20, 1 << 30} {
				p := u.Rules().Pick(c, size)
				s, ok := u.Estimate(c, p, size)
				if !ok || s <= 0 || p.Channels < 1 || p.Window < 1 {
					t.Errorf("%s, %v of %d bytes: %+v, estimate %v", e.name, c, size, p, s)
				}
				fmt.Fprintf(&b, "  %-13v %10d  %-18s %-6s %d channels, window %7d, %.1f us\n", c, size, p.Algorithm, p.Protocol, p.Channels, p.Window, s*1e6)
			}
		}
	}
	golden.Check(t, "pick.golden", b.String())
}

// TestPickIsRunnable: each choice is a schedule that exists and runs.
func TestPickIsRunnable(t *testing.T) {
	for _, e := range []Env{
		{Ranks: 1, Local: SHM}, {Ranks: 2, Local: InProcess}, fourLocal, {Ranks: 7, Cores: 2, Local: SHM}, twoNodes,
		{Ranks: 5, Groups: 5, Local: SHM, Net: Socket}, {Ranks: 1024, Groups: 1, Cores: 2, Local: SHM},
	} {
		u := newTuner(t, e, NoOverrides, nil)
		for c := range op.NumCollectives {
			seen := map[Choice]bool{}
			for size := int64(0); size < 1<<38; size = size*2 + 1 {
				p := u.Rules().Pick(c, size)
				if seen[p] {
					continue
				}
				seen[p] = true
				topo := Topology{Ranks: e.Ranks, Domain: e.Ranks / max(1, e.Groups), Port: GBps, Uplink: GBps}
				s, err := schedule.New(c, p.Algorithm, schedule.Options{Ranks: e.Ranks, Channels: p.Channels, Groups: groups(topo)})
				if err != nil {
					t.Errorf("%d ranks, %v of %d bytes: %v", e.Ranks, c, size, err)
				} else if e.Ranks < 100 {
					if _, err := simulate(s, topo, Run{Bytes: 1000}, false); err != nil {
						t.Errorf("%d ranks, %v of %d bytes: %v", e.Ranks, c, size, err)
					}
				}
			}
		}
	}
}

// TestModelOrder: what theory says must come out, whatever the figures.
func TestModelOrder(t *testing.T) {
	u := newTuner(t, Env{Ranks: 64, Cores: 64, Local: SHM}, NoOverrides, nil)
	at := func(algorithm string, size int64) float64 {
		s, ok := u.Estimate(op.AllReduce, Choice{Algorithm: algorithm, Protocol: Simple, Channels: 1}, size)
		if !ok {
			t.Fatalf("no form of %s", algorithm)
		}
		return s
	}
	for _, tt := range []struct {
		fast, slow string
		size       int64
	}{
		{schedule.Recursive, schedule.Ring, 8}, {schedule.RecursiveDoubling, schedule.Recursive, 8},
		{schedule.Ring, schedule.RecursiveDoubling, 1 << 30}, {schedule.Ring, schedule.OneShot, 1 << 30},
		{schedule.DoubleTree, schedule.Tree, 1 << 30}, {schedule.Recursive, schedule.Tree, 1 << 30},
	} {
		if f, s := at(tt.fast, tt.size), at(tt.slow, tt.size); f >= s {
			t.Errorf("%d bytes: %s %.2g s, %s %.2g s; want the first to be faster", tt.size, tt.fast, f, tt.slow, s)
		}
	}
	nodes := newTuner(t, Env{Ranks: 64, Groups: 8, Cores: 8, Local: SHM, Net: Socket}, NoOverrides, nil)
	if p := nodes.Rules().Pick(op.AllReduce, 256<<20); p.Algorithm != schedule.Hierarchical && p.Algorithm != schedule.Ring && p.Algorithm != schedule.DoubleTree {
		t.Errorf("large AllReduce on 8 nodes by %s: every rank sends everything between nodes", p.Algorithm)
	}
}

func TestOverrides(t *testing.T) {
	with := func(f func(*Overrides)) Overrides { o := NoOverrides; f(&o); return o }
	sizes := []int64{0, 8, 1000, 4096, 65536, 1 << 20, 256 << 20, 1 << 40}
	for _, tt := range []struct {
		name string
		o    Overrides
		ok   func(c op.Collective, size int64, p Choice) bool
	}{
		{"algorithm", with(func(o *Overrides) { o.Algo = only{"ring", "one-shot"} }), func(_ op.Collective, _ int64, p Choice) bool {
			return p.Algorithm == "ring" || p.Algorithm == "one-shot"
		}},
		{"algorithm of one function", with(func(o *Overrides) { o.Algo = deny{op.AllReduce, "one-shot"} }), func(c op.Collective, _ int64, p Choice) bool {
			return c != op.AllReduce || p.Algorithm != "one-shot"
		}},
		{"protocol", with(func(o *Overrides) { o.Proto = only{"simple"} }), func(_ op.Collective, _ int64, p Choice) bool {
			return p.Protocol == Simple
		}},
		{"rings", with(func(o *Overrides) { o.Rings = [][]int{{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}} }), func(c op.Collective, _ int64, p Choice) bool {
			ring := schedule.Algorithms(c)[0] == schedule.Ring
			return ring == (p.Algorithm == schedule.Ring) && (!ring || p.Channels == 3)
		}},
		{"rings denied", with(func(o *Overrides) { o.Rings, o.Algo = [][]int{{0, 1, 2, 3}}, deny{op.Broadcast, "ring"} }), func(c op.Collective, _ int64, p Choice) bool {
			return c != op.Broadcast || p.Algorithm != schedule.Ring
		}},
		{"channels", with(func(o *Overrides) { o.MinChannels, o.MaxChannels = 3, 5 }), func(_ op.Collective, _ int64, p Choice) bool {
			return p.Channels >= 3 && p.Channels <= 5
		}},
		{"many channels", with(func(o *Overrides) { o.MinChannels = 20 }), func(_ op.Collective, _ int64, p Choice) bool { return p.Channels == 20 }},
		{"buffer", with(func(o *Overrides) { o.BuffSize = 64 << 10 }), func(_ op.Collective, _ int64, p Choice) bool { return p.Window <= 8<<10 }},
		{"single ring threshold", with(func(o *Overrides) { o.MinChannels, o.SingleRingThreshold = 4, 5000 }), func(_ op.Collective, size int64, p Choice) bool {
			return size < 5000 && p.Channels == 1 || size >= 5000 && p.Channels >= 4
		}},
		{"no single ring", with(func(o *Overrides) { o.MinChannels, o.SingleRingThreshold = 4, 0 }), func(_ op.Collective, _ int64, p Choice) bool { return p.Channels >= 4 }},
		{"LL threshold", with(func(o *Overrides) { o.LLThreshold = 5000 }), func(_ op.Collective, size int64, p Choice) bool {
			return (size < 5000) == (p.Protocol == LL)
		}},
		{"no LL", with(func(o *Overrides) { o.LLThreshold = 0 }), func(_ op.Collective, _ int64, p Choice) bool { return p.Protocol == Simple }},
		{"protocol wins over its threshold", with(func(o *Overrides) { o.LLThreshold, o.Proto = 5000, only{"simple"} }), func(_ op.Collective, _ int64, p Choice) bool { return p.Protocol == Simple }},
	} {
		u := newTuner(t, fourLocal, tt.o, nil)
		for c := range op.NumCollectives {
			for _, size := range append(sizes, 4999, 5000) {
				if p := u.Rules().Pick(c, size); tt.o.Algo == nil && tt.o.Proto == nil && p.Algorithm == "" || !tt.ok(c, size, p) {
					t.Errorf("%s: %v of %d bytes: %+v", tt.name, c, size, p)
				}
			}
		}
	}
}

func TestTunerErrors(t *testing.T) {
	with := func(f func(*Overrides)) Overrides { o := NoOverrides; f(&o); return o }
	for _, tt := range []struct {
		e    Env
		o    Overrides
		want string
	}{
		{Env{Local: SHM}, NoOverrides, "0 ranks"},
		{Env{Ranks: 2}, NoOverrides, "has no rate"},
		{Env{Ranks: 2, Groups: 2, Local: SHM}, NoOverrides, "between them has no rate"},
		{Env{Ranks: 2, Groups: 3, Local: SHM, Net: Socket}, NoOverrides, "3 groups"},
		{fourLocal, with(func(o *Overrides) { o.MinChannels, o.MaxChannels = 8, 4 }), "raise NCCL_MAX_NRINGS"},
		{fourLocal, with(func(o *Overrides) { o.BuffSize = -1 }), "negative"},
		{fourLocal, with(func(o *Overrides) { o.Algo = only{"ring"} }), "NCCL_ALGO leaves no algorithm for AllToAll here; there are one-shot, bruck"},
		{fourLocal, with(func(o *Overrides) { o.Proto = only{"ll128"} }), "there are ll, simple"},
	} {
		if _, err := NewTuner(tt.e, tt.o, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("NewTuner(%+v, %+v) = %v; want %q", tt.e, tt.o, err, tt.want)
		}
	}
}

func TestCandidates(t *testing.T) {
	u := newTuner(t, fourLocal, NoOverrides, nil)
	got := u.Candidates(op.AllReduce, 65536, 5)
	if len(got) != 5 {
		t.Fatalf("%d candidates; want 5", len(got))
	}
	last := 0.0
	for _, c := range got {
		s, ok := u.Estimate(op.AllReduce, c, 65536)
		if !ok || s < last {
			t.Errorf("candidate %+v takes %g s after %g s; want the fastest first", c, s, last)
		}
		last = s
	}
	if n := len(u.Candidates(op.SendRecv, 8, 1000)); n == 0 || n > 8 {
		t.Errorf("%d candidates for SendRecv; want 2 protocols by 4 numbers of channels at most", n)
	}
}

// TestMeasured: a measurement decides at its size, and bends the model around it.
func TestMeasured(t *testing.T) {
	plain := newTuner(t, fourLocal, NoOverrides, nil)
	const size = 1 << 20
	first := plain.Rules().Pick(op.AllReduce, size)
	model, _ := plain.Estimate(op.AllReduce, first, size)
	m := &Measurements{Schema: 1}
	m.Add(PointOf(fourLocal, op.AllReduce, first, size, 1)) // replaced by the next
	m.Add(PointOf(fourLocal, op.AllReduce, first, size, model*1e6*1000))
	if len(m.Points) != 1 {
		t.Fatalf("%d points; want the newer one only", len(m.Points))
	}
	tuned := newTuner(t, fourLocal, NoOverrides, m)
	if got := tuned.Rules().Pick(op.AllReduce, size); got.Algorithm == first.Algorithm && got.Protocol == first.Protocol && got.Channels == first.Channels {
		t.Errorf("Pick = %+v, which was measured to take a thousand times as long", got)
	}
	for _, at := range []int64{size, size / 2, size * 2} { // there, below and above all points
		was, _ := plain.Estimate(op.AllReduce, first, at)
		is, _ := tuned.Estimate(op.AllReduce, first, at)
		if math.Abs(is/was-1000) > 1 {
			t.Errorf("%d bytes: %.3g s after %.3g s; want 1000 times that", at, is, was)
		}
	}
	m.Add(PointOf(fourLocal, op.AllReduce, first, 16*size, 0.1))
	between := newTuner(t, fourLocal, NoOverrides, m)
	last := math.Inf(1)
	for at := int64(size); at <= 16*size; at *= 2 {
		was, _ := plain.Estimate(op.AllReduce, first, at)
		is, _ := between.Estimate(op.AllReduce, first, at)
		if is/was >= last {
			t.Errorf("%d bytes: factor %.3g after %.3g; want it to fall towards the second point", at, is/was, last)
		}
		last = is / was
	}
	other := newTuner(t, twoNodes, NoOverrides, m)
	if a, b := other.Rules().Pick(op.AllReduce, size), newTuner(t, twoNodes, NoOverrides, nil).Rules().Pick(op.AllReduce, size); a != b {
		t.Errorf("Pick = %+v, bent by measurements of another communicator; want %+v", a, b)
	}
}

func TestMeasurementsFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tune.json")
	m := &Measurements{Schema: 1, Machine: "node1"}
	m.Add(PointOf(twoNodes, op.AllReduce, Choice{Algorithm: "ring", Protocol: LL, Channels: 2}, 4096, 12.5))
	m.Add(PointOf(fourLocal, op.AllGather, Choice{Algorithm: "bruck", Channels: 1}, 64, 3))
	for range 2 { // over itself, too
		if err := m.Save(file); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadMeasurements(file)
	if err != nil {
		t.Fatal(err)
	}
	want := Measurements{Schema: 1, Machine: "node1", Points: []Point{m.Points[1], m.Points[0]}} // sorted
	if d := cmp.Diff(want, *got); d != "" {
		t.Errorf("LoadMeasurements (-want +got):\n%s", d)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files; want the saved one only", len(left))
	}
	m.Points[0].Micros = -1
	if err := m.Save(file); err == nil {
		t.Error("Save of a negative time succeeded")
	}
	if again, err := LoadMeasurements(file); err != nil || len(again.Points) != 2 {
		t.Errorf("after a failed Save: %v, %v; want the old file", again, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files after a failed Save; want one", len(left))
	}
	if _, err := LoadMeasurements(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("LoadMeasurements of nothing = %v", err)
	}
}

func TestReadMeasurementsErrors(t *testing.T) {
	const good = `{"schema":1,"machine":"m","points":[{"collective":"AllReduce","algorithm":"ring","protocol":"LL","channels":1,"ranks":4,"groups":1,"local":"SHM","bytes":8,"micros":2}]}`
	if _, err := ReadMeasurements(strings.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{`"schema":1`, `"schema":2`, "schema 2"}, {`"machine"`, `"maschine"`, "unknown field"}, {`"ring"`, `"rung"`, `no algorithm "rung"`},
		{`"AllReduce"`, `"AllToAll"`, `no algorithm "ring" for "AllToAll"`}, {`"LL"`, `"LL128"`, "no protocol"}, {`"ranks":4`, `"ranks":0`, "0 ranks"},
		{`"groups":1`, `"groups":5`, "5 groups"}, {`"micros":2`, `"micros":0`, "0 microseconds"}, {`"bytes":8`, `"bytes":-8`, "-8 bytes"},
		{`]}`, `]}{}`, "more after"}, {`{"schema"`, `["schema"`, "tuning measurements"},
	} {
		if _, err := ReadMeasurements(strings.NewReader(strings.Replace(good, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s for %s: %v; want %q", tt.new, tt.old, err, tt.want)
		}
	}
}

// FuzzReadMeasurements: what is accepted is written and read again unchanged,
// and a tuner can be made of it.
func FuzzReadMeasurements(f *testing.F) {
	f.Add([]byte(`{"schema":1,"machine":"","points":[{"collective":"AllReduce","algorithm":"ring","protocol":"LL","channels":1,"ranks":4,"groups":1,"local":"SHM","bytes":8,"micros":2}]}`))
	f.Add([]byte(`{"schema":1,"machine":"x","points":null}`))
	f.Add([]byte(goodGPUs))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ReadMeasurements(bytes.NewReader(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := m.Write(&out); err != nil {
			t.Fatalf("Write of what was accepted: %v", err)
		}
		again, err := ReadMeasurements(&out)
		if err != nil || len(again.Points) != len(m.Points) || len(again.GPUs) != len(m.GPUs) {
			t.Fatalf("read again: %v, %v", again, err)
		}
		newTuner(t, fourLocal, NoOverrides, m).Rules().Pick(op.AllReduce, 1000)
	})
}

func TestPickAllocatesNothing(t *testing.T) {
	u := newTuner(t, twoNodes, NoOverrides, nil)
	u.Rules().Pick(op.AllReduce, 8)
	var size int64
	if n := testing.AllocsPerRun(1000, func() { u.Rules().Pick(op.AllReduce, size); size += 4099 }); n != 0 {
		t.Errorf("Pick allocates %g times", n)
	}
}

func BenchmarkPick(b *testing.B) {
	u := newTuner(b, twoNodes, NoOverrides, nil)
	b.ReportAllocs()
	size := int64(1)
	for b.Loop() {
		u.Rules().Pick(op.AllReduce, size)
		size = size*5&(1<<30-1) | 1
	}
}

func BenchmarkNewTuner(b *testing.B) {
	for b.Loop() {
		u := newTuner(b, twoNodes, NoOverrides, nil)
		u.Rules().Pick(op.AllReduce, 8)
	}
}
