package predict

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/hardware"
	"github.com/assay-hpc/assay/internal/platform"
)

func database(t testing.TB) *platform.DB {
	t.Helper()
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// TestPublished holds the model to the errors that docs/predict.md states.
func TestPublished(t *testing.T) {
	stated := map[string]struct{ median, max float64 }{
		"a100-8":         {0.13, 0.41},
		"gb200-1-rack":   {0.05, 0.11},
		"gb200-8":        {0.05, 0.09},
		"h100-8":         {0.02, 0.16},
		"gb200-2-racks":  {0.05, 0.25},
		"gb200-20-racks": {0.10, 0.23},
		"h100-64":        {0.05, 0.12},
		"modal-h100-16":  {0.04, 0.04},
	}
	all, err := CompareAll(database(t), DefaultFitted)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range all {
		want := stated[c.Key]
		if c.Median() > want.median || c.Max() > want.max {
			t.Errorf("%s: median error %.3f, max %.3f; docs say at most %.2f, %.2f", c.Key, c.Median(), c.Max(), want.median, want.max)
		}
		fmt.Fprintf(&b, "%s: median %.1f %%, max %.1f %%\n", c.Key, 100*c.Median(), 100*c.Max())
		for _, r := range c.Rows {
			fmt.Fprintf(&b, "%12d %10.1f %10.1f %+6.1f %s %s\n", r.Bytes, r.Published.Seconds()*1e6, r.Time.Seconds()*1e6, 100*r.Error(), r.Algorithm, r.Protocol)
		}
	}
	if len(all) != len(stated) {
		t.Errorf("%d tables; docs state errors of %d", len(all), len(stated))
	}
	golden.Check(t, "published.golden", b.String())
}

// TestHeldOut: measured rows that no fit saw. docs/predict.md states the
// median of all of them.
func TestHeldOut(t *testing.T) {
	db := database(t)
	held, skipped := HeldOut(db, DefaultFitted)
	var errors []float64
	for _, c := range held {
		for _, r := range c.Rows {
			errors = append(errors, math.Abs(r.Error()))
		}
	}
	within := map[bool][2]int{} // by whether the size is small: rows within the range, all rows
	for _, c := range held {
		for _, r := range c.Rows {
			n := within[r.Bytes <= smallSizes]
			if r.Row >= r.Low && r.Row <= r.High {
				n[0]++
			}
			n[1]++
			within[r.Bytes <= smallSizes] = n
		}
	}
	for small, n := range within {
		t.Logf("small %v: %d of %d published rows lie within the range", small, n[0], n[1])
		if n[0]*10 < n[1]*9 {
			t.Errorf("small %v: %d of %d published rows lie within the range; docs say nine of ten", small, n[0], n[1])
		}
	}
	slices.Sort(errors)
	if n := len(errors); n < 60 {
		t.Fatalf("%d rows held out; want 60 and more", n)
	}
	if m := errors[len(errors)/2]; m > 0.05 {
		t.Errorf("median error of %d rows = %.3f; docs say at most 0.05", len(errors), m)
	}
	if len(skipped) == 0 {
		t.Error("nothing skipped; want the platforms without NVLink or NIC figures")
	}
}

// TestFitIsDefault: DefaultFitted is what fitTo finds, not what somebody tuned.
func TestFitIsDefault(t *testing.T) {
	if testing.Short() {
		t.Skip("fits for seconds")
	}
	db := database(t)
	var tables []*platform.Table
	for _, key := range slices.Sorted(maps.Keys(db.Tables)) {
		tables = append(tables, db.Tables[key])
	}
	got, err := fitTo(db, tables, memo{})
	if err != nil {
		t.Fatal(err)
	}
	d := DefaultFitted
	for _, tt := range []struct {
		name      string
		got, want float64
	}{
		{"Step", float64(got.Step), float64(d.Step)},
		{"RackUplink", float64(got.RackUplink), float64(d.RackUplink)},
	} {
		if math.Abs(tt.got/tt.want-1) > 0.03 {
			t.Errorf("fitTo finds %s %.4g; DefaultFitted has %.4g", tt.name, tt.got, tt.want)
		}
	}
}

func TestLeaveOneOut(t *testing.T) {
	if testing.Short() {
		t.Skip("fits for seconds")
	}
	all, err := LeaveOneOut(database(t))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "%-15s median %5.1f %%, max %5.1f %%\n", c.Key, 100*c.Median(), 100*c.Max())
	}
	golden.Check(t, "leaveoneout.golden", b.String())
}

func TestPredictor(t *testing.T) {
	db := database(t)
	for _, tt := range []struct {
		job   Job
		bytes int64
		want  string // algorithm
		low   float64
		high  float64 // busbw in GB/s
	}{
		{Job{Platform: "hgx-h100-ndr400", GPUs: 8}, 16 << 30, "NVLS", 440, 490},
		{Job{Platform: "hgx-h100-ndr400", GPUs: 8, Algorithm: "Ring"}, 16 << 30, "Ring", 330, 371},
		{Job{Platform: "hgx-h100-ndr400", GPUs: 16}, 8 << 30, "NVLSTree", 400, 500},
		{Job{Platform: "hgx-h100-ndr400", GPUs: 256, Nodes: 32}, 8 << 30, "NVLSTree", 300, 390},
		{Job{Platform: "dgx-a100", GPUs: 2}, 1 << 30, "Ring", 200, 240},
		{Job{Platform: "hgx-h200", GPUs: 8, Collective: op.AllGather}, 16 << 30, "Ring", 330, 371},
		{Job{Platform: "hgx-h200", GPUs: 8, Collective: op.Broadcast}, 16 << 30, "Ring", 300, 371},
		{Job{Platform: "aws-p4d", GPUs: 16}, 1 << 30, "Tree", 70, 95},
	} {
		p, err := NewPredictor(db, tt.job, DefaultFitted)
		if err != nil {
			t.Errorf("%+v: %v", tt.job, err)
			continue
		}
		got, err := p.Predict(tt.bytes)
		if err != nil || got.Algorithm != tt.want || float64(got.BusBW) < tt.low*1e9 || float64(got.BusBW) > tt.high*1e9 {
			t.Errorf("%+v: %+v, %v; want %s, %g to %g GB/s", tt.job, got, err, tt.want, tt.low, tt.high)
		}
		for _, u := range p.Figures() {
			if u.Name == "" || u.Value == "" || u.Source == "" {
				t.Errorf("%+v: figure %+v has no source", tt.job, u)
			}
		}
	}
}

// TestPredictGrows: more bytes take longer, up to where another protocol
// begins.
func TestPredictGrows(t *testing.T) {
	for _, j := range []Job{{Platform: "dgx-a100", GPUs: 8}, {Platform: "gb200-nvl72", GPUs: 144}, {Platform: "hgx-b200", GPUs: 32}} {
		p, err := NewPredictor(database(t), j, DefaultFitted)
		if err != nil {
			t.Fatal(err)
		}
		var last time.Duration
		for b := int64(8); b <= 4<<30; b *= 4 {
			got, err := p.Predict(b)
			if err != nil || got.Time < last*9/10 {
				t.Errorf("%+v, %d bytes: %v after %v, %v", j, b, got.Time, last, err)
			}
			last = got.Time
		}
	}
}

func TestPredictorErrors(t *testing.T) {
	db, err := platform.Parse(hardware.Files) // not the one that other tests share
	if err != nil {
		t.Fatal(err)
	}
	db.Platforms["gcp-a3-ultra"].NICs, db.Platforms["oci-a100-b4-8"].NICs = nil, &platform.NICs{}
	for _, tt := range []struct {
		job  Job
		want string
	}{
		{Job{Platform: "nothing", GPUs: 8}, "no platform"},
		{Job{Platform: "mi300x-node", GPUs: 8}, "NVLink only"},
		{Job{Platform: "gcp-a3-ultra", GPUs: 16}, "no NICs"},
		{Job{Platform: "oci-a100-b4-8", GPUs: 16}, "no rate of its NICs"},
		{Job{Platform: "a40-node", GPUs: 8}, "how many GPUs a node has"},
		{Job{Platform: "dgx-a100", GPUs: 1}, "want 2 or more"},
		{Job{Platform: "dgx-a100", GPUs: 11}, "each must have as many"},
		{Job{Platform: "dgx-a100", GPUs: 16, Nodes: 1}, "a node has 8"},
		{Job{Platform: "gb200-nvl72", GPUs: 100}, "predict 24 nodes"},
		{Job{Platform: "nvsentinel-preflight", GPUs: 8}, "names no GPU"},
		{Job{Platform: "dgx-a100", GPUs: 8, Algorithm: "NVLS"}, `no model of AllReduce by "NVLS"`},
		{Job{Platform: "gb200-nvl72", GPUs: 128, Segment: 20}, "has 18"},
	} {
		if _, err := NewPredictor(db, tt.job, DefaultFitted); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("NewPredictor(%+v) = %v; want %q", tt.job, err, tt.want)
		}
	}
}
