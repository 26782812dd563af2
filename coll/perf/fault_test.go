package perf

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/perf/commtest"
)

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

// faults are what an engine may do wrong, in every operation.
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

func (f *forgetful) Do(o *op.Op) error {
	f.calls++
	if f.calls == 4 {
		zeros := *o
		zeros.Send = make([]byte, len(o.Send))
		o = &zeros
	}
	return f.Comm.Do(o)
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
