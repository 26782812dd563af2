package bootstrap

import (
	"context"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/predict/scale/scaletest"
)

// TestScaleTable prints what coming up costs as ranks grow, all of them in this
// process, and holds messages to docs/scale.md's formulas.
func TestScaleTable(t *testing.T) {
	list := []int{8, 64, 256}
	if !testing.Short() {
		list = append(list, 1024)
		for _, n := range []int{1440, 2048, 4096} {
			if files := 8*n + 100; scaletest.Files(files) {
				list = append(list, n)
			} else {
				t.Logf("skipped: %d ranks: the limit of open files (ulimit -n) cannot be raised to %d", n, files)
			}
		}
	}
	var rows [][]float64
	t.Log("ranks  levels  ends of links  of a rank, at most  up, seconds  processor-s  barrier, seconds  all-gather of 256 B, seconds")
	for _, n := range list {
		begun, used := time.Now(), scaletest.Processor(t)
		nets := comeUp(t, n, local(), nil)
		up, work := time.Since(begun), scaletest.Processor(t)-used
		begun = time.Now()
		each(nets, func(n *Net) {
			if err := n.Barrier(context.Background()); err != nil {
				t.Error(err)
			}
		})
		barrier := time.Since(begun)
		begun = time.Now()
		each(nets, func(n *Net) {
			if _, err := n.AllGather(context.Background(), make([]byte, 256)); err != nil {
				t.Error(err)
			}
		})
		gather := time.Since(begun)
		ends, most, levels := 0, 0, 0
		for r := range nets {
			ends += len(nets[r].links)
			most = max(most, len(nets[r].links))
		}
		for r := n - 1; r > 0; r = parent(r) {
			levels++
		}
		closeAll(t, nets)
		t.Logf("%5d  %6d  %13d  %17d  %11.3f  %11.2f  %16.4f  %28.4f", n, levels, ends, most, up.Seconds(), work, barrier.Seconds(), gather.Seconds())
		rows = append(rows, []float64{float64(n), up.Seconds(), work, float64(ends), float64(most), barrier.Seconds(), gather.Seconds()})
		if most > 7 || ends > 4*n {
			t.Errorf("%d ranks: %d ends of links, of one rank up to %d; at most %d and 7 are expected", n, ends, most, 4*n)
		}
	}
	scaletest.Record(t, "bootstrap", []string{"ranks", "seconds", "processor seconds", "ends of links", "links of a rank", "barrier seconds", "all-gather seconds"}, rows)
}
