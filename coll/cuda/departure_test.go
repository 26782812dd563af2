//go:build cuda && cgo

package cuda

import (
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/coll"
)

// TestDeparture: a window that another rank may still write to is not lent to a new communicator;
// once that rank has left, it is.
func TestDeparture(t *testing.T) {
	w := spread(2, gpuCount(t))
	window := func(g *gpuRank) *loan { return g.Executor().(*engine).windows.own }
	first := w.open(t)
	exact(t, first, coll.Int32, coll.Sum, 1000)
	old := window(first[0])
	if err := first[0].Abort(); err != nil {
		t.Fatal(err)
	}
	for _, g := range w.open(t) {
		if window(g) == old {
			t.Error("the window is lent, and rank 1 has not left")
		}
	}
	_ = first[1].Abort()                // rank 0 has left
	time.Sleep(1100 * time.Millisecond) // marks are read once a second
	again := w.open(t)
	if window(again[0]) != old && window(again[1]) != old {
		t.Error("the window is not lent again, and all have left")
	}
	var g errgroup.Group
	for _, r := range again {
		g.Go(func() error { return r.Suspend(t.Context()) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, r := range again { // which have no windows
		_ = r.Abort()
	}
	works(t, w)
}
