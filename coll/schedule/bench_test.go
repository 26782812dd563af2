package schedule

import (
	"fmt"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

var sink Program

// BenchmarkNew makes a schedule, and the program of one rank: what a
// communicator does at its start.
func BenchmarkNew(b *testing.B) {
	for _, a := range []string{Ring, DoubleTree, Recursive, OneShot, Hierarchical} {
		for _, n := range []int{8, 64, 1440} {
			b.Run(fmt.Sprintf("alg=%s/ranks=%d", a, n), func(b *testing.B) {
				o := Options{Ranks: n, Groups: chop(n, 8)}
				b.ReportAllocs()
				for b.Loop() {
					sink = mustNew(b, op.AllReduce, a, o).Program(n / 2)
				}
			})
		}
	}
}

// BenchmarkCheck proves a schedule.
func BenchmarkCheck(b *testing.B) {
	for _, a := range []string{Ring, DoubleTree, Hierarchical} {
		for _, n := range []int{8, 64, 1440} {
			b.Run(fmt.Sprintf("alg=%s/ranks=%d", a, n), func(b *testing.B) {
				if testing.Short() && n > 64 {
					b.Skip("takes seconds")
				}
				s := mustNew(b, op.AllReduce, a, Options{Ranks: n, Groups: chop(n, 72)})
				b.ReportAllocs()
				for b.Loop() {
					if err := Check(s, CheckOptions{Windows: 2}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
