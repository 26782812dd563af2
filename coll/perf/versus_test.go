package perf

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/perf/commtest"
	"github.com/assay-hpc/assay/internal/golden"
)

// Modes, AllocMode and FreeMode make a testDevice a Moder.
func (d *testDevice) Modes() []string { return append([]string{plain}, d.modes...) }

func (d *testDevice) AllocMode(mode string, n int) ([]byte, error) {
	if err := d.Barrier(); err != nil { // every rank must call it
		return nil, err
	}
	return d.alloc(n, mode)
}

func (d *testDevice) FreeMode(mode string, b []byte) {
	if err := d.Barrier(); err != nil && !d.aborting {
		d.t.Error(err)
	}
	d.unmap(b, mode)
}

// A match is a comparison of engines: what the second one is, and the first.
type match struct {
	setup  setup
	modes  []string // of the rival
	rival  func(*commtest.World)
	second []*commtest.Comm
}

// against adds a rival to a setup, and clocks on which an operation of ours
// takes 2 ms, and one of the rival's 3 ms.
func (m *match) against(t *testing.T, n int) setup {
	s := m.setup
	world, wrap := s.world, s.wrap
	var ours []*commtest.Comm
	s.wrap = func(c Comm) Comm {
		ours = append(ours, c.(*commtest.Comm))
		if wrap != nil {
			c = wrap(c)
		}
		return c
	}
	s.world = func(w *World) {
		if world != nil {
			world(w)
		}
		var tw *commtest.World
		tw, m.second = commtest.New(n)
		if m.rival != nil {
			m.rival(tw)
		}
		r := Rival{Engine: "rival", Version: 22803}
		for i, c := range m.second {
			if d := deviceOf(w.Comms[i]); d != nil {
				r.Comms = append(r.Comms, &testDevice{Comm: c, t: t, mems: d.mems, modes: m.modes, counts: map[string]int{}})
			} else {
				r.Comms = append(r.Comms, c)
			}
		}
		w.Against = []Rival{r}
		abort := w.Abort
		w.Abort = func(err error) { abort(err); tw.Abort(err) }
	}
	s.host = func(h *host) {
		clocks := 0
		h.newClock = func() clock {
			mine, its := ours[clocks], m.second[clocks]
			clocks++
			return func() time.Duration {
				sum := func(calls map[string]int) (n int) {
					for op, k := range calls {
						if op != "barrier" && op != "exchange" && op != "group" {
							n += k
						}
					}
					return n
				}
				return time.Duration(2*sum(mine.Calls)+3*sum(its.Calls)) * time.Millisecond
			}
		}
	}
	return s
}

func deviceOf(c Comm) *testDevice {
	switch d := c.(type) {
	case *testDevice:
		return d
	case *badDevice:
		return d.testDevice
	case *namingDevice:
		return d.testDevice
	case *registrar:
		return d.testDevice
	}
	return nil
}

// TestVersusText holds the tables of comparisons against golden files.
func TestVersusText(t *testing.T) {
	for name, tt := range map[string]struct {
		op    string
		line  string
		modes []string
		cpu   bool
	}{
		"versus-cpu":       {"all_reduce", "-b 1K -e 4K -f 4 --versus NCCL_ALGO=Ring", nil, true},
		"versus":           {"all_reduce", "-b 1K -e 4K -f 4 --versus nccl", []string{symmetric}, false},
		"versus-best":      {"alltoall", "-b 8 -e 4K -f 512 --versus best -n 3 --repeat 2", []string{symmetric}, false},
		"versus-bench":     {"reduce", "-b 1K -e 1K --versus nccl --graph on --bench --repeat 2", nil, false},
		"versus-reduction": {"reduce_scatter", "-b 1K -e 1K --versus nccl --graph off -n 2 -o all -d half -m 2", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			var f fleet
			m := match{modes: tt.modes}
			if !tt.cpu {
				m.setup = f.setup(t, 1<<20)
			}
			o := bench(t, tt.op, 2, tt.line, m.against(t, 2))
			if o.fail != nil || o.err != "" {
				t.Errorf("error %v, stderr %q", o.fail, o.err)
			}
			for _, c := range m.second {
				if c.Sums() != 0 || c.Calls["exchange"]+c.Calls["group"] > 0 && !strings.Contains(tt.line, "-m") {
					t.Errorf("the rival has %d reductions left; calls %v", c.Sums(), c.Calls)
				}
			}
			goarch := regexp.MustCompile(`(?m)^goarch: .*`)
			golden.Check(t, name+".txt", goarch.ReplaceAllString(o.out, "goarch: ARCH"))
		})
	}
}

// TestVersusInTurns: the engines take turns, repetition by repetition.
func TestVersusInTurns(t *testing.T) {
	var order []string
	note := func(who string) func(*commtest.World) {
		return func(w *commtest.World) {
			w.Before = func(c *commtest.Comm, _ string) error {
				if n := len(order); n == 0 || order[n-1] != who {
					order = append(order, who)
				}
				return nil
			}
		}
	}
	m := match{rival: note("b")}
	m.setup.test = note("a")
	o := bench(t, "all_reduce", 1, "-b 64 -e 64 --versus nccl -n 7 --repeat 3", m.against(t, 1))
	// enough, warm, three repetitions, verification: in both placements
	if got, want := strings.Join(order, ""), strings.Repeat("ab", 2*(1+1+3+1)); got != want || o.fail != nil {
		t.Errorf("order %s; want %s (%v)", got, want, o.fail)
	}
}

// TestVersusDocument: the document of a comparison.
func TestVersusDocument(t *testing.T) {
	var f fleet
	m := match{setup: f.setup(t, 1<<20), modes: []string{symmetric}}
	o := bench(t, "all_gather", 2, "-b 64 -e 256 -f 4 --versus nccl --output json --repeat 3", m.against(t, 2))
	var doc Document
	d := json.NewDecoder(strings.NewReader(o.out))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil || o.fail != nil {
		t.Fatalf("%v, %v\n%s", err, o.fail, o.out)
	}
	const sizes, placements, launches, kinds = 2, 2, 2, 2
	v := doc.Versus
	if len(doc.Rows) != 0 || v == nil || len(v.Rows) != sizes*placements*launches*kinds || len(v.Ratios) != launches {
		t.Fatalf("%+v", doc)
	}
	want := VersusRow{
		Bytes: 64, Count: 8, Type: "float", Redop: "none", Root: -1, InPlace: false, Graph: true, Memory: symmetric, Iterations: 5,
		Engines: []EngineTime{
			{Engine: "test", Time: 2000, Times: []float64{2000, 2000, 2000}, AlgBW: 3.2e-05, BusBW: 1.6e-05},
			{Engine: "rival", Time: 3000, Times: []float64{3000, 3000, 3000}, AlgBW: 64 / 3e6, BusBW: 64 / 6e6, Ratio: 1.5},
		},
	}
	if d := cmp.Diff(want, v.Rows[3]); d != "" {
		t.Errorf("row (-want +got):\n%s", d)
	}
	for _, r := range v.Ratios {
		if r.Worst != 1.5 || r.Mean < 1.499 || r.Mean > 1.501 || r.Engine != "rival" || r.Rows != 8 {
			t.Errorf("%+v", r)
		}
	}
}

// TestVersusVerifies: what either engine does wrong shows, in its column, on
// each kind of memory, with graphs and without.
func TestVersusVerifies(t *testing.T) {
	spoil := func(w *commtest.World) {
		w.After = func(_ *commtest.Comm, _ string, _, recv []byte) { recv[len(recv)-1] ^= 1 }
	}
	for _, how := range []string{"nccl", "best"} {
		for guilty := range 2 {
			var f fleet
			m := match{setup: f.setup(t, 1<<20), modes: []string{symmetric}}
			if guilty == 0 {
				m.setup.test = spoil
			} else {
				m.rival = spoil
			}
			o := bench(t, "all_reduce", 2, "-b 64 -e 64 -n 1 --repeat 1 --versus "+how, m.against(t, 2))
			if o.res.Status != BadData || o.fail != nil || o.res.Versus == nil {
				t.Fatalf("%s: status %d, %v", how, o.res.Status, o.fail)
			}
			for _, row := range o.res.Versus.Rows {
				if bad, good := row.Engines[guilty].Wrong, row.Engines[1-guilty].Wrong; bad == 0 || good != 0 {
					t.Errorf("%s: wrong %d and %d: %+v", how, bad, good, row)
				}
			}
		}
	}
}

// TestBest: each engine counts on the kind of memory on which it is fastest, and what was wrong on any.
func TestBest(t *testing.T) {
	row := func(graph bool, memory string, ours, theirs float64, wrong int64) VersusRow {
		return VersusRow{Graph: graph, Memory: memory, Engines: []EngineTime{{Time: ours}, {Time: theirs, Wrong: wrong, Ratio: theirs / ours}}}
	}
	got := best([]VersusRow{row(false, "a", 1, 4, 0), row(true, "a", 3, 5, -1), row(false, "b", 2, 3, 0), row(true, "b", 1, 6, -1), row(false, "c", 1, 9, 7)})
	want := []VersusRow{row(false, "b", 1, 3, 7), row(true, "a", 1, 5, -1)}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("best (-want +got):\n%s", d)
	}
}

// TestVersusRefused: what cannot be compared is said.
func TestVersusRefused(t *testing.T) {
	none := func(w *World) { w.Against = nil }
	for line, tt := range map[string]struct {
		change  func(*World)
		environ string
		status  Status
		text    string
	}{
		"--versus nccl":            {none, "", NotImplemented, "there is no other engine"},
		"--versus best --graph on": {nil, "", InvalidUsage, "only GPUs have graphs"},
		"--versus best":            {nil, "NCCL_TESTS_SPLIT=%2", InvalidUsage, "groups of ranks"},
		"--versus A=B":             {func(w *World) { w.Against[0].Comms = nil }, "", InternalError, "rival has 0 ranks here, not 2"},
		"--versus A=B -o mulsum":   {func(w *World) { w.Against[0].Comms[1] = struct{ Comm }{w.Against[0].Comms[1]} }, "", NotImplemented, "no sums with scalars"},
	} {
		var m match
		s := m.against(t, 2)
		world := s.world
		s.world = func(w *World) {
			world(w)
			if tt.change != nil {
				tt.change(w)
			}
		}
		s.environ = []string{tt.environ}
		o := bench(t, "reduce", 2, "-b 8 -e 8 "+line, s)
		var f *Failure
		if !errors.As(o.fail, &f) || f.Status != tt.status || !strings.Contains(f.Error(), tt.text) {
			t.Errorf("%s: %v; want status %d and %q", line, o.fail, tt.status, tt.text)
		}
	}
}

// TestRegister: -R 2 puts the buffers into the engine's symmetric memory.
func TestRegister(t *testing.T) {
	for line, want := range map[string]string{"-R 2": symmetric, "-R 1": plain, "": plain} {
		var f fleet
		s := f.setup(t, 1<<20)
		wrap, seen := s.wrap, ""
		s.wrap = func(c Comm) Comm {
			d := wrap(c).(*testDevice)
			d.modes = []string{symmetric}
			return d
		}
		s.test = func(w *commtest.World) {
			w.Before = func(c *commtest.Comm, _ string) error {
				if c.Rank() == 0 {
					seen = (*f[0].mems)[0].mode
				}
				return nil
			}
		}
		o := bench(t, "all_reduce", 2, "-b 64 -e 64 -n 1 "+line, s)
		if note := strings.Contains(o.out, "do nothing: -R"); o.fail != nil || seen != want || note != (line == "-R 1") {
			t.Errorf("%q: %v, buffers are %s; want %s\n%s", line, o.fail, seen, want, o.out)
		}
	}
}

// A registrar is a device of which memory can be registered.
type registrar struct {
	*testDevice
	registered, calls int // of the memory that is there; of Register
}

func (r *registrar) Register(b []byte) error {
	r.registered++
	r.calls++
	return r.Barrier()
}

func (r *registrar) Deregister(b []byte) {
	r.registered--
	r.real(b) // it is still there
}

// TestRegistrar: -R 2 registers the buffers of an engine without memory of its own kind. Of a
// comparison it registers the memory of the rival's kind.
func TestRegistrar(t *testing.T) {
	for line, want := range map[string]int{"-R 2": 2, "-R 1": 0, "": 0, "--versus nccl": 2} {
		var f fleet
		s := f.setup(t, 1<<20)
		wrap := s.wrap
		var all []*registrar
		s.wrap = func(c Comm) Comm {
			r := &registrar{testDevice: wrap(c).(*testDevice)}
			all = append(all, r)
			return r
		}
		if strings.Contains(line, "versus") {
			m := match{setup: s, modes: []string{symmetric}}
			s = m.against(t, 2)
		}
		o := bench(t, "all_reduce", 2, "-b 64 -e 64 -n 1 "+line, s)
		if o.fail != nil || len(all) != 2 || strings.Contains(o.out, "do nothing: -R") != (line == "-R 1") {
			t.Errorf("%q: %v\n%s", line, o.fail, o.out)
		}
		for _, r := range all {
			if r.calls != want || r.registered != 0 {
				t.Errorf("%q: %d registrations, of which %d remain; want %d and 0", line, r.calls, r.registered, want)
			}
		}
	}
}

// TestVersusAbort: an error of the rival ends the run, and is its own.
func TestVersusAbort(t *testing.T) {
	broken := errors.New("unhandled system error")
	var f fleet
	m := match{setup: f.setup(t, 1<<20), rival: func(w *commtest.World) {
		w.Before = func(c *commtest.Comm, _ string) error {
			if c.Rank() == 1 && c.Calls["all_reduce"] > 3 {
				return broken
			}
			return nil
		}
	}}
	o := bench(t, "all_reduce", 2, "-b 64 -e 64 -n 4 --versus nccl", m.against(t, 2))
	var fail *Failure
	if !errors.As(o.fail, &fail) || !errors.Is(fail, broken) || fail.Status != EngineError || fail.Rank != 1 {
		t.Errorf("%v", o.fail)
	}
}

// TestFailureBesideSharedMemory: a rank that fails alone does not wait for the
// others to free memory with it.
func TestFailureBesideSharedMemory(t *testing.T) {
	broken := errors.New("out of resources")
	var f fleet
	m := match{setup: f.setup(t, 1<<20), modes: []string{symmetric}}
	s := m.against(t, 2)
	wrap := s.wrap
	s.wrap = func(c Comm) Comm {
		d := wrap(c).(*testDevice)
		if d.Rank() == 1 {
			return &badDevice{testDevice: d, fill: broken}
		}
		return d
	}
	world := s.world
	s.world = func(w *World) {
		world(w)
		for _, c := range w.Against[0].Comms {
			c.(*testDevice).aborting = true
		}
	}
	if o := bench(t, "all_reduce", 2, "-b 64 -e 64 -n 1 --versus best", s); !errors.Is(o.fail, broken) {
		t.Errorf("%v", o.fail)
	}
}
