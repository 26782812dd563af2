package coll

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/transport/netplugin/netplugintest"
)

// onCollNet makes hosts of so many ranks that follow one another, whose network
// reduces.
func onCollNet(plugin string, perHost int) func(int, *knob.Knobs) {
	return func(r int, k *knob.Knobs) {
		k.HostID, k.NetPlugin, k.Net, k.CollNetEnable = fmt.Sprint("host", r/perHost), plugin, "Socket", true
	}
}

// TestCollNetConformance runs the collectives' suite with a network that
// reduces what it can. Reductions that are not in order are exact in it.
func TestCollNetConformance(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1")
	file := testPlugin(t)
	for name, set := range map[string]func(int, *knob.Knobs){
		"hosts of one":     onCollNet(file, 1),
		"hosts of several": onCollNet(file, 2),
		"in turn": func(r int, k *knob.Knobs) {
			onCollNet(file, 1)(r%2, k)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := colltest.Options{Ranks: []int{2, 3, 4, 6}}
			if testing.Short() {
				o.Ranks = []int{3, 4}
			}
			colltest.Run(t, o, func(t *testing.T, n int) []colltest.Comm { return openConformers(t, n, set) })
		})
	}
}

// TestCollNetSums: sums over each version of the interface, with a plugin that
// is busy, and moves little at a time.
func TestCollNetSums(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1")
	t.Setenv("ASSAY_TEST_COLLNET_BUSY", "1")
	t.Setenv("ASSAY_TEST_NET_PARTIAL", "50000")
	for _, v := range []int{8, 9, 10, 11, 12} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			file := testPlugin(t, fmt.Sprintf("-DONLY=%d", v))
			withTransport(t, 4, onCollNet(file, 2), func(c *Comm) error {
				for _, count := range []int{1, 1000, 300_000, 3_000_000} {
					if err := sumOnce(c, count); err != nil {
						return err
					}
					if got := c.Chosen(); got != "collnet/Simple" {
						return fmt.Errorf("it was done by %s", got)
					}
				}
				return nil
			})
		})
	}
}

// TestCollNetChoice: what the network does, and what is left to others.
func TestCollNetChoice(t *testing.T) {
	all, only := testPlugin(t), testPlugin(t, "-DALLREDUCE_ONLY")
	for name, tt := range map[string]struct {
		plugin  string
		perHost int
		set     func(k *knob.Knobs)
		want    string // of sum, product, AllGather, ReduceScatter and Broadcast those that the network does
	}{
		"all":              {all, 2, nil, "sum gather scatter"},
		"all reduce":       {only, 2, nil, "sum"},
		"uneven hosts":     {all, 3, nil, "sum"},
		"one host":         {all, 4, nil, ""},
		"few hosts":        {all, 2, func(k *knob.Knobs) { k.CollNetThreshold = 3 }, ""},
		"off":              {all, 2, func(k *knob.Knobs) { k.CollNetEnable = false }, ""},
		"no plugin":        {"none", 2, nil, ""},
		"NCCL_ALGO":        {all, 2, algo("CollnetDirect,CollnetChain"), "sum gather scatter"},
		"of AllReduce":     {all, 2, algo("ring;allreduce:collnetchain"), "sum"},
		"left out":         {all, 2, algo("^collnetdirect"), ""},
		"not named":        {all, 2, algo("ring"), ""},
		"LL":               {all, 2, func(k *knob.Knobs) { k.Proto = filter("NCCL_PROTO=LL").Proto }, ""},
		"with a network":   {all, 2, func(k *knob.Knobs) { k.Net = netplugintest.Name }, "sum gather scatter"},
		"no shared memory": {all, 2, func(k *knob.Knobs) { k.SHMDisable = true }, "sum gather scatter"},
	} {
		t.Run(name, func(t *testing.T) {
			withTransport(t, 4, func(r int, k *knob.Knobs) {
				onCollNet(tt.plugin, tt.perHost)(r, k)
				if tt.set != nil {
					tt.set(k)
				}
			}, func(c *Comm) error {
				a, b := make([]float32, 4000), make([]float32, 4000)
				var done []string
				for _, op := range []struct {
					name string
					run  func() error
				}{
					{"sum", func() error { return c.AllReduce(Of(a), Of(b), 1000, Float32, Sum) }},
					{"prod", func() error { return c.AllReduce(Of(a), Of(b), 1000, Float32, Prod) }},
					{"half", func() error { return c.AllReduce(Of(a), Of(b), 1000, Float16, Sum) }},
					{"gather", func() error { return c.AllGather(Of(a), Of(b), 1000, Float32) }},
					{"scatter", func() error { return c.ReduceScatter(Of(a), Of(b), 1000, Float32, Avg) }},
					{"bytes", func() error { return c.ReduceScatter(Of(a), Of(b), 1000, Uint8, Sum) }},
					{"broadcast", func() error { return c.Broadcast(Of(a), Of(b), 1000, Float32, 1) }},
				} {
					if err := op.run(); err != nil {
						return err
					}
					if strings.HasPrefix(c.Chosen(), schedule.CollNet) {
						done = append(done, op.name)
					}
				}
				if got := strings.Join(done, " "); got != tt.want {
					return fmt.Errorf("the network did %q; want %q", got, tt.want)
				}
				return nil
			})
		})
	}
}

// filter is what variables say.
func filter(set ...string) *knob.Knobs {
	k, _, err := knob.Load(set, func(string) ([]byte, error) { return nil, fs.ErrNotExist })
	if err != nil {
		panic(err)
	}
	return k
}

func algo(text string) func(*knob.Knobs) {
	return func(k *knob.Knobs) { k.Algo = filter("NCCL_ALGO=" + text).Algo }
}

// TestCollNetRefused: NCCL_ALGO leaves nothing but what there is not.
func TestCollNetRefused(t *testing.T) {
	file := testPlugin(t)
	for name, tt := range map[string]struct {
		env  map[string]string
		set  func(r int, k *knob.Knobs)
		want string
	}{
		"off":       {nil, func(_ int, k *knob.Knobs) { k.CollNetEnable = false }, "NCCL_COLLNET_ENABLE is not 1"},
		"one host":  {nil, func(_ int, k *knob.Knobs) { k.HostID = "host" }, "all ranks are of one host"},
		"few hosts": {nil, func(_ int, k *knob.Knobs) { k.CollNetThreshold = 3 }, "there are 2 hosts, fewer than NCCL_COLLNET_NODE_THRESHOLD, which is 3"},
		"none":      {nil, func(_ int, k *knob.Knobs) { k.NetPlugin = "none" }, "rank 0: NCCL_NET_PLUGIN is none"},
		"one has none": {nil, func(r int, k *knob.Knobs) {
			if r == 2 {
				k.NetPlugin = "absent"
			}
		}, "rank 2: no network plugin: absent: cannot open"},
		"no devices": {map[string]string{"ASSAY_TEST_COLLNET_DEVICES": "0"}, nil, "collnet plugin assay test reducing has no devices"},
		"it cannot":  {map[string]string{"ASSAY_TEST_COLLNET_CONNECT": "5"}, nil, "connect: invalid usage (5)"},
		"no group":   {map[string]string{"ASSAY_TEST_COLLNET_BREAK": "null"}, nil, "connect: it returned success and no object"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			_, errs := initAll(t, 4, func(r int, cfg *Config) {
				onCollNet(file, 2)(r, cfg.Knobs)
				algo("CollnetChain")(cfg.Knobs)
				if tt.set != nil {
					tt.set(r, cfg.Knobs)
				}
			})
			for r, err := range errs {
				if CodeOf(err) != InvalidUsage || !strings.Contains(err.Error(), "leaves AllReduce the network's own reductions only: ") || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("rank %d: %v; want an invalid usage with %q", r, err, tt.want)
				}
			}
		})
	}
}

// TestCollNetLog: what is used, and why not, stands in the log.
func TestCollNetLog(t *testing.T) {
	file := testPlugin(t)
	for name, tt := range map[string]struct {
		env  map[string]string
		set  func(k *knob.Knobs)
		want string
	}{
		"used":    {nil, nil, "COLLNET: collnet plugin assay test reducing (v12) from " + file + ", device test0"},
		"group":   {nil, nil, "COLLNET: 2 heads over assay test reducing"},
		"without": {map[string]string{"ASSAY_TEST_COLLNET_DEVICES": "0"}, nil, "NCCL WARN COLLNET: not used: rank 0: collnet plugin assay test reducing has no devices"},
		"few":     {nil, func(k *knob.Knobs) { k.CollNetThreshold = 8 }, "NCCL INFO COLLNET: not used: there are 2 hosts, fewer than"},
		"off":     {nil, func(k *knob.Knobs) { k.CollNetEnable, k.Net = false, "" }, "NET/Plugin: collnet plugin assay test reducing is not used: NCCL_COLLNET_ENABLE is not 1"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			var out logBuffer
			log, err := debug.Open(debug.Options{Level: debug.Info, Subsystems: debug.All, Stderr: &out})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			comms, errs := initAll(t, 2, func(r int, cfg *Config) {
				onCollNet(file, 1)(r, cfg.Knobs)
				cfg.Log = log
				if tt.set != nil {
					tt.set(cfg.Knobs)
				}
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			withSums(t, comms)
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("the log does not say %q:\n%s", tt.want, out.String())
			}
		})
	}
}

// TestCollNetBreaks: a plugin whose call fails in the middle is an error on all
// ranks, heads or not, which says what failed.
func TestCollNetBreaks(t *testing.T) {
	file := testPlugin(t)
	t.Setenv("ASSAY_TEST_COLLNET_FAIL", "30")
	comms, errs := initAll(t, 4, func(r int, cfg *Config) {
		onCollNet(file, 2)(r, cfg.Knobs)
		cfg.Knobs.SHMDisable = false
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var said atomic.Int32
	for r, c := range comms {
		wg.Go(func() {
			defer func() { _ = c.Abort() }()
			for range 1000 {
				if err := sumOnce(c, 10_000); err != nil {
					switch code := CodeOf(err); {
					case code == SystemError && strings.Contains(err.Error(), "collnet plugin assay test reducing: test: system error (2)"):
						said.Add(1)
					case code != RemoteError:
						t.Errorf("rank %d: %v; want a remote error, or the plugin's", r, err)
					}
					return
				}
			}
			t.Errorf("rank %d: no error", r)
		})
	}
	wg.Wait()
	if said.Load() == 0 {
		t.Error("no rank says what failed")
	}
}

// TestCollNetKill: as TestKill, with a network that reduces, and with one that
// does not notice that a head is dead.
func TestCollNetKill(t *testing.T) {
	file := testPlugin(t)
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for i, deaf := range []string{"0", "1"} {
		t.Run("deaf="+deaf, func(t *testing.T) {
			slowest := colltest.Chaos{
				Job:    colltest.JobOptions{Program: "endless", Ranks: 4, Arg: "collnet", Env: []string{pluginVar + "=" + file, "ASSAY_TEST_COLLNET_DEAF=" + deaf}},
				Rounds: rounds, Moment: 600 * time.Millisecond, Deadline: 5 * time.Minute, Seed: uint64(11 + i),
				Survivor: survivor,
			}.Run(t)
			var worst time.Duration
			for _, d := range slowest {
				worst = max(worst, d)
			}
			t.Logf("%d kills; the last survivor returned at most %v after", len(slowest), worst)
		})
	}
}

// TestCollNetAllocations: nothing is allocated per operation.
func TestCollNetAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	file := testPlugin(t)
	withTransport(t, 2, onCollNet(file, 1), func(c *Comm) error {
		in, out := make([]float32, 50_000), make([]float32, 50_000)
		var err error
		op := func() {
			if e := c.AllReduce(Of(in), Of(out), len(in), Float32, Sum); e != nil {
				err = e
			}
		}
		for range 5 {
			op()
		}
		const runs = 50
		if c.Rank() == 0 {
			if n := testing.AllocsPerRun(runs, op); n > 0 { // of the whole process
				t.Errorf("%v allocations an operation", n)
			}
			return err
		}
		for range runs + 1 { // AllocsPerRun warms up with one
			op()
		}
		return err
	})
}

// TestCollNetTimeout: ranks whose head waits for another one's contribution,
// which never comes, run into the timeout.
func TestCollNetTimeout(t *testing.T) {
	file := testPlugin(t)
	comms, errs := initAll(t, 4, func(r int, cfg *Config) {
		onCollNet(file, 2)(r, cfg.Knobs)
		cfg.Knobs.SHMDisable, cfg.Knobs.Timeout = false, 500*time.Millisecond
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for r, c := range comms[:2] {
		wg.Go(func() {
			if err := sumOnce(c, 1000); CodeOf(err) != Timeout && CodeOf(err) != RemoteError {
				t.Errorf("rank %d: %v; want a timeout, or that another rank had one", r, err)
			}
		})
	}
	wg.Wait()
	for r, c := range comms {
		for late := time.Now().Add(5 * time.Minute); c.AsyncError() == nil && time.Now().Before(late); {
			time.Sleep(time.Millisecond) // the others' reports are on their way
		}
		if c.AsyncError() == nil {
			t.Errorf("rank %d: no error", r)
		}
	}
	for _, c := range comms {
		_ = c.Abort()
	}
}
