package judge

import (
	"testing"

	"github.com/assay-hpc/assay/coll/predict"
	"github.com/assay-hpc/assay/internal/platform"
)

// TestAgrees holds the ranges of judge, which come from published plateaus, against what predict makes of the same machine's
// links and NICs: neither model calls the other's figure slow or impossible.
func TestAgrees(t *testing.T) {
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	const bytes = 8 << 30
	compared := 0
	for key, p := range db.Platforms {
		m := &Machine{From: "test"}
		m.fromDB(db, key)
		if m.gpu == nil || m.gpu.AMD || p.Reference {
			continue
		}
		node := p.GPUsPerNode.Max()
		for _, name := range predict.Collectives() {
			c, _ := predict.CollectiveOf(name)
			for _, nodes := range []int{1, 2, 8} {
				pr, err := predict.NewPredictor(db, predict.Job{Platform: key, GPUs: nodes * node, Nodes: nodes, Collective: c}, predict.DefaultFitted)
				if err != nil {
					continue
				}
				r, _ := expect(&Table{Collective: name, Ranks: nodes * node, Nodes: nodes, PerProcess: 1}, m)
				if r == nil {
					continue
				}
				got, err := pr.Predict(bytes)
				if err != nil {
					t.Fatal(err)
				}
				compared++
				low, high := r.at(bytes)
				if bus := float64(got.BusBW) / 1e9; bus < low || bus > high {
					t.Errorf("%s, %d nodes, %s: predict says %s GB/s (%s), judge %s to %s", key, nodes, name, figure(bus), got.Algorithm, figure(low), figure(high))
				}
			}
		}
	}
	if compared < 100 {
		t.Errorf("%d compared", compared)
	}
}
