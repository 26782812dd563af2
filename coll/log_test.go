package coll

import (
	"bytes"
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/debug"
)

// A logBuffer is written by several ranks.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A rank that others wait for is named in the log, and how ranks are connected
// stands there too.
func TestLog(t *testing.T) {
	var out logBuffer
	log, err := debug.Open(debug.Options{Level: debug.Info, Subsystems: debug.All, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cfg := testConfig()
	cfg.Log = log
	cfg.Knobs.HangAfter, cfg.Knobs.HangDir = time.Second, t.TempDir()
	comms, err := CommInitAll(context.Background(), 3, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			if c.Rank() == 1 { // until the others have complained
				for deadline := time.Now().Add(5 * time.Minute); strings.Count(out.String(), "NCCL WARN") < 2 && time.Now().Before(deadline); {
					time.Sleep(10 * time.Millisecond)
				}
			}
			v := []int32{1}
			if err := c.AllGather(Of(v), Of(make([]int32, 3)), 1, Int32); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	destroyAll(t, comms)
	for _, want := range []string{"AllGather of int32: waited ", "comm rank 2 nranks 3 via SHM 2 via Socket 0", "assay "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, out.String())
		}
	}
}

// Nothing is allocated per operation, by any rank.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, bytes := range []int{8, 1 << 10, 256 << 10} {
		for name, f := range map[string]func(c *Comm, in, out Buffer) error{
			"AllReduce":     func(c *Comm, in, out Buffer) error { return c.AllReduce(in, out, bytes/4, Float32, Sum) },
			"AllReduce avg": func(c *Comm, in, out Buffer) error { return c.AllReduce(in, out, bytes/4, Float32, Avg) },
			"Broadcast":     func(c *Comm, in, out Buffer) error { return c.Broadcast(in, out, bytes/4, Float32, 0) },
			"AllGather":     func(c *Comm, in, out Buffer) error { return c.AllGather(in, out, bytes/8, Float32) },
			"ReduceScatter": func(c *Comm, in, out Buffer) error { return c.ReduceScatter(in, out, bytes/8, Float32, Sum) },
			"Reduce":        func(c *Comm, in, out Buffer) error { return c.Reduce(in, out, bytes/4, Float32, Max, 1) },
		} {
			const runs = 50
			withRanks(t, 2, testConfig(), func(c *Comm) error {
				in, out := make([]byte, bytes), make([]byte, bytes)
				var err error
				op := func() {
					if e := f(c, Bytes(in), Bytes(out)); e != nil {
						err = e
					}
				}
				for range 5 {
					op()
				}
				// It counts those of the whole process, what other tests have left running
				// included: what an operation needs is in the least of three.
				least := math.Inf(1)
				for range 3 {
					if c.Rank() == 0 {
						least = min(least, testing.AllocsPerRun(runs, op))
						continue
					}
					for range runs + 1 { // AllocsPerRun warms up with one
						op()
					}
				}
				if c.Rank() == 0 && least > 0 {
					t.Errorf("%s of %d bytes: %v allocations an operation", name, bytes, least)
				}
				return err
			})
		}
	}
}

// TestLateIsNamed: the log names the operation that a rank waits in, whoever
// runs it, and not the one that the communicator ran last.
func TestLateIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		wait func(c, other *Comm, side *fake) error
		want string
	}{
		"a group": {func(c, _ *Comm, _ *fake) error {
			var g Group
			g.Start()
			g.Add(c)
			v := []int32{1}
			_ = c.AllGather(Of(v), Of(make([]int32, 2)), 1, Int32)
			return g.End()
		}, "operation #2, AllGather of int32: waited "},
	} {
		t.Run(name, func(t *testing.T) {
			var out logBuffer
			log, err := debug.Open(debug.Options{Level: debug.Warn, Subsystems: debug.All, Stderr: &out})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			var comms [2][]*Comm
			var sides [2]*fake
			for i := range comms {
				all := fakes(t)
				cfg := deviceConfig(2)
				cfg.Log = log
				cfg.Knobs.HangAfter, cfg.Knobs.HangDir = time.Second, t.TempDir()
				if comms[i], err = CommInitAll(context.Background(), 2, cfg); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					sides = [2]*fake{of(all, 0), of(all, 1)}
				}
			}
			var wg sync.WaitGroup
			for r, c := range comms[0] {
				wg.Go(func() {
					v := []int32{1}
					if err := c.AllReduce(Of(v), Of(v), 1, Int32, Sum); err != nil {
						t.Error(err)
					}
					if r == 1 { // until the other has complained
						for deadline := time.Now().Add(60 * time.Second); !strings.Contains(out.String(), "NCCL WARN") && time.Now().Before(deadline); {
							time.Sleep(10 * time.Millisecond)
						}
					}
					if err := tt.wait(c, comms[1][r], sides[r]); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			destroyAll(t, comms[0])
			destroyAll(t, comms[1])
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("the log does not say %q:\n%s", tt.want, out.String())
			}
		})
	}
}
