package perf

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// TestRatios: the ratios of two collectives as they are drawn, the lower ones of both placements on
// the memory that is best for the other engine.
func TestRatios(t *testing.T) {
	row := func(bytes int64, inPlace, graph bool, memory string, ours, theirs float64) VersusRow {
		return VersusRow{Bytes: bytes, InPlace: inPlace, Graph: graph, Memory: memory, Engines: []EngineTime{{Engine: "assay", Time: ours}, {Engine: "nccl", Time: theirs}}}
	}
	document := func(name string, bad int, rows ...VersusRow) *Document {
		return &Document{
			Collective: name, Ranks: 2, Bad: bad, Devices: []introJSON{{0, introduction{Name: "NVIDIA H100"}}},
			Rivals: []EngineJSON{{"nccl", 22809}}, Versus: &VersusResult{Rows: rows},
		}
	}
	r := NewRatios([]*Document{
		document("all_reduce", 0,
			row(8, false, false, "plain", 3.8, 8.25), row(8, false, false, "symmetric", 3.8, 9), row(8, true, false, "plain", 4, 8), row(8, false, true, "plain", 2, 2),
			row(64<<10, false, false, "plain", 5, 500), row(64<<10, true, false, "plain", 5, 501), row(1<<30, true, false, "plain", 3000, 2900)),
		document("all_gather", 0, row(65520, false, false, "plain", 10, 8)),
	})
	var b strings.Builder
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "ratios.golden", b.String())
	if err := r.Wrong(); err != nil {
		t.Error(err)
	}
	if err := NewRatios([]*Document{document("reduce", 2, row(8, false, false, "plain", 1, 1))}).Wrong(); err == nil || !strings.Contains(err.Error(), "reduce") {
		t.Errorf("wrong data: %v", err)
	}
}
