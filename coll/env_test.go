package coll

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
)

// unevenSizes are in elements of a vector, or of all ranks' blocks.
func unevenSizes() (all []int) {
	for k := range 20 {
		all = append(all, 1<<k)
	}
	return append(all, 3, 1000, 300_001)
}

// uneven calls every collective with every size, and checks the results.
func uneven(s colltest.Self) error {
	c, err := join(s, 60*time.Second, 30*time.Second)
	if err != nil {
		return err
	}
	for _, size := range unevenSizes() {
		for _, op := range unevenOps {
			block := max(1, size/c.Size())
			in, out := make([]int32, block*c.Size()), make([]int32, block*c.Size())
			if op.whole {
				block = size
				in, out = make([]int32, size), make([]int32, size)
			}
			for i := range in {
				in[i] = value(c.Rank(), i)
			}
			if err := op.call(c, in, out, block); err != nil {
				return fmt.Errorf("%s of %d: %w", op.name, block, err)
			}
			for i := range out {
				want, here := op.want(c.Rank(), c.Size(), block, i)
				if here && out[i] != want {
					return fmt.Errorf("%s of %d by %s: out[%d] = %d; want %d", op.name, block, c.Chosen(), i, out[i], want)
				}
			}
		}
	}
	s.Say("results are right")
	return c.Destroy()
}

// value is element i of a rank's input.
func value(rank, i int) int32 { return int32(1000*rank + i%997) }

func sumAt(ranks, i int) (s int32) {
	for r := range ranks {
		s += value(r, i)
	}
	return s
}

// unevenOps are all collectives. want is element i of a rank's output, if the
// rank has one.
var unevenOps = []struct {
	name  string
	whole bool // a vector, no blocks
	call  func(c *Comm, in, out []int32, n int) error
	want  func(rank, ranks, n, i int) (v int32, here bool)
}{
	{"AllReduce", true,
		func(c *Comm, in, out []int32, n int) error { return c.AllReduce(Of(in), Of(out), n, Int32, Sum) },
		func(_, ranks, _, i int) (int32, bool) { return sumAt(ranks, i), true }},
	{"Broadcast", true,
		func(c *Comm, in, out []int32, n int) error { return c.Broadcast(Of(in), Of(out), n, Int32, 1) },
		func(_, _, _, i int) (int32, bool) { return value(1, i), true }},
	{"Reduce", true,
		func(c *Comm, in, out []int32, n int) error { return c.Reduce(Of(in), Of(out), n, Int32, Sum, 2) },
		func(rank, ranks, _, i int) (int32, bool) { return sumAt(ranks, i), rank == 2 }},
	{"AllGather", false,
		func(c *Comm, in, out []int32, n int) error { return c.AllGather(Of(in[:n]), Of(out), n, Int32) },
		func(_, _, n, i int) (int32, bool) { return value(i/n, i%n), true }},
	{"ReduceScatter", false,
		func(c *Comm, in, out []int32, n int) error {
			return c.ReduceScatter(Of(in), Of(out[:n]), n, Int32, Sum)
		},
		func(rank, ranks, n, i int) (int32, bool) { return sumAt(ranks, rank*n+i), i < n }},
	{"AllToAll", false,
		func(c *Comm, in, out []int32, n int) error { return c.AllToAll(Of(in), Of(out), n, Int32) },
		func(rank, _, n, i int) (int32, bool) { return value(i/n, rank*n+i%n), true }},
	{"Gather", false,
		func(c *Comm, in, out []int32, n int) error { return c.Gather(Of(in[:n]), Of(out), n, Int32, 3) },
		func(rank, _, n, i int) (int32, bool) { return value(i/n, i%n), rank == 3 }},
	{"Scatter", false,
		func(c *Comm, in, out []int32, n int) error { return c.Scatter(Of(in), Of(out[:n]), n, Int32, 0) },
		func(rank, _, n, i int) (int32, bool) { return value(0, rank*n+i), i < n }},
	{"SendRecv", true,
		func(c *Comm, in, out []int32, n int) error {
			var g Group
			g.Start()
			g.Add(c)
			_ = c.Send(Of(in), n, Int32, (c.Rank()+1)%c.Size())
			_ = c.Recv(Of(out), n, Int32, (c.Rank()+c.Size()-1)%c.Size())
			return g.End()
		},
		func(rank, ranks, _, i int) (int32, bool) { return value((rank+ranks-1)%ranks, i), true }},
}

// TestUneven: processes with 1, 2, 3 and 4 processors choose alike: those of
// one host, of four, and of two. Where the machine has fewer, GOMAXPROCS is
// what makes the difference.
func TestUneven(t *testing.T) {
	taskset, err := exec.LookPath("taskset")
	for _, hosts := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d hosts", hosts), func(t *testing.T) {
			job := colltest.Start(t, colltest.JobOptions{
				Program: "uneven", Ranks: 4,
				EnvOf: func(r int) []string {
					return []string{"GOMAXPROCS=" + strconv.Itoa(r+1), hostVar + "=" + fmt.Sprint("host", r%hosts)}
				},
				Prefix: func(r int) []string {
					if err != nil {
						return nil
					}
					return []string{taskset, "--cpu-list", fmt.Sprintf("0-%d", min(r, runtime.NumCPU()-1))}
				},
			})
			for _, r := range job.Wait(4 * time.Minute) {
				if err := r.Clean(); err != nil || !strings.Contains(strings.Join(r.Stdout, "\n"), "results are right") {
					t.Errorf("%v: %v", err, r)
				}
			}
		})
	}
}

// saveTuning writes tables to a file.
func saveTuning(t *testing.T, machine string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tune.json")
	b, err := (&choose.Tables{Machine: machine}).Bytes()
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRanksThatDiffer: settings that must be the same and are not are an error
// on every rank, which names the setting, the ranks and both values.
func TestRanksThatDiffer(t *testing.T) {
	one, other := saveTuning(t, "one"), saveTuning(t, "other")
	for name, tt := range map[string]struct {
		all, odd func(k *knob.Knobs)
		want     []string
	}{
		"algo":      {algo("Ring"), algo("Tree"), []string{`NCCL_ALGO: rank 0 has "Ring", rank 2 has "Tree"`}},
		"algo of 1": {nil, algo("Tree"), []string{`NCCL_ALGO: rank 0 has "not set", rank 2 has "Tree"`}},
		"proto": {nil, func(k *knob.Knobs) { k.Proto = filter("NCCL_PROTO=LL").Proto },
			[]string{`NCCL_PROTO: rank 0 has "not set", rank 2 has "LL"`}},
		"rings": {func(k *knob.Knobs) { k.Rings = [][]int{{0, 1, 2, 3}} }, func(k *knob.Knobs) { k.Rings = [][]int{{0, 2, 1, 3}} },
			[]string{`NCCL_RINGS: rank 0 has "[[0 1 2 3]]", rank 2 has "[[0 2 1 3]]"`}},
		"min channels": {nil, func(k *knob.Knobs) { k.MinChannels = 2 }, []string{`NCCL_MIN_CTAS or an older name of it: rank 0 has "not set", rank 2 has "2"`}},
		"max channels": {nil, func(k *knob.Knobs) { k.MaxChannels = 2 }, []string{`NCCL_MAX_CTAS or an older name of it: rank 0 has "not set", rank 2 has "2"`}},
		"buffers":      {nil, func(k *knob.Knobs) { k.BuffSize = 1 << 20 }, []string{`NCCL_BUFFSIZE: rank 0 has "4194304", rank 2 has "1048576"`}},
		"threads":      {nil, func(k *knob.Knobs) { k.Threads = 64 }, []string{`NCCL_NTHREADS: rank 0 has "not set", rank 2 has "64"`}},
		"ring from":    {nil, func(k *knob.Knobs) { k.SingleRingThreshold = 0 }, []string{`NCCL_SINGLE_RING_THRESHOLD: rank 0 has "not set", rank 2 has "0"`}},
		"LL from":      {nil, func(k *knob.Knobs) { k.LLThreshold = 7 }, []string{`NCCL_LL_THRESHOLD: rank 0 has "not set", rank 2 has "7"`}},
		"P2P":          {nil, func(k *knob.Knobs) { k.P2PLevel = knob.LOC }, []string{`NCCL_P2P_LEVEL: rank 0 has "peer access allowed", rank 2 has "peer access not allowed"`}},
		"SHM":          {nil, func(k *knob.Knobs) { k.SHMDisable = false }, []string{`NCCL_SHM_DISABLE: rank 0 has "1", rank 2 has "0"`}},
		"collnet":      {nil, func(k *knob.Knobs) { k.CollNetEnable = true }, []string{`NCCL_COLLNET_ENABLE: rank 0 has "0", rank 2 has "1"`}},
		"few hosts":    {nil, func(k *knob.Knobs) { k.CollNetThreshold = 9 }, []string{`NCCL_COLLNET_NODE_THRESHOLD: rank 0 has "2", rank 2 has "9"`}},
		"GPUs":         {nil, func(k *knob.Knobs) { k.GPUAlgo = "copy" }, []string{`ASSAY_GPU_ALGO: rank 0 has "not set", rank 2 has "copy"`}},
		"tuning": {func(k *knob.Knobs) { k.Tuning = one }, func(k *knob.Knobs) { k.Tuning = other },
			[]string{"ASSAY_TUNING: rank 0 has ", "rank 2 has ", "(SHA-256 "}},
		"tuning of 1": {nil, func(k *knob.Knobs) { k.Tuning = one }, []string{`ASSAY_TUNING: rank 0 has "not set", rank 2 has `}},
		"tuning that is not there": {func(k *knob.Knobs) { k.Tuning = one }, func(k *knob.Knobs) { k.Tuning = "/nonexistent" },
			[]string{"ASSAY_TUNING: rank 0 has ", `rank 2 has "open /nonexistent: no such file or directory"`}},
		"several": {nil, func(k *knob.Knobs) { k.BuffSize, k.MinChannels = 1<<20, 2 },
			[]string{`NCCL_BUFFSIZE: rank 0 has "4194304", rank 2 has "1048576"`, `NCCL_MIN_CTAS or an older name of it: rank 0 has "not set", rank 2 has "2"`}},
		"long": {nil, algo(strings.Repeat("ring,", 20_000) + "tree"), []string{`NCCL_ALGO: rank 0 has "not set", rank 2 has "ring,ring,`, `(100004 bytes)`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := initAll(t, 4, func(r int, cfg *Config) {
				if tt.all != nil {
					tt.all(cfg.Knobs)
				}
				if r == 2 {
					tt.odd(cfg.Knobs)
				}
			})
			for r, err := range errs {
				checkDiffers(t, r, err, tt.want)
			}
		})
	}
}

func checkDiffers(t *testing.T, rank int, err error, want []string) {
	t.Helper()
	text := fmt.Sprint(err)
	if CodeOf(err) != InvalidUsage || len(text) > 1000 {
		t.Errorf("rank %d: %.2000s; want a short invalid usage", rank, text)
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("rank %d: %.2000s; want %q", rank, text, w)
		}
	}
}

// settled makes a communicator by what the environment says.
func settled(s colltest.Self) error {
	c, err := joinWith(s, Config{})
	if err != nil {
		return err
	}
	return c.Destroy()
}

// TestProcessesThatDiffer: so do processes, each of which ends at once.
func TestProcessesThatDiffer(t *testing.T) {
	for set, want := range map[string]string{
		"NCCL_ALGO=Tree":         `NCCL_ALGO: rank 0 has "not set", rank 3 has "Tree"`,
		"NCCL_BUFFSIZE=1048576":  `NCCL_BUFFSIZE: rank 0 has "4194304", rank 3 has "1048576"`,
		"ASSAY_TUNING=/no/where": `ASSAY_TUNING: rank 0 has "not set", rank 3 has "open /no/where: no such file or directory"`,
	} {
		t.Run(set, func(t *testing.T) {
			job := colltest.Start(t, colltest.JobOptions{
				Program: "settled", Ranks: 5, Env: []string{"NCCL_NET_PLUGIN=none", "HOME=/nonexistent"},
				EnvOf: func(r int) []string {
					if r == 3 {
						return []string{set}
					}
					return nil
				},
			})
			for _, r := range job.Wait(time.Minute) {
				if r.Code != 1 || r.TimedOut || !strings.Contains(strings.Join(r.Errors(), "\n"), want) {
					t.Errorf("%v; want %q", r, want)
				}
			}
		})
	}
}

// TestOwnSettings: what is a rank's own, or made one of, may differ.
func TestOwnSettings(t *testing.T) {
	for name, set := range map[string]func(k *knob.Knobs){
		"checks":       func(k *knob.Knobs) { k.ChecksDisable = true },
		"timeout":      func(k *knob.Knobs) { k.Timeout = 0 },
		"streams":      func(k *knob.Knobs) { k.SHMDisable, k.SocketThreads, k.SocketsPerThread = true, 2, 3 },
		"case":         algo("RING"),
		"file":         func(k *knob.Knobs) { k.Tuning = saveTuning(t, "one") },
		"other's ring": func(k *knob.Knobs) { k.Rings = [][]int{{1, 0}} },
	} {
		t.Run(name, func(t *testing.T) {
			withTransport(t, 3, func(r int, k *knob.Knobs) {
				switch {
				case r == 1 || name == "file": // each its own, of the same bytes
					set(k)
				case name == "case":
					algo("Ring")(k)
				case name == "streams":
					k.SHMDisable = true
				}
			}, func(c *Comm) error { return errors.Join(sumOnce(c, 1000), sumOnce(c, 1_000_000)) })
		})
	}
}

// TestNothingElseSteers: what an Env holds is read from nowhere else, and what
// the environment, files and the machine say goes into an Env or is a rank's
// own.
func TestNothingElseSteers(t *testing.T) {
	var agreed []string
	for i := range reflect.TypeFor[choose.Env]().NumField() {
		name := reflect.TypeFor[choose.Env]().Field(i).Name
		if _, ok := reflect.TypeFor[knob.Knobs]().FieldByName(name); ok {
			agreed = append(agreed, name)
		}
	}
	if len(agreed) < 12 {
		t.Fatalf("only %v of Env are knobs", agreed)
	}
	around := regexp.MustCompile(`\b(?:cfg|Knobs|settings|s)\.(?:` + strings.Join(agreed, "|") + `|P2P\(|RingsFor\(|ChecksDisable)\b`)
	found := regexp.MustCompile(`\b(?:os\.(?:Getenv|LookupEnv|Environ|ReadFile|Open)|runtime\.(?:NumCPU|GOMAXPROCS|GOARCH)|ParseTables|SchedGetaffinity)\b`)
	allowed := map[string][]string{ // by file: what it may read, and why
		"session/session.go": {"cfg.ChecksDisable", "cfg.Rings"},         // for the hello, which Merge reads; for the Env
		"init.go":            {"os.Environ", "os.Getenv", "s.RingsFor("}, // the knobs; ASSAY_JOB_SECRET; for the Env
		// CUDA_LAUNCH_BLOCKING, of which ranks tell one another with their copy buffers.
		"cuda/ringblocks.go": {"os.Getenv"},
	}
	for _, dir := range []string{".", "cuda", "session"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) < 10 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for n, line := range strings.Split(string(b), "\n") {
				code, _, _ := strings.Cut(line, "//")
				for _, hit := range append(around.FindAllString(code, -1), found.FindAllString(code, -1)...) {
					if !slices.Contains(allowed[file], hit) {
						t.Errorf("%s:%d reads %s: what bears on a choice belongs into the Env", file, n+1, hit)
					}
				}
			}
		}
	}
}

// TestLongSettings: a long value makes neither a long error nor a long line in
// the log.
func TestLongSettings(t *testing.T) {
	long := strings.Repeat("/long", 20_000)
	for name, set := range map[string]func(k *knob.Knobs){
		"network":    func(k *knob.Knobs) { k.Net = long },
		"plugin":     func(k *knob.Knobs) { k.NetPlugin = long },
		"interface":  func(k *knob.Knobs) { k.SocketIfname = long },
		"address":    func(k *knob.Knobs) { k.CommID = long + ":1" },
		"log":        func(k *knob.Knobs) { k.DebugFile, k.Debug = long, debug.Info },
		"tuning":     func(k *knob.Knobs) { k.Tuning = long },
		"topology":   func(k *knob.Knobs) { k.TopoFile, k.TopoDumpFile = long, "/dev/null" },
		"dump":       func(k *knob.Knobs) { k.TopoDumpFile = long },
		"ports":      func(k *knob.Knobs) { k.IB.HCA = long },
		"host":       func(k *knob.Knobs) { k.HostID = long },
		"algorithms": algo(strings.Repeat("ring,", 20_000) + "tree"),
	} {
		t.Run(name, func(t *testing.T) {
			var out logBuffer
			log, err := debug.Open(debug.Options{Level: debug.Info, Subsystems: debug.All, Stderr: &out})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			cfg := testConfig()
			if cfg.Log = log; name == "log" {
				cfg.Log = nil
			}
			cfg.Knobs.SHMDisable = true // so that there is a network
			set(cfg.Knobs)
			comms, err := CommInitAll(t.Context(), 2, cfg)
			if err == nil {
				destroyAll(t, comms)
			} else if len(err.Error()) > 3000 {
				t.Errorf("an error of %d bytes: %.300s", len(err.Error()), err)
			}
			for line := range strings.Lines(out.String()) {
				if len(line) > 5000 {
					t.Errorf("a line of %d bytes: %.300s", len(line), line)
				}
			}
		})
	}
}
