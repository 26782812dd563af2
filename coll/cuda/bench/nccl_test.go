//go:build cuda && cgo

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/nccl"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/coll/perf/commtest"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

var (
	_ perf.Remote       = (*NCCL)(nil)
	_ perf.ModeSetter   = (*NCCL)(nil)
	_ perf.PreMulSummer = (*NCCL)(nil)
	_ perf.Explainer    = (*NCCL)(nil)
)

// world opens NCCL on all GPUs of the machine, at least n.
func world(t *testing.T, n int) []*NCCL {
	t.Helper()
	devices := gpus(t, n)
	t.Setenv("NCCL_NVLS_ENABLE", "0") // multicast can put the GPUs of a host out of service
	lib, err := nccl.Open()
	if err != nil {
		t.Skip(err)
	}
	t.Logf("NCCL %v on %d × %s", lib.Version(), len(devices), devices[0].Name)
	_, meetings := commtest.New(len(devices))
	out, errs := make([]*NCCL, len(devices)), make([]error, len(devices))
	var wg sync.WaitGroup
	for i := range devices {
		wg.Go(func() {
			var c *driver.Context
			var l *Lane
			if c, errs[i] = driver.Open(i); errs[i] != nil {
				return
			}
			if l, errs[i] = Open(c); errs[i] != nil {
				return
			}
			out[i], errs[i] = OpenNCCL(context.Background(), lib, l, meetings[i])
		})
	}
	wg.Wait()
	must(t, errs...)
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, c := range out {
			wg.Go(func() {
				if err := errors.Join(c.Close(), c.Lane.Close(), c.Context().Close()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
	return out
}

// run runs the benchmark on the world.
func run(t *testing.T, cs []*NCCL, collective, line string) (*perf.Result, string, error) {
	t.Helper()
	cfg, err := perf.Parse(collective, "", strings.Fields(fmt.Sprintf("-t 1 -g %d %s", len(cs), line)))
	must(t, err)
	w := perf.World{Engine: "nccl", Version: int(cs[0].lib.Version()), Abort: func(error) {
		var wg sync.WaitGroup
		for _, c := range cs {
			wg.Go(func() { _ = c.Abort() })
		}
		wg.Wait()
	}}
	for _, c := range cs {
		w.Comms = append(w.Comms, c)
	}
	var out, said bytes.Buffer
	res, err := perf.Run(context.Background(), cfg, w, perf.Streams{Out: &out, Err: &said})
	return res, out.String() + said.String(), err
}

// TestNCCL: the benchmark finds no wrong element in what NCCL does, with any
// collective, type and reduction, in graphs and on symmetric memory.
func TestNCCL(t *testing.T) {
	everywhere(t, world(t, 2),
		"-b 8 -e 1M -f 32 -n 2 -d all -o all",
		"-b 8 -e 64M -f 128 -n 3 -w 1",
		"-b 8 -e 64M -f 128 -n 3 -w 1 -G 2",
		"-b 8 -e 64M -f 128 -n 3 -w 1 -R 2",
		"-b 1000 -e 1M -f 10 -n 2 -m 3 -u 1")
}

// TestNCCLOfBytes is what the fake library can do, too. Not symmetric memory at
// odd addresses: there an AllGather of NCCL 2.28.9 left half of the bytes wrong
// on 2×H200.
func TestNCCLOfBytes(t *testing.T) {
	everywhere(t, world(t, 2),
		"-b 48 -e 64K -f 8 -n 2 -d uint8",
		"-b 48 -e 64K -f 8 -n 2 -d uint8 -o mulsum",
		"-b 48 -e 64K -f 8 -n 2 -d uint8 -G 2 -m 3",
		"-b 48 -e 64K -f 8 -n 2 -d uint8 -r 1 -u 1",
		"-b 48 -e 64K -f 8 -n 2 -d uint8 -R 2 -r 1")
}

// everywhere runs the benchmark of each collective with each of the flags.
func everywhere(t *testing.T, cs []*NCCL, lines ...string) {
	t.Helper()
	for _, name := range perf.Collectives() {
		for _, line := range lines {
			t.Run(name+" "+line, func(t *testing.T) {
				res, text, err := run(t, cs, name, line)
				if err != nil || res.OutOfBounds != 0 || res.Status != perf.OK || !strings.Contains(text, "Out of bounds values : 0 OK") {
					t.Errorf("%v\n%s", err, text)
				}
			})
		}
	}
}

// TestNCCLAbort: an operation that a rank does not take part in ends, and the
// GPU is there afterwards.
func TestNCCLAbort(t *testing.T) {
	cs := world(t, 2)
	errs := make([]error, len(cs))
	var wg sync.WaitGroup
	for i, c := range cs {
		wg.Go(func() {
			errs[i] = onLane(c.Lane, func() error {
				mem, err := c.Alloc(1 << 20)
				if err != nil {
					return err
				}
				defer c.Free(mem)
				times := 2
				if i == 0 {
					times = 1 // which connects the ranks
				}
				for range times {
					if err := c.Do(&op.Op{Coll: op.AllReduce, Send: mem, Recv: mem, Count: 1 << 18, Type: elem.Float32}); err != nil {
						return err
					}
				}
				return c.Wait()
			})
		})
	}
	time.Sleep(2 * time.Second)
	var aborts sync.WaitGroup
	for _, c := range cs {
		aborts.Go(func() { _ = c.Abort() })
	}
	aborts.Wait()
	wg.Wait()
	for i, err := range errs {
		if i > 0 && err == nil {
			t.Errorf("rank %d: no error", i)
		}
	}
	for i, c := range cs {
		err := onLane(c.Lane, func() error {
			mem, err := c.Alloc(1 << 20)
			if err != nil {
				return err
			}
			defer c.Free(mem)
			return errors.Join(c.Fill(mem, []byte{1, 2, 3}, 0), c.Lane.Wait())
		})
		if err != nil {
			t.Errorf("GPU %d afterwards: %v", i, err)
		}
	}
}
