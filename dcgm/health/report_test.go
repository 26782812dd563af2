package health

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/internal/golden"
)

// sick is a node with some faults of every kind.
func sick(t *testing.T, wanted func(id string) bool) *Report {
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
	n.GPUs[6].Err = errNoAnswer
	n.log(0, "NVRM: Xid (PCI:0000:13:00): 79, pid=1, name=\x1b[2J, GPU has fallen off the bus.")
	return NewReport("0.0.0-test", n.State, *n.x, Run(n.State, *n.x, wanted))
}

func TestText(t *testing.T) {
	r := sick(t, every)
	for name, opt := range map[string]TextOptions{"sick.txt": {}, "sick-quiet.txt": {Quiet: true}, "sick-color.txt": {Quiet: true, Color: true}} {
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
	if err := NewReport("0.0.0-test", n.State, *n.x, Run(n.State, *n.x, every)).WriteText(&b, TextOptions{}); err != nil {
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
	var r Report
	dec := json.NewDecoder(strings.NewReader(b.String()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil || r.Schema != Schema || r.Verdict != result.Fail || r.Verdict != result.Worst(verdicts(r.Results)...) {
		t.Errorf("%v, schema %d, verdict %s", err, r.Schema, r.Verdict)
	}
}

func TestWorst(t *testing.T) {
	of := func(verdicts ...result.Verdict) (out []Result) {
		for _, v := range verdicts {
			out = append(out, Result{Verdict: v})
		}
		return out
	}
	for _, tt := range []struct {
		results []Result
		want    result.Verdict
	}{
		{of(result.Pass, result.Warn, result.Error, result.Fail, result.Skip), result.Fail},
		{of(result.Pass, result.Warn, result.Error), result.Error},
		{of(result.Pass, result.Warn, result.Skip), result.Warn},
		{of(result.Skip, result.Pass), result.Pass},
		{of(result.Skip), result.Skip},
		{nil, result.Skip},
	} {
		if got := result.Worst(verdicts(tt.results)...); got != tt.want {
			t.Errorf("Worst(%v) = %s; want %s", tt.results, got, tt.want)
		}
	}
}
