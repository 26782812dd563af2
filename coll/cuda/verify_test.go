//go:build cuda && cgo

package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/flip"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A fault is what FAKE_FLIP lets a device, or the way between two, do. Devices are ranks here.
type fault struct {
	kind     string
	rank, to int
}

func (f fault) set(t *testing.T, every, seed int) {
	t.Helper()
	devices := fmt.Sprint(f.rank)
	if f.kind == "link" {
		devices = fmt.Sprintf("%d %d", f.rank, f.to)
	}
	t.Setenv("FAKE_FLIP", fmt.Sprintf("%s %s %d %d", f.kind, devices, every, seed))
}

// named reports whether the suspects have the one at fault, or an end of the link that is, and alone whether
// they have nobody else.
func (f fault) named(b flip.Blame, gpu func(int) string) (named, alone bool) {
	alone = true
	for _, d := range b.Suspects {
		is := d.GPU == gpu(f.rank) && d.From == ""
		if f.kind == "link" {
			is = d.From == "" && (d.GPU == gpu(f.to) || d.GPU == gpu(f.rank)) || d.GPU == gpu(f.to) && d.From == gpu(f.rank)
		}
		named, alone = named || is, alone && is
	}
	return named, named && alone
}

// findings are those of rank 0 since they were last forgotten.
func findings(all []*gpuRank, forget bool) []flip.Event {
	e := all[0].Executor().(*engine)
	e.Check()
	watch.mu.Lock()
	defer watch.mu.Unlock()
	if forget {
		e.verify.events = nil
	}
	return slices.Clone(e.verify.events)
}

// TestVerifyFlips: a bit that flips in a kernel, in memory or on a link is found, and who is at fault is among
// the suspects, in each of 200 trials.
func TestVerifyFlips(t *testing.T) {
	ranks := gpuCount(t)
	if os.Getenv("FAKE_DEVICES") == "" {
		t.Skip("no GPU flips bits when it is told to")
	}
	w := spread(ranks, ranks)
	w.set = func(k *knob.Knobs) { k.Verify = knob.Verify{Some: 1, Of: 1} }
	all := w.open(t)
	r := rand.New(rand.NewPCG(1, 2))
	const trials = 200
	alone, operations := 0, 0
	for trial := range trials {
		f := fault{kind: []string{"kernel", "memory", "link"}[trial%3], rank: r.IntN(ranks)}
		f.to = (f.rank + 1 + r.IntN(ranks-1)) % ranks
		found := findings(all, true)
		f.set(t, 3, trial)
		reduce := f.kind != "link" || r.IntN(3) > 0
		n := 1 + r.IntN(400)
		for len(found) == 0 {
			if operations++; operations > 40*(trial+1) {
				t.Fatalf("trial %d, %+v: nothing is found", trial, f)
			}
			each(t, all, func(g *gpuRank) error {
				var err error
				if reduce {
					err = g.AllReduce(g.at(0, 4*n), g.at(1<<20, 4*n), n, coll.Float32, coll.Sum)
				} else {
					err = g.AllGather(g.at(0, 4*n), g.at(1<<20, 4*n*ranks), n, coll.Float32)
				}
				if err != nil {
					return err
				}
				return g.wait()
			})
			found = findings(all, false)
		}
		b := flip.BlameOf(found, ranks)
		named, only := f.named(b, all[0].Executor().(*engine).verify.gpu)
		if !named {
			t.Errorf("trial %d, %+v, n %d, reduce %v: %v\n%v", trial, f, n, reduce, b, found)
		}
		if only {
			alone++
		}
	}
	os.Unsetenv("FAKE_FLIP")
	t.Logf("%d trials, %d operations: in %d the one at fault is the only suspect", trials, operations, alone)
}

// TestVerifyFails: with :fail a finding breaks the communicator, on all ranks, also in a graph.
func TestVerifyFails(t *testing.T) {
	ranks := gpuCount(t)
	if os.Getenv("FAKE_DEVICES") == "" {
		t.Skip("no GPU flips bits when it is told to")
	}
	for _, graph := range []bool{false, true} {
		w := spread(ranks, ranks)
		w.set = func(k *knob.Knobs) { k.Verify = knob.Verify{Some: 1, Of: 1, Fail: true} }
		all := w.open(t)
		launch := func(g *gpuRank) error {
			return g.AllReduce(g.at(0, 4096), g.at(8192, 4096), 1024, coll.Float32, coll.Sum)
		}
		graphs := make([]*driver.GraphExec, ranks)
		each(t, all, func(g *gpuRank) (err error) {
			if !graph {
				return launch(g)
			}
			graphs[g.Rank()], err = g.record(1, func() error { return launch(g) })
			return err
		})
		fault{kind: "kernel", rank: 1}.set(t, 1, 7)
		for deadline := time.Now().Add(time.Minute); all[0].AsyncError() == nil || all[1].AsyncError() == nil; {
			if time.Now().After(deadline) {
				t.Fatal("the communicator has not failed")
			}
			each(t, all, func(g *gpuRank) error {
				if g.AsyncError() != nil {
					return nil
				}
				if graph {
					return g.dev.in(func() error { return graphs[g.Rank()].Launch(g.stream) })
				}
				_ = launch(g) // fails once another rank has found it
				return nil
			})
			time.Sleep(time.Millisecond)
		}
		os.Unsetenv("FAKE_FLIP")
		if err := all[0].AsyncError(); !strings.Contains(err.Error(), "ASSAY_CHECK: AllReduce (operation 1, 4096 bytes) was verified and is wrong") && !graph {
			t.Error(err)
		}
	}
}

// A turn is a rotation with an algorithm.
type turn struct {
	all []*gpuRank
	at  int // the device of rank 0
}

// TestSuiteFlips: as the suite full does it, with known inputs, on rotations of the devices over the ranks and
// with all algorithms that add. Who is at fault is among the suspects in each of 200 trials.
func TestSuiteFlips(t *testing.T) {
	ranks := gpuCount(t)
	if os.Getenv("FAKE_DEVICES") == "" {
		t.Skip("no GPU flips bits when it is told to")
	}
	var turns []turn
	for i, algorithm := range []string{"reduce_ll:2:64:0", "allreduce_ll:2:64:0", "reduce_ll128:2:64:0", "allreduce_ll128:2:64:0", "allreduce_simple:2:256:1024"} {
		w := spread(ranks, ranks)
		for r := range w.devices {
			w.devices[r] = (r + i) % ranks
		}
		w.set = func(k *knob.Knobs) { k.GPUAlgo, k.SameBits = algorithm, true }
		turns = append(turns, turn{w.open(t), i % ranks})
	}
	r := rand.New(rand.NewPCG(3, 4))
	const trials = 200
	alone, operations := 0, 0
	for trial := range trials {
		f := fault{kind: []string{"kernel", "memory", "link"}[trial%3], rank: r.IntN(ranks)} // ranks of it are devices
		f.to = (f.rank + 1 + r.IntN(ranks-1)) % ranks
		var events []flip.Event
		for k := trial; len(events) < 3; k++ {
			if operations++; operations > 60*(trial+1) {
				t.Fatalf("trial %d, %+v: nothing is found", trial, f)
			}
			at := turns[k%len(turns)]
			n := 64 * (1 + r.IntN(8))
			of, red := coll.Uint64, coll.Prod
			if r.IntN(2) == 0 {
				of, red = coll.Float32, coll.Sum
			}
			f.set(t, 3, 1000*trial+k)
			wrong, in := at.reduce(t, r, n, of, red)
			one := strings.HasPrefix(at.all[0].Chosen(), "reduce_")
			d := flip.Reduction{Ranks: ranks, Type: of, Op: red, Has: ranks, Owner: func(e int64) int { return int(e) * of.Size() / op.PartBytes(n*of.Size(), ranks) },
				Input: func(rank int, e int64) uint64 { return elem.Bits(in[rank], of, int(e)) }}
			if one {
				d.Owner = func(int64) int { return flip.Itself }
			}
			for _, s := range d.Explain(wrong) {
				events = append(events, flip.Of(s, func(rank int) string { return fmt.Sprint("GPU ", (rank+at.at)%ranks) }))
			}
		}
		b := flip.BlameOf(events, ranks)
		named, only := f.named(b, func(device int) string { return fmt.Sprint("GPU ", device) })
		if !named {
			t.Errorf("trial %d, %+v: %v\n%v", trial, f, b, events)
		}
		if only {
			alone++
		}
	}
	os.Unsetenv("FAKE_FLIP")
	t.Logf("%d trials, %d operations: in %d the one at fault is the only suspect", trials, operations, alone)
}

// reduce does an AllReduce of random data, and returns what is wrong, and the inputs.
func (at turn) reduce(t *testing.T, r *rand.Rand, n int, of coll.Type, red coll.Op) (wrong []flip.Wrong, in [][]byte) {
	t.Helper()
	size, ranks := of.Size(), len(at.all)
	const out = 1 << 20
	for range ranks {
		var b []byte
		for range n {
			v := r.Uint64() | 1
			if of == coll.Float32 {
				v = uint64(math.Float32bits(float32(math.Ldexp(1+r.Float64(), r.IntN(16)))))
			}
			b = elem.AppendBits(b, of, v)
		}
		in = append(in, b)
	}
	want := slices.Clone(in[0])
	for _, b := range in[1:] {
		elem.KernelOf(of, red)(want, want, b)
	}
	results, sent := make([][]byte, ranks), make([][]byte, ranks)
	each(t, at.all, func(g *gpuRank) error {
		if err := g.dev.in(func() error { return driver.CopyToDevice(g.arena, in[g.Rank()]) }); err != nil {
			return err
		}
		if err := g.AllReduce(g.at(0, size*n), g.at(out, size*n), n, of, red); err != nil {
			return err
		}
		if err := g.wait(); err != nil {
			return err
		}
		results[g.Rank()], sent[g.Rank()] = make([]byte, size*n), make([]byte, size*n)
		return g.dev.in(func() error {
			return errors.Join(driver.CopyFromDevice(results[g.Rank()], g.arena+out), driver.CopyFromDevice(sent[g.Rank()], g.arena))
		})
	})
	for rank := range ranks {
		for i := range n {
			if got, w := elem.Bits(results[rank], of, i), elem.Bits(want, of, i); got != w {
				wrong = append(wrong, flip.Wrong{Rank: rank, Element: int64(i), Got: got, Want: w})
			}
			if got, w := elem.Bits(sent[rank], of, i), elem.Bits(in[rank], of, i); got != w {
				wrong = append(wrong, flip.Wrong{Rank: rank, Sent: true, Element: int64(i), Got: got, Want: w})
			}
		}
	}
	return wrong, in
}

// TestVerifyCost prints what verification costs on a GPU, with ASSAY_VERIFY_COST=1: the rate of checksum, and
// the time of an operation that is verified beside one that is not. Two ranks share a GPU.
func TestVerifyCost(t *testing.T) {
	if os.Getenv("ASSAY_VERIFY_COST") == "" {
		t.Skip("ASSAY_VERIFY_COST is not set")
	}
	gpuCount(t)
	timed := func(all []*gpuRank, times int, do func(g *gpuRank) error) time.Duration {
		each(t, all, func(g *gpuRank) error { return errors.Join(do(g), g.wait()) })
		start := time.Now()
		each(t, all, func(g *gpuRank) error {
			for range times {
				if err := do(g); err != nil {
					return err
				}
			}
			return g.wait()
		})
		return time.Since(start) / time.Duration(times)
	}
	open := func(v knob.Verify) []*gpuRank {
		w := spread(2, 1)
		w.set = func(k *knob.Knobs) { k.Verify = v }
		return w.open(t)
	}
	plain, verified := open(knob.Verify{}), open(knob.Verify{Some: 1, Of: 1})
	one := verified[:1]
	for _, n := range []int{64 << 10, 1 << 20, 16 << 20, 64 << 20} {
		d := timed(one, 50, func(g *gpuRank) error {
			v := g.Executor().(*engine).verify
			v.e.stream = g.stream
			return v.e.run(v.checksums(0, []checkSpan{{uint64(g.arena), uint64(n)}}))
		})
		t.Logf("checksum of %9d bytes: %8.1f us, %7.1f GB/s", n, d.Seconds()*1e6, float64(n)/d.Seconds()/1e9)
	}
	for _, n := range []int{2, 16 << 10, 256 << 10, 4 << 20} {
		do := func(g *gpuRank) error { return g.AllReduce(g.at(0, 4*n), g.at(32<<20, 4*n), n, coll.Float32, coll.Sum) }
		a, b := timed(plain, 500, do), timed(verified, 500, do)
		t.Logf("AllReduce of %9d bytes: %8.1f us, verified %8.1f us; one in 1000: %.2f %% more", 4*n, a.Seconds()*1e6, b.Seconds()*1e6, 100*(b-a).Seconds()/1000/a.Seconds())
	}
}
