//go:build cuda && cgo

package cuda

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/flip"
	"github.com/assay-hpc/assay/coll/knob"
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

// verifiers are the ranks' verifiers, without findings.
func verifiers(all []*gpuRank) (vs []*verifier) {
	for _, g := range all {
		e := g.Executor().(*engine)
		e.Check()
		e.verify.events = nil
		vs = append(vs, e.verify)
	}
	return vs
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
		vs := verifiers(all)
		f.set(t, 3, trial)
		reduce := f.kind != "link" || r.IntN(3) > 0
		n := 1 + r.IntN(400)
		for len(vs[0].events) == 0 {
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
			for _, g := range all {
				g.Executor().(*engine).Check()
			}
		}
		b := flip.BlameOf(vs[0].events, ranks)
		named, only := f.named(b, vs[0].gpu)
		if !named {
			t.Errorf("trial %d, %+v, n %d, reduce %v: %v\n%v", trial, f, n, reduce, b, vs[0].events)
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
