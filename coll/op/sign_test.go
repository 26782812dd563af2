package op

import (
	"math/rand/v2"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
)

// Counts and roots that are any distance apart have the same signature in one of two million cases.
func TestSign(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	distances := []int{1, 2, 7, 8, 1 << 10, 1 << 20, 1 << 30}
	// Fibonacci numbers are what a product with the golden ratio tells apart least.
	for a, b := 1, 2; b < 1<<40; a, b = b, a+b {
		distances = append(distances, b)
	}
	same := func(what string, distance int, equal func(count int) bool) {
		n := 0
		for range 5000 {
			if equal(r.IntN(1 << 40)) {
				n++
			}
		}
		if n > 2 {
			t.Errorf("%s that are %d apart: %d of 5000 have the same signature", what, distance, n)
		}
	}
	for _, d := range distances {
		same("counts", d, func(count int) bool {
			return sign(AllReduce, elem.Float32, elem.Sum, count, NoPeer) == sign(AllReduce, elem.Float32, elem.Sum, count+d, NoPeer)
		})
	}
	for d := 1; d < 100; d++ {
		same("roots", d, func(count int) bool {
			return sign(Broadcast, elem.Float32, elem.Sum, count, 0) == sign(Broadcast, elem.Float32, elem.Sum, count, d)
		})
	}
}
