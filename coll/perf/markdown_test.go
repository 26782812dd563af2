package perf

import (
	"strings"
	"testing"
)

func TestMarkdown(t *testing.T) {
	row := func(bytes int64, graph bool, memory string, ours, theirs float64, wrong int64) VersusRow {
		return VersusRow{Bytes: bytes, Graph: graph, Memory: memory, Engines: []EngineTime{
			{Engine: "assay", Algorithm: "reduce_ll/1", Time: ours, BusBW: 2}, {Engine: "nccl", Time: theirs, BusBW: 1, Wrong: wrong},
		}}
	}
	d := Document{
		Schema: 1, Collective: "all_reduce", Ranks: 2, Started: "2026-11-22T01:18:29Z", Devices: make([]introJSON, 2),
		Rivals: []EngineJSON{{"nccl", 22809}},
		Versus: &VersusResult{Rows: []VersusRow{
			row(8, false, "plain", 4, 12, 0), row(8, false, "symmetric", 5, 10, 0), row(8, true, "plain", 3, 6, 0),
			row(33554432, false, "plain", 100, 90, 1),
		}},
	}
	d.Devices[0].Name = "NVIDIA H200"
	var b strings.Builder
	if err := d.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	want := "`all_reduce`" + `, 2 × NVIDIA H200, 2026-11-22, nccl 2.28.9

| bytes | eager, out of place | graph, out of place | busbw (GB/s), first column | by |
|---|---|---|---|---|
| 8 | 5.00 / 10.0, **2.00** | 3.00 / 6.00, **2.00** | 2.0 / 1.0 | reduce_ll/1 |
| 33,554,432 | 100 / 90.0, **0.90**, wrong | | 2.0 / 1.0 | reduce_ll/1 |
`
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	for text, want := range map[string]string{
		"{": "unexpected EOF", `{"schema": 2}`: "schema 2", `{"schema": 1}`: "nothing was compared", `{"schema": 1, "error": "lost"}`: "lost",
	} {
		if _, err := ReadDocument(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
