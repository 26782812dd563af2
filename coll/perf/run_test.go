package perf

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/perf/commtest"
)

var start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// fakeHost is a machine with its own clock: each reading of a rank's is a
// little further on than the one before, the same in every run.
func fakeHost() host {
	now := start
	return host{
		name: "node", pid: 4242,
		root: fstest.MapFS{
			"proc/meminfo":     {Data: []byte("MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n")},
			"proc/cpuinfo":     {Data: []byte("processor\t: 0\nmodel name\t: Test   Processor 9000\n")},
			"proc/self/status": {Data: []byte("Name:\tharness\nVmRSS:\t   20480 kB\n")},
		},
		now: func() time.Time { now = now.Add(time.Second); return now },
		newClock: func() clock {
			var t time.Duration
			n := 0
			return func() time.Duration {
				n++
				t += time.Duration(1000+37*(n%11)) * time.Microsecond
				return t
			}
		},
	}
}

// An outcome is all that a run gave.
type outcome struct {
	out, err string
	res      *Result
	fail     error
	comms    []*commtest.Comm
}

// A setup changes a run before it starts.
type setup struct {
	environ []string
	world   func(*World)
	test    func(*commtest.World)
	wrap    func(Comm) Comm
	host    func(*host)
	term    bool
	ctx     context.Context
}

// bench runs a benchmark on n ranks of one process.
func bench(t *testing.T, op string, n int, line string, s setup) outcome {
	t.Helper()
	cfg, err := Parse(op, "", strings.Fields(fmt.Sprintf("-t %d %s", n, line)))
	if err != nil {
		t.Fatal(err)
	}
	tw, comms := commtest.New(n)
	if s.test != nil {
		s.test(tw)
	}
	w := World{Engine: "test", Version: 23007, Abort: tw.Abort, Split: func(c Comm, color int) (Comm, error) { return c.(*commtest.Comm).Split(color) }}
	for _, c := range comms {
		var pc Comm = c
		if s.wrap != nil {
			pc = s.wrap(c)
		}
		w.Comms = append(w.Comms, pc)
	}
	if s.world != nil {
		s.world(&w)
	}
	h := fakeHost()
	if s.host != nil {
		s.host(&h)
	}
	if s.ctx == nil {
		s.ctx = t.Context()
	}
	var o outcome
	var out, errOut strings.Builder
	o.res, o.fail = newSession(cfg, w, Streams{Out: &out, Err: &errOut, Terminal: s.term, Environ: s.environ}, h).run(s.ctx)
	o.out, o.err, o.comms = out.String(), errOut.String(), comms
	for r, c := range comms {
		if c.Leaked() != 0 || c.Sums() != 0 {
			t.Errorf("rank %d leaves %d buffers and %d reductions", r, c.Leaked(), c.Sums())
		}
	}
	return o
}

// TestRounds: verification goes on for -c rounds, or until one fails; timing
// takes iterations × aggregation, grouped.
func TestRounds(t *testing.T) {
	count := func(line string, s setup) map[string]int { return bench(t, "all_reduce", 2, line, s).comms[0].Calls }
	const once, twice = 1, 2
	for line, want := range map[string][2]int{ // operations, groups
		"-b 1K -e 1K -n 5 -w 2 -c 0":           {2 + twice*(once+5), 0},
		"-b 1K -e 1K -n 5 -w 2 -c 3":           {2 + twice*(once+5+3), 0},
		"-b 1K -e 4K -n 5 -w 2 -c 0 -f 2":      {3*2 + 3*twice*(once+5), 0},
		"-b 1K -e 1K -n 5 -w 0 -c 1 -m 4":      {twice * (once + 20 + 1), twice * 5},
		"-b 1K -e 1K -n 5 -w 0 -c 1 -m 4 -z 1": {twice * (once + 20 + 1), 0},
		"-b 1K -e 1K -n 5 -w 0 -c 0 -N 3":      {3 * twice * (once + 5), 0},
	} {
		got := count(line, setup{})
		if got["all_reduce"] != want[0] || got["group"] != want[1] {
			t.Errorf("%s: %d operations, %d groups; want %v", line, got["all_reduce"], got["group"], want)
		}
	}
	bad := count("-b 1K -e 1K -n 5 -w 0 -c 9", setup{test: func(w *commtest.World) {
		w.After = func(_ *commtest.Comm, _ string, _, recv []byte) { recv[0]++ }
	}})
	if want := twice * (once + 5 + 1); bad["all_reduce"] != want {
		t.Errorf("%d operations though the first round fails; want %d", bad["all_reduce"], want)
	}
}

// quiet is a Comm that does nothing.
type quiet struct{ Comm }

func (quiet) Rank() int { return 0 }

func (quiet) Size() int { return 1 }

func (quiet) Barrier() error { return nil }

func (quiet) Alloc(n int) ([]byte, error) { return make([]byte, n), nil }

func (quiet) Group(f func() error) error { return f() }

func (quiet) Do(*op.Op) error { return nil }

// TestTimedLoopAllocatesNothing for an operation: what is measured is the
// engine.
func TestTimedLoopAllocatesNothing(t *testing.T) {
	for _, line := range []string{"", "-m 3", "-z 1", "-z 3"} {
		cfg, err := parse(line)
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(cfg, World{Comms: []Comm{quiet{}}}, Streams{}, fakeHost())
		if err := s.prepare(); err != nil {
			t.Fatal(err)
		}
		w := s.workers[0]
		if err := w.allocate(1 << 16); err != nil {
			t.Fatal(err)
		}
		if err := w.touch(elem.Float32); err != nil {
			t.Fatal(err)
		}
		o := w.operation(w.c.volume(64, 1, elem.Float32), combination{t: elem.Float32, red: Reductions[0]}, false)
		run := func(iters int) float64 {
			return testing.AllocsPerRun(10, func() {
				if _, err := w.timed(o, iters, cfg.AggIters); err != nil {
					t.Fatal(err)
				}
			})
		}
		few, many := run(1), run(1000)
		if many != few {
			t.Errorf("%q: %v allocations for one iteration, %v for a thousand", line, few, many)
		}
	}
}

// TestWalk: timed operations walk through all of the memory.
func TestWalk(t *testing.T) {
	var offsets []int
	bench(t, "all_reduce", 1, "-b 1K -e 4K -f 4 -n 6 -w 0 -c 0", setup{test: func(w *commtest.World) {
		w.After = func(c *commtest.Comm, _ string, _, recv []byte) {
			_, at := c.Memory(recv)
			offsets = append(offsets, (at-guard)/1024)
		}
	}})
	half := []int{0, 0, 1, 2, 3, 0, 1} // one untimed, six timed
	whole := []int{0, 0, 0, 0, 0, 0, 0}
	want := append(append(append(append([]int(nil), half...), half...), whole...), whole...)
	if d := cmp.Diff(want, offsets); d != "" {
		t.Errorf("offsets in KiB (-want +got):\n%s", d)
	}
}

// TestTwoProcesses: two sessions of one world, as in two processes. Only the
// first prints; both end with the same idea of the memory.
func TestTwoProcesses(t *testing.T) {
	tw, comms := commtest.New(4)
	var outs [2]strings.Builder
	results := make(chan *Result, 2)
	for p := range 2 {
		cfg, err := Parse("all_gather", "", strings.Fields("-t 2 -b 1K -e 64K -f 4 -a 3 -I 1 -J "+filepath.Join(t.TempDir(), "r.json")))
		if err != nil {
			t.Fatal(err)
		}
		h := fakeHost()
		h.pid = 100 + p
		if p == 1 {
			h.name = "other"
			h.root = fstest.MapFS{"proc/meminfo": {Data: []byte("MemAvailable: 128 kB\n")}}
		}
		w := World{Process: p, Comms: []Comm{comms[2*p], comms[2*p+1]}, Abort: tw.Abort}
		go func() {
			res, err := newSession(cfg, w, Streams{Out: &outs[p], Err: &outs[p]}, h).run(t.Context())
			if err != nil {
				t.Error(err)
			}
			results <- res
		}()
	}
	a, b := <-results, <-results
	if len(a.Rows)+len(b.Rows) != 3 || outs[1].Len() != 0 {
		t.Errorf("%d and %d rows; the second process prints %q", len(a.Rows), len(b.Rows), outs[1].String())
	}
	for _, want := range []string{"# Reducing maxBytes to 20480 due to memory limitation\n", "Pid    101 on      other device  0"} {
		if !strings.Contains(outs[0].String(), want) {
			t.Errorf("no %q in\n%s", want, outs[0].String())
		}
	}
}

// TestThisHost: the real machine can be read.
func TestThisHost(t *testing.T) {
	h := thisHost()
	if h.name == "" || strings.Contains(h.name, ".") || available(h.root) < 1<<20 || resident(h.root) < 1<<20 || processor(h.root, "x") == "" || h.id() == 0 {
		t.Errorf("%+v: %d available, %d resident", h, available(h.root), resident(h.root))
	}
	c := h.newClock()
	if a, b := c(), c(); b < a {
		t.Errorf("the clock goes from %v to %v", a, b)
	}
}
