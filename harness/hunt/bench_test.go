package hunt

import (
	"fmt"
	"testing"
)

// BenchmarkRun is a whole hunt with one slow node, the cluster's simulation
// included.
func BenchmarkRun(b *testing.B) {
	for _, n := range []int{8, 180, 4096} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			for i := range b.N {
				c := newCluster(n, uint64(i))
				c.faults[n/2] = fault{times(0.5), times(0.5)}
				r, err := Run(b.Context(), n, c.probe, Options{Seed: uint64(i)})
				if err != nil || len(r.Suspects) != 1 {
					b.Fatal(err, describe(r))
				}
				b.ReportMetric(float64(r.Rounds), "rounds")
			}
		})
	}
}
