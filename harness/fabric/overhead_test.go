package fabric

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/predict/scale/scaletest"
	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/internal/certificate"
)

// TestOverheadTable prints what a run of the suite fabric costs besides its
// measurements, as machines grow, all of them in this process: coming together, a
// command that all run, a round of the hunt, certificates gathered and made one.
func TestOverheadTable(t *testing.T) {
	list := []int{8, 64}
	if !testing.Short() {
		list = append(list, 180, 360, 1024)
	}
	var rows [][]float64
	for _, n := range list {
		if !scaletest.Files(8*n + 100) {
			t.Logf("skipped: %d machines: too few files may be open", n)
			continue
		}
		row := []float64{float64(n)}
		begun, used := time.Now(), scaletest.Processor(t)
		lap := func(what string) {
			took := time.Since(begun)
			t.Logf("%5d machines: %-10s %8.4f s", n, what, took.Seconds())
			row = append(row, took.Seconds())
			begun = time.Now()
		}
		fs := machines(t, n, func(_ int, o *Options) {
			o.Boot.Timeout = time.Minute
			o.Run = func(context.Context, []string, ...string) (Output, error) { return Output{Stdout: []byte("{}")}, nil }
		})
		lap("join")
		all(n, func(rank int) {
			if _, err := fs[rank].Run(t.Context(), "coll"); err != nil {
				t.Error(err)
			}
		})
		lap("command")
		w := &wire{}
		var rounds atomic.Int32
		r, errs := huntedOn(t, fs, w, func(_ *Fabric, _ int, o *HuntOptions) {
			o.Ports = o.Ports[:1]
			o.Progress = func(int, int) { rounds.Add(1) }
		})
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		if r.Outcome != hunt.Clean {
			t.Errorf("%d machines: %s", n, r.Outcome)
		}
		t.Logf("%5d machines: %d rounds", n, rounds.Load())
		begun = begun.Add(time.Since(begun) * time.Duration(rounds.Load()-1) / time.Duration(rounds.Load()))
		lap("round")
		var merged *certificate.Statement
		all(n, func(rank int) {
			st := certificate.New(certificate.Predicate{Suite: "fabric", Started: time.Unix(1e9, 0), Finished: time.Unix(1e9+60, 0), Results: ownResults()})
			if err := st.SetNode(&certificate.Node{Name: fs[rank].o.Name, Identity: []string{fmt.Sprint(rank)}}); err != nil {
				t.Error(err)
			}
			g, err := fs[rank].Gather(t.Context(), st)
			if err == nil && rank == 0 {
				merged, err = fs[0].Merge(g, nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
		lap("gather")
		if got := len(merged.Predicate.Machines); got != n {
			t.Errorf("%d machines: the certificate has %d", n, got)
		}
		row = append(row, scaletest.Processor(t)-used)
		all(n, func(rank int) { fs[rank].Leave(nil) })
		rows = append(rows, row)
	}
	scaletest.Record(t, "overhead", []string{"machines", "join", "a command", "a round", "gather and merge", "processor seconds"}, rows)
}
