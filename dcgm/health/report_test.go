package health_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/internal/golden"
)

// sick is a node with some faults of every kind.
func sick(t *testing.T, wanted func(id string) bool) *health.Report {
	n := newNode(t)
	for _, f := range faults {
		switch f.check {
		case "gpu/row-remap/failed", "gpu/persistence", "gpu/nvlink/links", "port/rate", "node/memlock", "gpu/fabric/limited":
			f.inject(n)
		}
	}
	for i := range n.GPUs {
		n.GPUs[i].Persistence = known(false)
	}
	n.GPUs[6].Err = health.ErrNoAnswer
	n.log(0, "NVRM: Xid (PCI:0000:13:00): 79, pid=1, name=\x1b[2J, GPU has fallen off the bus.")
	return health.NewReport("0.0.0-test", n.State, *n.x, health.Run(n.State, *n.x, wanted))
}

func TestText(t *testing.T) {
	r := sick(t, every)
	for name, opt := range map[string]health.TextOptions{"sick.txt": {}, "sick-quiet.txt": {Quiet: true}, "sick-color.txt": {Quiet: true, Color: true}} {
		var b strings.Builder
		if err := r.WriteText(&b, opt); err != nil {
			t.Fatal(err)
		}
		if !opt.Color && strings.Contains(b.String(), "\x1b") {
			t.Errorf("%s: the log's text steers the terminal", name)
		}
		golden.Check(t, name, b.String())
	}
	n := newNode(t)
	var b strings.Builder
	if err := health.NewReport("0.0.0-test", n.State, *n.x, health.Run(n.State, *n.x, every)).WriteText(&b, health.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "healthy.txt", b.String())
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	some := []string{"gpu/answers", "gpu/row-remap/failed", "gpu/pages/pending", "gpu/temperature/spread", "gpu/xid", "port/rate", "node/memlock", "node/shm"}
	if err := sick(t, func(id string) bool { return slices.Contains(some, id) }).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "sick.json", b.String())
	var r health.Report
	dec := json.NewDecoder(strings.NewReader(b.String()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil || r.Schema != health.Schema || r.Verdict != health.Fail || r.Verdict != health.Worst(r.Results) {
		t.Errorf("%v, schema %d, verdict %s", err, r.Schema, r.Verdict)
	}
}

func TestWorst(t *testing.T) {
	of := func(verdicts ...health.Verdict) (out []health.Result) {
		for _, v := range verdicts {
			out = append(out, health.Result{Verdict: v})
		}
		return out
	}
	for _, tt := range []struct {
		results []health.Result
		want    health.Verdict
	}{
		{of(health.Pass, health.Warn, health.Error, health.Fail, health.Skip), health.Fail},
		{of(health.Pass, health.Warn, health.Error), health.Error},
		{of(health.Pass, health.Warn, health.Skip), health.Warn},
		{of(health.Skip, health.Pass), health.Pass},
		{of(health.Skip), health.Skip},
		{nil, health.Skip},
	} {
		if got := health.Worst(tt.results); got != tt.want {
			t.Errorf("Worst(%v) = %s; want %s", tt.results, got, tt.want)
		}
	}
}
