package fabric

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/predict/scale"
	"github.com/assay-hpc/assay/coll/predict/scale/scaletest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// TestScaleTable measures the certificate of a cluster as it grows, with the
// nodes' own of 12 checks of 8 GPUs, and holds it to the formula.
func TestScaleTable(t *testing.T) {
	var rows [][]float64
	sizes := []int{8, 64, 180, 360, 1440, 4096, 12500}
	if testing.Short() {
		sizes = sizes[:3]
	}
	for _, n := range sizes {
		f := &Fabric{names: make([]string, n)}
		all := make([]*certificate.Statement, n)
		for i := range all {
			f.names[i] = fmt.Sprintf("node%05d", i)
			all[i] = certificate.New(certificate.Predicate{Suite: "fabric", Started: time.Unix(1e9, 0), Finished: time.Unix(1e9+60, 0), Results: ownResults()})
			if err := all[i].SetNode(&certificate.Node{Name: f.names[i], Identity: []string{fmt.Sprint(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		whole, err := f.Merge(&Gathered{Certificates: all}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		own, err := json.Marshal(all[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(whole.Predicate.Results) != n || len(whole.Subject) != n {
			t.Errorf("%d nodes: %d results about %d subjects", n, len(whole.Predicate.Results), len(whole.Subject))
		}
		want := scale.CertificateOf(n)
		if off := float64(len(b))/want.Bytes - 1; n >= 64 && math.Abs(off) > 0.1 {
			t.Errorf("%d nodes: %d bytes; the formula says %.0f", n, len(b), want.Bytes)
		}
		if off := float64(len(own)*n)/want.Embedded - 1; math.Abs(off) > 0.1 {
			t.Errorf("%d nodes' own: %d bytes each; the formula says %.0f of all", n, len(own), want.Embedded)
		}
		t.Logf("%5d nodes: %.3f MB, the nodes' own %.1f MB", n, float64(len(b))/1e6, float64(len(own)*n)/1e6)
		rows = append(rows, []float64{float64(n), float64(len(b)), float64(len(own) * n)})
	}
	scaletest.Record(t, "certificate", []string{"nodes", "bytes", "bytes of the nodes' own"}, rows)
}

// ownResults are of 12 checks of 8 GPUs.
func ownResults() (out []result.Result) {
	for i := range 12 {
		r := result.Result{ID: fmt.Sprintf("bandwidth/family%d", i), Title: "copies between host and GPUs", Verdict: result.Pass, Seconds: 2}
		for gpu := range 8 {
			v := 380 + float64(8*i+gpu)/7
			r.Objects = append(r.Objects, result.Object{
				Name: fmt.Sprintf("GPU %d", gpu), ID: "GPU-00000000-0000-0000-0000-000000000000", Quantity: "write", Verdict: result.Pass,
				Measured: &result.Measurement{Value: v, Unit: "GB/s", Expected: 400, Source: "data sheet", Ratio: v / 400,
					Limit: &result.Limit{Value: 300, Kind: result.AtLeast, Source: "the database"}},
			})
		}
		out = append(out, r)
	}
	return out
}
