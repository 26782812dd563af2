package coll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/transport/netplugin"
	"github.com/assay-hpc/assay/coll/transport/netplugin/netplugintest"
)

// testPlugin builds the test plugin; without cgo the test is skipped.
func testPlugin(t *testing.T, flags ...string) string {
	t.Helper()
	file := netplugintest.Build(t, flags...)
	if _, err := netplugin.Load(file); err != nil {
		if strings.Contains(err.Error(), "without cgo") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	return file
}

// onNetwork keeps ranks off shared memory, on a plugin's network.
func onNetwork(plugin string) func(int, *knob.Knobs) {
	return func(_ int, k *knob.Knobs) { k.SHMDisable, k.NetPlugin, k.Net = true, plugin, netplugintest.Name }
}

// TestPluginConformance runs the collectives' suite over the test plugin, and
// over shared memory and the plugin.
func TestPluginConformance(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1")
	file := testPlugin(t)
	for name, set := range map[string]func(int, *knob.Knobs){
		"plugin": onNetwork(file),
		"mixed": func(r int, k *knob.Knobs) {
			k.HostID, k.NetPlugin, k.Net = fmt.Sprint("host", r%2), file, netplugintest.Name
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := colltest.Options{}
			if testing.Short() {
				o.Ranks = []int{2, 3}
			}
			colltest.Run(t, o, func(t *testing.T, n int) []colltest.Comm { return openConformers(t, n, set) })
		})
	}
}

// TestPluginVersions: sums over each version of the interface, with a plugin
// that is slow to connect, busy, and moves little at a time.
func TestPluginVersions(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1")
	t.Setenv("ASSAY_TEST_NET_CONNECT", "5")
	t.Setenv("ASSAY_TEST_NET_BUSY", "1")
	t.Setenv("ASSAY_TEST_NET_PARTIAL", "50000")
	for _, v := range []int{8, 9, 10, 11, 12} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			file := testPlugin(t, fmt.Sprintf("-DONLY=%d", v))
			withTransport(t, 3, onNetwork(file), func(c *Comm) error {
				for _, count := range []int{1, 1000, 300_000} {
					if err := sumOnce(c, count); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// initAll makes communicators whose ranks have settings of their own.
func initAll(t *testing.T, n int, set func(rank int, cfg *Config)) ([]*Comm, []error) {
	t.Helper()
	id, err := GetUniqueID(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	comms, errs := make([]*Comm, n), make([]error, n)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			cfg := testConfig()
			cfg.Knobs.SHMDisable = true
			set(r, &cfg)
			comms[r], errs[r] = CommInitRank(ctx, n, id, r, cfg)
		})
	}
	wg.Wait()
	return comms, errs
}

// TestNetworkLog: what network is used, and what a plugin logs, stands in the
// log; so does why a plugin is not used.
func TestNetworkLog(t *testing.T) {
	file := testPlugin(t)
	for name, tt := range map[string]struct {
		env  map[string]string
		knob func(r int, k *knob.Knobs)
		want []string
	}{
		"plugin": {
			knob: func(_ int, k *knob.Knobs) { k.NetPlugin = file },
			want: []string{"NET/Plugin: loaded net plugin assay test (v12) from " + file, "device 1 is test1, port 1, 10000 Mbit/s", "collnet plugin assay test reducing is not used: NCCL_COLLNET_ENABLE is not 1",
				"NCCL INFO NET/Test : init returns 0", "Using network assay test", "via assay test 1 channels"},
		},
		"none": {
			knob: func(_ int, k *knob.Knobs) { k.NetPlugin = "none" },
			want: []string{"Using network Socket", "via Socket 1 channels"},
		},
		"forced socket": {
			knob: func(_ int, k *knob.Knobs) { k.NetPlugin, k.Net = file, "Socket" },
			want: []string{"Using network Socket"},
		},
		"absent": {
			knob: func(_ int, k *knob.Knobs) { k.NetPlugin = "absent" },
			want: []string{"NCCL WARN NET/Plugin: NCCL_NET_PLUGIN=absent: no network plugin: absent: cannot open", "libnccl-net-absent.so: cannot open", "Using network Socket"},
		},
		"second of a list": {
			knob: func(_ int, k *knob.Knobs) { k.NetPlugin = "absent," + file },
			want: []string{"libnccl-net-absent.so: cannot open", "Using network assay test"},
		},
		"init fails": {
			env:  map[string]string{"ASSAY_TEST_NET_INIT": "2"},
			knob: func(_ int, k *knob.Knobs) { k.NetPlugin = file },
			want: []string{"NCCL WARN NET/Test : told to fail", "network plugin assay test: init: system error (2)", "Using network Socket"},
		},
		"no devices": {
			env:  map[string]string{"ASSAY_TEST_NET_DEVICES": "0"},
			knob: func(_ int, k *knob.Knobs) { k.NetPlugin = file },
			want: []string{"network plugin assay test has no devices", "Using network Socket"},
		},
		"one rank has none": {
			knob: func(r int, k *knob.Knobs) { k.NetPlugin = []string{file, "none"}[r] },
			want: []string{"NCCL WARN NET: rank 1 has no network assay test (no plugin was asked for); all ranks use Socket", "Using network Socket"},
		},
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
				tt.knob(r, cfg.Knobs)
				cfg.Log = log
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			withSums(t, comms)
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the log does not say %q:\n%s", want, out.String())
				}
			}
		})
	}
}

// withSums does a sum with communicators, and ends them.
func withSums(t *testing.T, comms []*Comm) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			if err := sumOnce(c, 1000); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	destroyAll(t, comms)
}

// TestNetworkForced: NCCL_NET names a network that some rank has not.
func TestNetworkForced(t *testing.T) {
	file := testPlugin(t)
	for name, tt := range map[string]struct {
		knob func(r int, k *knob.Knobs)
		want string
	}{
		"nobody has it": {
			func(_ int, k *knob.Knobs) { k.Net = "IB" },
			"rank 0 has no network of the name that NCCL_NET says, IB: no InfiniBand: ",
		},
		"one has no plugin": {
			func(r int, k *knob.Knobs) { k.Net, k.NetPlugin = "Assay Test", []string{file, "absent"}[r] },
			"rank 1 has no network of the name that NCCL_NET says, Assay Test: no network plugin: absent: cannot open",
		},
		"another name": {
			func(_ int, k *knob.Knobs) { k.Net, k.NetPlugin = "AWS Libfabric", file },
			"is assay test, and NCCL_NET=AWS Libfabric",
		},
		"different ones": {
			func(r int, k *knob.Knobs) { k.Net, k.NetPlugin = []string{"Socket", "assay test"}[r], file },
			"rank 1 has the networks assay test, and rank 0 has Socket",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := initAll(t, 2, func(r int, cfg *Config) { tt.knob(r, cfg.Knobs) })
			for r, err := range errs {
				if CodeOf(err) != InvalidUsage || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("rank %d: %v; want an invalid usage with %q", r, err, tt.want)
				}
			}
		})
	}
}

// TestPluginBreaks: a plugin whose call fails in the middle is an error on all
// ranks.
func TestPluginBreaks(t *testing.T) {
	file := testPlugin(t)
	t.Setenv("ASSAY_TEST_NET_FAIL", "300")
	comms, errs := initAll(t, 3, func(r int, cfg *Config) { onNetwork(file)(r, cfg.Knobs) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			defer func() { _ = c.Abort() }()
			for range 1000 {
				if err := sumOnce(c, 10_000); err != nil {
					if CodeOf(err) != RemoteError {
						t.Errorf("rank %d: %v; want a remote error", r, err)
					}
					return
				}
			}
			t.Errorf("rank %d: no error", r)
		})
	}
	wg.Wait()
}

// TestPluginKill: as TestKill, over the plugin; also over one that does not
// notice that its peer is dead.
func TestPluginKill(t *testing.T) {
	file := testPlugin(t)
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for i, deaf := range []string{"0", "1"} {
		t.Run("deaf="+deaf, func(t *testing.T) {
			slowest := colltest.Chaos{
				Job:    colltest.JobOptions{Program: "endless", Ranks: 4, Arg: "socket plugin", Env: []string{pluginVar + "=" + file, "ASSAY_TEST_NET_DEAF=" + deaf}},
				Rounds: rounds, Moment: 600 * time.Millisecond, Deadline: 5 * time.Minute, Seed: uint64(7 + i),
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

// pluginVar tells the processes of a job which plugin to use.
const pluginVar = "ASSAY_COLL_TEST_PLUGIN"

// usePlugin puts a job's rank on the plugin's network.
func usePlugin(k *knob.Knobs) { onNetwork(os.Getenv(pluginVar))(0, k) }

// TestPluginAllocations: nothing is allocated per operation.
func TestPluginAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	file := testPlugin(t)
	withTransport(t, 2, onNetwork(file), func(c *Comm) error {
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
