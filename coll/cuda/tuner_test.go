//go:build cuda && cgo

package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
)

// TestTuner: every choice that is tried does the operation or leaves the
// communicator as it was, and a file of what was found is obeyed.
func TestTuner(t *testing.T) {
	n := gpuCount(t)
	if n < 2 {
		t.Skip("rules are for GPUs, each of which is a rank")
	}
	w := spread(2, 2)
	all := w.open(t)
	found := make([][]choose.Row, len(all))
	each(t, all, func(g *gpuRank) error {
		sizes := []int{8, 256, leastCopied}
		e := g.Executor().(*engine)
		rules, err := e.Tune(op.AllReduce, sizes, func(name string, bytes int) (float64, error) {
			k, err := parseChoice(name)
			if err != nil {
				return 0, err
			}
			if bytes > 256 && k.kernel != copies { // emulators are slow
				return cost(k, bytes), nil
			}
			err = g.Comm.AllReduce(g.at(0, bytes), g.at(bytes, bytes), bytes/4, elem.Float32, elem.Sum)
			if coll.CodeOf(err) == coll.InvalidArgument {
				return 0, nil
			}
			if err == nil {
				err = g.wait()
			}
			if got := e.chosen; err == nil && k.kernel != copies && got != k {
				return 0, fmt.Errorf("%v was done with %v in force", got, k)
			}
			return cost(k, bytes), err
		})
		found[g.Rank()] = rules
		return err
	})
	if fmt.Sprint(found[0]) != fmt.Sprint(found[1]) || len(found[0]) < 2 {
		t.Fatalf("found %v and %v", found[0], found[1])
	}

	m := new(choose.Tables)
	m.At(choose.Place{GPU: all[0].dev.info.Name, Ranks: 2, Collective: "AllReduce"}).Rows = []choose.Row{{Choice: "reduce_ll128:2:96:0", Took: [][2]int64{{256, 1000}}}}
	file := filepath.Join(t.TempDir(), "tune.json")
	b, err := m.Bytes()
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	chosen := func(w world, bytes int) string {
		w.set = func(k *knob.Knobs) { k.Tuning = file }
		all := w.open(t)
		each(t, all, func(g *gpuRank) error {
			if err := g.Comm.AllReduce(g.at(0, bytes), g.at(bytes, bytes), bytes/4, elem.Float32, elem.Sum); err != nil {
				return err
			}
			return g.wait()
		})
		return all[0].Chosen()
	}
	if got := chosen(w, 256); got != "reduce_ll128/2" {
		t.Errorf("256 bytes by %s", got)
	}
	if got := chosen(w, 260); strings.HasPrefix(got, "reduce_ll128") {
		t.Errorf("260 bytes by %s", got)
	}
	if got := chosen(spread(2, 1), 256); strings.HasPrefix(got, "reduce_ll128") {
		t.Errorf("two ranks on one GPU: 256 bytes by %s", got)
	}
}
