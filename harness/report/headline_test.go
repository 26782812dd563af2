package report

import (
	"testing"

	"github.com/assay-hpc/assay/internal/result"
)

// TestHeadlines: of several figures the worst, by its direction; none of what was skipped.
func TestHeadlines(t *testing.T) {
	m := func(v float64, unit string) *result.Measurement {
		return &result.Measurement{Value: v, Unit: unit, Expected: 100, Source: "test", Ratio: v / 100}
	}
	object := func(quantity string, v float64, unit string, verdict result.Verdict) result.Object {
		return result.Object{Name: "GPU", Quantity: quantity, Measured: m(v, unit), Verdict: verdict}
	}
	got := headlinesOf([]result.Result{
		{ID: "coll/all_reduce", Verdict: result.Pass, Measured: m(90, "GB/s")},
		{ID: "again/all_reduce", Verdict: result.Warn, Measured: m(70, "GB/s")},
		{ID: "host/all_reduce", Verdict: result.Fail, Measured: &result.Measurement{Value: 3, Unit: "GB/s"}},
		{ID: "bandwidth/local_ce", Verdict: result.Skip, Measured: m(1, "GB/s")},
		{ID: "bandwidth/host_to_device_all", Verdict: result.Pass, Measured: m(50, "GB/s")},
		{ID: "diag/a", Verdict: result.Pass, Objects: []result.Object{
			object("bf16 products, wgmma", 800, "TFLOP/s", result.Pass), object("bf16 products, wgmma", 700, "TFLOP/s", result.Pass),
			object("highest temperature", 60, "°C", result.Pass), object("highest temperature", 71, "°C", result.Pass),
		}},
	})
	want := []struct {
		label string
		value float64
		v     result.Verdict
	}{{"all_reduce bus bandwidth", 70, result.Warn}, {"bf16 products", 700, result.Pass}, {"highest temperature", 71, result.Pass}}
	if len(got) != len(want) {
		t.Fatalf("%d headlines: %+v", len(got), got)
	}
	for i, w := range want {
		if g := got[i]; g.Label != w.label || g.of.Value != w.value || g.Verdict != w.v {
			t.Errorf("%+v, %v; want %+v", g, g.of, w)
		}
	}
	if b := bar(0.5, 4) + bar(-1, 2) + bar(3, 2); b != "██░░░░██" {
		t.Errorf("bars: %s", b)
	}
}
