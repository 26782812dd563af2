package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/perf/commtest"
	"github.com/assay-hpc/assay/internal/golden"
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

// TestText holds everything that the table shows against golden files.
func TestText(t *testing.T) {
	for name, tt := range map[string]struct {
		op    string
		ranks int
		line  string
		setup setup
	}{
		"all_reduce":     {"all_reduce", 4, "-b 8 -e 16K -f 4", setup{}},
		"all_gather":     {"all_gather", 4, "-b 8 -e 4K -f 8 -c 0", setup{}},
		"broadcast":      {"broadcast", 2, "-b 1K -e 3K -i 1K -r -1 -d double", setup{}},
		"reduce_scatter": {"reduce_scatter", 3, "-b 1K -e 1K -d half -o all", setup{}},
		"alltoall":       {"alltoall", 2, "-b 1K -e 1K -z 1 -p 1 -y 1", setup{environ: []string{"NCCL_TESTS_DEVICE=2"}}},
		"sendrecv":       {"sendrecv", 2, "-b 1K -e 1K -z 3 -m 3 -u 3 -d int8", setup{}},
		"gather":         {"gather", 2, "-b 1K -e 1K -I 1 -K 2 -S 1 -C 1", setup{}},
		"single":         {"all_reduce", 1, "-b 1K -e 1K -M 1 -d float9", setup{environ: []string{"NCCL_TESTS_MIN_BW=100"}}},
		"fast":           {"reduce", 2, "-b 64K -e 64K -z 2 -G 3", setup{environ: []string{"NCCL_TESTS_MIN_BW=0.05"}}},
		"split":          {"all_reduce", 4, "-b 1K -e 1K", setup{environ: []string{"NCCL_TESTS_SPLIT=MOD 2"}, world: func(w *World) { w.Process = 3 }}},
		"memory":         {"all_reduce", 4, "-b 64K -e 1G -f 2 -n 3", setup{host: smallHost}},
		"shape":          {"all_reduce", 4, "--shape 50x200 --trials 50", setup{}},
		"compare":        {"all_reduce", 4, "--split 100 --shape 100x100", setup{}},
		"bench":          {"alltoall", 2, "-b 1K -e 2K -f 2 --bench -N 2", setup{}},
		"json":           {"all_reduce", 2, "-b 1K -e 1K -n 4 --output json -o max", setup{environ: []string{"NCCL_ALGO=Ring", "SECRET=1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := bench(t, tt.op, tt.ranks, tt.line, tt.setup)
			if o.fail != nil || o.err != "" {
				t.Errorf("error %v, stderr %q", o.fail, o.err)
			}
			goarch := regexp.MustCompile(`(?m)^goarch: .*`)
			golden.Check(t, name+".txt", goarch.ReplaceAllString(o.out, "goarch: ARCH"))
		})
	}
}

func smallHost(h *host) {
	h.root.(fstest.MapFS)["proc/meminfo"] = &fstest.MapFile{Data: []byte("MemAvailable: 2048 kB\n")}
}

// TestOwnTable: what we print is read back as what we measured.
func TestOwnTable(t *testing.T) {
	for _, op := range Collectives() {
		o := bench(t, op, 3, "-b 8 -e 512 -f 8 -d all -n 1 -w 0", setup{})
		table, err := ParseTable(strings.NewReader(o.out))
		if err != nil || o.fail != nil {
			t.Fatalf("%s: %v, %v\n%s", op, err, o.fail, o.out)
		}
		if len(table.Rows) != len(o.res.Rows) || table.Ranks != 3 || table.OutOfBounds != 0 || general(o.res.AvgBusBW) != general(table.AvgBusBW) {
			t.Errorf("%s: %d rows of %d, %+v", op, len(table.Rows), len(o.res.Rows), table)
		}
		for i, row := range o.res.Rows {
			got := table.Rows[i]
			if got.Bytes != row.Bytes || got.Count != row.Count || got.Type != row.Type || got.Redop != row.Redop || got.Root != row.Root ||
				got.OutOfPlace.Wrong != row.OutOfPlace.Wrong || got.InPlace.Wrong != row.InPlace.Wrong || fit(got.InPlace.Time, 7) != fit(row.InPlace.Time, 7) {
				t.Errorf("%s: %+v is read as %+v", op, row, got)
			}
		}
	}
}

// TestEverythingVerifies: all types, reductions, roots and collectives, on
// several numbers of ranks, with buffers unaligned.
func TestEverythingVerifies(t *testing.T) {
	ranks, line := []int{1, 2, 5}, "-b 1 -e 3000 -f 50 -d all -o all -r -1 -n 1 -c 2 -u 1"
	if testing.Short() {
		ranks, line = []int{3}, "-b 700 -e 700 -d all -o all -r -1 -n 1 -w 0 -u 1"
	}
	for _, op := range Collectives() {
		for _, n := range ranks {
			o := bench(t, op, n, line, setup{})
			if o.fail != nil || o.res.OutOfBounds != 0 || o.res.Status != OK {
				t.Errorf("%s on %d ranks: %v, %d of %d rows are wrong", op, n, o.fail, o.res.OutOfBounds, len(o.res.Rows))
			}
			for _, row := range o.res.Rows {
				if verified := row.InPlace.Wrong == 0; row.OutOfPlace.Wrong != 0 || verified == (op == "alltoall" || op == "sendrecv") {
					t.Fatalf("%s on %d ranks: %+v", op, n, row)
				}
			}
		}
	}
}

// faults are what an engine may do wrong. Each begins with the operation's
// fourth call, so that what is verified is hit, and not only what is timed.
var faults = map[string]struct {
	only string // collective; empty: any
	do   func(c *commtest.Comm, send, recv []byte)
}{
	"one bit of the last element": {"", func(c *commtest.Comm, _, recv []byte) {
		if c.Rank() == c.Size()-1 {
			recv[len(recv)-1] ^= 0x10
		}
	}},
	"nothing written on a rank": {"all_gather", func(c *commtest.Comm, _, recv []byte) {
		if c.Rank() == 1 {
			clear(recv[:16])
		}
	}},
	"writes behind the buffer": {"", func(c *commtest.Comm, _, recv []byte) {
		if c.Rank() == 0 && len(recv) > 0 {
			recv[:len(recv)+1][len(recv)]++
		}
	}},
	"writes before the buffer": {"", func(c *commtest.Comm, _, recv []byte) {
		if mem, at := c.Memory(recv); c.Rank() == 0 {
			mem[at-1]++
		}
	}},
	"writes where only the root may": {"reduce", func(c *commtest.Comm, _, recv []byte) {
		if c.Rank() == 1 {
			recv[5]++
		}
	}},
	"writes where only the root of gather may": {"gather", func(c *commtest.Comm, _, recv []byte) {
		if c.Rank() == 1 {
			recv[len(recv)-1]++
		}
	}},
	"blocks in each other's place": {"all_gather", func(_ *commtest.Comm, _, recv []byte) {
		n := len(recv) / 3
		for i := range n {
			recv[i], recv[n+i] = recv[n+i], recv[i]
		}
	}},
	"shifted by one element": {"reduce_scatter", func(_ *commtest.Comm, _, recv []byte) { copy(recv, recv[4:]) }},
}

// TestFaultsShow: verification notices each of them, in both placements where
// both are verified, and the run fails.
func TestFaultsShow(t *testing.T) {
	for name, f := range faults {
		for _, op := range Collectives() {
			if f.only != "" && f.only != op {
				continue
			}
			o := bench(t, op, 3, "-b 4K -e 4K -n 1", setup{test: func(w *commtest.World) {
				w.After = func(c *commtest.Comm, _ string, send, recv []byte) { f.do(c, send, recv) }
			}})
			row := o.res.Rows[0]
			if (op == "reduce" || op == "gather") && strings.Contains(name, "last element") {
				continue // the last rank is not the root
			}
			if row.OutOfPlace.Wrong < 1 || row.InPlace.Wrong == 0 || o.res.Status != BadData || o.fail != nil {
				t.Errorf("%s, %s: wrong %d and %d, status %d, %v", op, name, row.OutOfPlace.Wrong, row.InPlace.Wrong, o.res.Status, o.fail)
			}
			if !strings.Contains(o.out, "# Out of bounds values : ") || !strings.Contains(o.out, " FAILED\n") {
				t.Errorf("%s, %s: the footer says nothing:\n%s", op, name, o.out)
			}
		}
	}
}

// TestSendBufferIsWatched: an operation must not write what it was to read.
func TestSendBufferIsWatched(t *testing.T) {
	o := bench(t, "all_reduce", 2, "-b 4K -e 4K -n 1", setup{test: func(w *commtest.World) {
		w.After = func(_ *commtest.Comm, _ string, send, _ []byte) { send[0]++ }
	}})
	if row := o.res.Rows[0]; row.OutOfPlace.Wrong != 2 {
		t.Errorf("%d elements are wrong; want one on each rank", row.OutOfPlace.Wrong)
	}
}

// TestLostUpdate: one rank's reduction misses another's contribution, once, in
// the last operation of a verification round.
func TestLostUpdate(t *testing.T) {
	o := bench(t, "all_reduce", 4, "-b 1K -e 1K -n 2 -c 3 -w 0", setup{wrap: func(c Comm) Comm {
		if c.Rank() == 2 {
			return &forgetful{Comm: c}
		}
		return c
	}})
	if row := o.res.Rows[0]; row.OutOfPlace.Wrong == 0 || o.res.OutOfBounds != 1 {
		t.Errorf("wrong %d and %d", row.OutOfPlace.Wrong, row.InPlace.Wrong)
	}
}

// forgetful gives zeros in its fourth operation: out of place, the first
// after one untimed and two timed ones.
type forgetful struct {
	Comm
	calls int
}

func (f *forgetful) AllReduce(send, recv []byte, count int, t elem.Type, op elem.Op) error {
	f.calls++
	if f.calls == 4 {
		send = make([]byte, len(send))
	}
	return f.Comm.AllReduce(send, recv, count, t, op)
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

func (quiet) Rank() int                                                  { return 0 }
func (quiet) Size() int                                                  { return 1 }
func (quiet) Barrier() error                                             { return nil }
func (quiet) Group(f func() error) error                                 { return f() }
func (quiet) AllReduce(_, _ []byte, _ int, _ elem.Type, _ elem.Op) error { return nil }

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
		w.send.mem, w.recv.mem = make([]byte, 1<<16), make([]byte, 1<<16)
		w.touch(elem.Float32)
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

// TestFailure: an operation's error ends all ranks, and the run with the
// engine's status and nccl-tests' lines.
func TestFailure(t *testing.T) {
	broken := errors.New("rank 1 is lost")
	var calls atomic.Int32
	o := bench(t, "all_reduce", 3, "-b 1K -e 4K -f 2", setup{test: func(w *commtest.World) {
		w.Before = func(c *commtest.Comm, _ string) error {
			if c.Rank() == 1 && calls.Add(1) == 30 {
				return broken
			}
			return nil
		}
	}})
	var f *Failure
	if !errors.As(o.fail, &f) || !errors.Is(f, broken) || f.Status != EngineError || f.Rank != 1 || o.res.Status != EngineError {
		t.Fatalf("%v, result %+v", o.fail, o.res)
	}
	want := regexp.MustCompile(`^node: Test NCCL failure \w+\.go:\d+ 'rank 1 is lost / '\n \.\. node pid 7: Test failure \w+\.go:\d+\n$`)
	if got := f.Lines("node", 7, 0); !want.MatchString(got) {
		t.Errorf("Lines = %q", got)
	}
	if !strings.Contains(o.out, "# error: rank 1: rank 1 is lost\n") {
		t.Errorf("the footer has no error:\n%s", o.out)
	}
}

// TestTimeout: -T ends a run in which an operation hangs.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var calls atomic.Int32
		o := bench(t, "all_reduce", 2, "-b 1K -e 4K -f 2 -T 5 -m 2", setup{
			world: func(w *World) {
				abort := w.Abort
				w.Abort = func(err error) { abort(err); close(hang) }
			},
			test: func(w *commtest.World) {
				w.Before = func(c *commtest.Comm, _ string) error {
					if c.Rank() == 1 && calls.Add(1) == 50 {
						<-hang
					}
					return nil
				}
			},
		})
		var f *Failure
		if !errors.As(o.fail, &f) || f.Status != TimedOut {
			t.Fatalf("%v", o.fail)
		}
		if got := f.Lines("node", 7, 5); !strings.HasPrefix(got, "node: Test timeout (5s) ") {
			t.Errorf("Lines = %q", got)
		}
	})
}

// TestCancel: the end of the context ends a sweep that has no end.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	var calls atomic.Int32
	o := bench(t, "all_reduce", 2, "-b 1K -e 1K -N 0", setup{ctx: ctx, test: func(w *commtest.World) {
		w.Before = func(*commtest.Comm, string) error {
			if calls.Add(1) == 500 {
				cancel(interrupted)
			}
			return nil
		}
	}})
	if !errors.Is(o.fail, interrupted) {
		t.Errorf("%v; want %v", o.fail, interrupted)
	}
}

// TestRefused: what cannot be run is said, with nccl-tests' status.
func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		op, line string
		setup    setup
		status   Status
		text     string
	}{
		"root":      {"reduce", "-r 5", setup{}, InvalidUsage, "-r 5 is no rank: they go from 0 to 1"},
		"memory":    {"reduce", "-b 1G -e 1G", setup{host: smallHost}, DeviceError, "-b 1073741824 bytes do not fit: memory allows"},
		"mulsum":    {"reduce", "-o mulsum", setup{wrap: func(c Comm) Comm { return struct{ Comm }{c} }}, NotImplemented, "no sums with scalars"},
		"no split":  {"reduce", "", setup{environ: []string{"NCCL_TESTS_SPLIT=%2"}, world: func(w *World) { w.Split = nil }}, NotImplemented, "cannot split"},
		"no ranks":  {"reduce", "", setup{world: func(w *World) { w.Comms = nil }}, InternalError, "no ranks"},
		"shape":     {"reduce", "--shape 100000x1000", setup{host: smallHost}, DeviceError, "--shape needs 400000000 bytes"},
		"plot":      {"reduce", "-b 8 -e 8 --plot /nonexistent/x.png", setup{}, InternalError, "--plot: "},
		"no bucket": {"reduce", "--split 4 -e 64K -o mulsum", setup{}, InvalidUsage, "take no -o mulsum"},
	} {
		if tt.op == "reduce" && !strings.Contains(tt.line, "-b") && !strings.Contains(tt.line, "-") || tt.line == "" {
			tt.line += " -b 8 -e 8"
		}
		o := bench(t, tt.op, 2, tt.line, tt.setup)
		var f *Failure
		if !errors.As(o.fail, &f) || f.Status != tt.status || !strings.Contains(f.Error(), tt.text) {
			t.Errorf("%s: %v; want status %d and %q", name, o.fail, tt.status, tt.text)
		}
	}
	o := bench(t, "reduce", 2, "-b 8 -e 8", setup{environ: []string{"NCCL_TESTS_SPLIT=nonsense"}})
	var usage *UsageError
	if !errors.As(o.fail, &usage) {
		t.Errorf("a wrong NCCL_TESTS_SPLIT: %v", o.fail)
	}
}

// TestAllWithoutMulsum leaves it out, and says so once.
func TestAllWithoutMulsum(t *testing.T) {
	o := bench(t, "all_reduce", 2, "-o all -b 8 -e 8 -d all", setup{wrap: func(c Comm) Comm { return struct{ Comm }{c} }})
	if n := strings.Count(o.out, "# mulsum is left out"); o.fail != nil || n != 1 || len(o.res.Rows) != 5*len(elem.Types) {
		t.Errorf("%v, %d remarks, %d rows", o.fail, n, len(o.res.Rows))
	}
}

// TestJSONFile holds -J's report against a golden file, reads it as JSON, and
// wants another name for the second one.
func TestJSONFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	line := "-b 1K -e 2K -f 2 -n 3 -I 1 -J report.json"
	env := []string{"NCCL_SOCKET_IFNAME=^lo/0", "PASSWORD=x"}
	first := bench(t, "all_reduce", 2, line, setup{environ: env})
	second := bench(t, "alltoall", 2, line, setup{world: func(w *World) { w.Process = 0 }})
	if first.fail != nil || second.fail != nil || !strings.HasPrefix(second.out, "# Writing JSON output to report.json.0\n") {
		t.Fatalf("%v, %v\n%s", first.fail, second.fail, second.out)
	}
	b, err := os.ReadFile("report.json")
	if err != nil || !json.Valid(b) || strings.Contains(string(b), "PASSWORD") {
		t.Fatalf("%v\n%s", err, b)
	}
	var doc struct {
		Results []struct {
			InPlace struct {
				NWrong *int64 `json:"nwrong"`
			} `json:"in_place"`
		}
	}
	b2, _ := os.ReadFile("report.json.0")
	if err := json.Unmarshal(b2, &doc); err != nil || len(doc.Results) != 2 || doc.Results[0].InPlace.NWrong != nil {
		t.Errorf("alltoall's report: %v, %+v", err, doc)
	}
	t.Chdir(packageDir)
	golden.Check(t, "report.json", string(b))
}

// packageDir is where tests start.
var packageDir, _ = os.Getwd()

// TestDocument: --output json can be decoded into what it was made from.
func TestDocument(t *testing.T) {
	o := bench(t, "all_reduce", 2, "-b 4 -e 1K -f 16 --output json", setup{wrap: func(c Comm) Comm { return &knowing{c.(*commtest.Comm), 0} }})
	var doc Document
	d := json.NewDecoder(strings.NewReader(o.out))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatalf("%v\n%s", err, o.out)
	}
	row := doc.Rows[0]
	if len(doc.Rows) != 3 || row.OutOfPlace.Algorithm != "ring/simple" || row.OutOfPlace.Iter.P99 == 0 || row.InPlace.Straggler.Rank != 1 || doc.Straggler.Rank != 1 {
		t.Errorf("%+v", doc)
	}
}

// knowing knows what the engine can tell: rank 1 never waits.
type knowing struct {
	*commtest.Comm
	waits time.Duration
}

func (k *knowing) Chosen() string { return "ring/simple" }
func (k *knowing) Waited() time.Duration {
	if k.Rank() != 1 {
		k.waits += 10 * time.Millisecond
	}
	return k.waits
}

// TestStragglerIsNamed in the footer.
func TestStragglerIsNamed(t *testing.T) {
	o := bench(t, "all_reduce", 3, "-b 4 -e 1K -f 16", setup{wrap: func(c Comm) Comm { return &knowing{c.(*commtest.Comm), 0} }})
	if !strings.Contains(o.out, "# Straggler            : rank 1 on node, ") || !strings.Contains(o.out, "in 6 of 6 measurements\n") {
		t.Errorf("no straggler:\n%s", o.out)
	}
}

// TestPlot: a picture of the right size, with the lines' colors in it.
func TestPlot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.png")
	o := bench(t, "all_reduce", 2, "-b 4 -e 8K -f 2 --plot "+file, setup{})
	if o.fail != nil {
		t.Fatal(o.fail)
	}
	golden.Check(t, "plot.png.sum", pictureSum(t, file))
}

// TestProgress: a line on a terminal, in a run that takes long, gone before
// each row.
func TestProgress(t *testing.T) {
	o := bench(t, "all_reduce", 2, "-b 4 -e 64 -f 2", setup{term: true})
	if !strings.Contains(o.err, "all_reduce float sum, 64 bytes, row 5, ") || !strings.HasSuffix(o.err, "\r\x1b[K") {
		t.Errorf("progress: %q", o.err)
	}
	if o := bench(t, "all_reduce", 2, "-b 4 -e 64 -f 2", setup{}); o.err != "" {
		t.Errorf("progress without a terminal: %q", o.err)
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
