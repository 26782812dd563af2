package coll

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/session"
)

// leakConfig logs to a file, which is open as long as somebody may write there.
func leakConfig(t *testing.T) Config {
	cfg := testConfig()
	cfg.Knobs.Debug, cfg.Knobs.DebugSubsystems, cfg.Knobs.DebugFile = debug.Info, debug.All, filepath.Join(t.TempDir(), "log")
	return cfg
}

// initEach joins ranks that have configurations of their own.
func initEach(t *testing.T, ctx context.Context, id UniqueID, cfgs []Config) ([]*Comm, []error) {
	t.Helper()
	comms, errs := make([]*Comm, len(cfgs)), make([]error, len(cfgs))
	var wg sync.WaitGroup
	for r := range cfgs {
		wg.Go(func() { comms[r], errs[r] = CommInitRank(ctx, len(cfgs), id, r, cfgs[r]) })
	}
	wg.Wait()
	return comms, errs
}

// errOpen is why the executors of a test cannot be opened.
var errOpen = errors.New("no such executor")

// TestFailuresLeaveNothing: what fails closes what it has opened: listeners,
// files, connections, goroutines, shared memory.
func TestFailuresLeaveNothing(t *testing.T) {
	failed := func(t *testing.T, errs ...error) {
		t.Helper()
		for r, err := range errs {
			if err == nil {
				t.Errorf("rank %d has no error", r)
			}
		}
	}
	for name, f := range map[string]func(t *testing.T, cfg Config){
		"an ID that nobody can make": func(t *testing.T, cfg Config) {
			cfg.Knobs.SocketIfname = "=nonexistent0"
			_, err := GetUniqueID(cfg)
			failed(t, err)
		},
		"an ID for an address": func(t *testing.T, cfg Config) {
			cfg.Knobs.CommID = "127.0.0.1:1"
			if _, err := GetUniqueID(cfg); err != nil {
				t.Error(err)
			}
		},
		"no ranks": func(t *testing.T, cfg Config) {
			_, err := CommInitAll(context.Background(), 0, cfg)
			failed(t, err)
		},
		"too few devices": func(t *testing.T, cfg Config) {
			cfg.Devices = []int{1}
			_, err := CommInitAll(context.Background(), 2, cfg)
			failed(t, err)
		},
		"an address that is taken": func(t *testing.T, cfg Config) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			cfg.Knobs.CommID = l.Addr().String()
			_, err = CommInitRank(context.Background(), 2, UniqueID{}, 0, cfg)
			failed(t, err)
		},
		"nobody comes to an address": func(t *testing.T, cfg Config) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			cfg.Knobs.CommID = l.Addr().String()
			l.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err = CommInitRank(ctx, 2, UniqueID{}, 0, cfg)
			failed(t, err)
		},
		"patience ends before the root is reached": func(t *testing.T, cfg Config) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, err := CommInitAll(ctx, 2, cfg)
			failed(t, err)
		},
		"ranks that differ": func(t *testing.T, cfg Config) {
			id, err := GetUniqueID(cfg)
			if err != nil {
				t.Fatal(err)
			}
			other := *cfg.Knobs
			other.BuffSize = 1 << 20
			_, errs := initEach(t, t.Context(), id, []Config{cfg, cfg, {Knobs: &other}})
			failed(t, errs...)
		},
		"an executor that cannot be opened": func(t *testing.T, cfg Config) {
			fakes(t)
			cfg.GPUs = fakeGPUs
			fakeGPUs.Open = func(context.Context, executor.Config) (executor.Executor, error) { return nil, errOpen }
			cfg.Devices = []int{0, 1}
			_, err := CommInitAll(t.Context(), 2, cfg)
			failed(t, err)
		},
		"an executor of some": func(t *testing.T, cfg Config) {
			fakes(t)
			cfg.GPUs = fakeGPUs
			open := fakeGPUs.Open
			fakeGPUs.Open = func(ctx context.Context, a executor.Config) (executor.Executor, error) {
				if a.Rank == 1 {
					return nil, errOpen
				}
				_, err := a.Host.Exchange(ctx, nil) // it waits for rank 1
				if err == nil {
					t.Error("an exchange without rank 1")
				}
				return open(ctx, a)
			}
			cfg.Devices = []int{0, 1, 2}
			_, err := CommInitAll(t.Context(), 3, cfg)
			failed(t, err)
		},
		"a lane of an executor's": func(t *testing.T, cfg Config) {
			fakes(t)
			cfg.GPUs = fakeGPUs
			fakeGPUs.Open = func(ctx context.Context, a executor.Config) (executor.Executor, error) {
				ctx, cancel := context.WithCancel(ctx)
				if a.Rank == 1 {
					cancel()
				}
				defer cancel()
				c, err := a.Host.Lane(ctx)
				if err == nil {
					t.Errorf("%v came without rank 1", c)
				}
				return nil, err
			}
			cfg.Devices = []int{0, 1, 2}
			_, err := CommInitAll(t.Context(), 3, cfg)
			failed(t, err)
		},
		"a split that is given up": func(t *testing.T, cfg Config) {
			comms, err := CommInitAll(t.Context(), 3, cfg)
			if err != nil {
				t.Fatal(err)
			}
			errs := make([]error, len(comms))
			var wg sync.WaitGroup
			for r, c := range comms {
				wg.Go(func() {
					// Rank 1 takes part in what is exchanged first, and no more.
					if r == 1 {
						_, errs[r] = session.Exchange(t.Context(), c.net, [2]int64{})
						if errs[r] == nil {
							errs[r] = c.giveUp("a test", errors.New("this rank has had enough"))
						}
						return
					}
					_, errs[r] = c.Split(t.Context(), 0, 0, Child{})
				})
			}
			wg.Wait()
			failed(t, errs...)
			for _, c := range comms {
				_ = c.Abort()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			colltest.Watch(t)
			f(t, leakConfig(t))
		})
	}
}

// TestFaultWhileOpening: an executor that is opened while the communicator
// breaks is closed.
func TestFaultWhileOpening(t *testing.T) {
	colltest.Watch(t)
	all := fakes(t)
	open := fakeGPUs.Open
	fakeGPUs.Open = func(ctx context.Context, a executor.Config) (executor.Executor, error) {
		f, err := open(ctx, a)
		a.Host.Fail(errOpen)
		return f, err
	}
	if _, err := CommInitAll(t.Context(), 2, deviceConfig(2)); err == nil {
		t.Error("there is a communicator, and it broke before")
	}
	for r := range 2 {
		if f := of(all, r); len(f.log) != 1 || f.log[0] != "close" {
			t.Errorf("rank %d's executor heard %q; want close", r, f.log)
		}
	}
}
