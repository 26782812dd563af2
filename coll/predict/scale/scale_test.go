package scale

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

const docs = "../../../docs/scale"

// A table is one of docs/scale: what a test with scaletest.Record measured.
type table struct {
	columns []string
	rows    [][]float64
}

func read(t *testing.T, name string) table {
	t.Helper()
	f, err := os.Open(filepath.Join(docs, name+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil || len(all) < 2 {
		t.Fatalf("%s: %d lines, %v", name, len(all), err)
	}
	out := table{columns: all[0]}
	for _, line := range all[1:] {
		var row []float64
		for _, s := range line {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			row = append(row, v)
		}
		out.rows = append(out.rows, row)
	}
	return out
}

// points are a column against the number of ranks or nodes.
func (tb table) points(t *testing.T, column string) (out [][2]float64) {
	t.Helper()
	i := slices.Index(tb.columns, column)
	if i < 0 {
		t.Fatalf("there is no column %q; there are %q", column, tb.columns)
	}
	for _, r := range tb.rows {
		out = append(out, [2]float64{r[0], r[i]})
	}
	return out
}

// A quantity is measured, and has a formula.
type quantity struct {
	file, column string
	formula      func(n int) float64
	from         float64 // ranks or nodes from which on the formula is meant
	low, high    float64 // bounds of measured over formula from there on
}

// quantities are all that docs/scale.md draws.
var quantities = []quantity{
	{"bootstrap", "ends of links", func(n int) float64 { return float64(bootstrapOf(n).LinkEnds) }, 8, 0.85, 1},
	{"bootstrap", "processor seconds", func(n int) float64 { return bootstrapOf(n).Seconds }, 256, 0.4, 1.5},
	{"gathering", "processor seconds", func(n int) float64 { return gatheringOf(n).Seconds }, 256, 0.4, 1.5},
	{"gathering", "messages of a rank", func(n int) float64 { return float64(gatheringOf(n).MessagesOfRank) }, 8, 0.9, 1},
	{"gathering", "bytes", func(n int) float64 { return gatheringOf(n).Bytes }, 8, 0.85, 1.1},
	{"gathering", "bytes of a rank", func(n int) float64 { return gatheringOf(n).BytesOfRank }, 8, 0.7, 1.1},
	{"certificate", "bytes", func(n int) float64 { return CertificateOf(n).Bytes }, 64, 0.9, 1.1},
	{"certificate", "bytes of the nodes' own", func(n int) float64 { return CertificateOf(n).Embedded }, 8, 0.95, 1.05},
	{"hunt", "rounds", func(n int) float64 { return huntOf(n).Rounds }, 4, 0.6, 1.4},
	{"hunt", "rounds with a fault", func(n int) float64 { return huntOf(n).RoundsFault }, 4, 0.6, 1.5},
	{"hunt", "measurements", func(n int) float64 { return huntOf(n).Measurements }, 4, 0.6, 1.5},
}

// TestMeasured holds the formulas against what was measured.
func TestMeasured(t *testing.T) {
	for _, q := range quantities {
		for _, p := range read(t, q.file).points(t, q.column) {
			if p[0] < q.from {
				continue
			}
			if r := p[1] / q.formula(int(p[0])); !(r >= q.low && r <= q.high) {
				t.Errorf("%s of %.0f: %s was %g, the formula says %g: %.2f of it; expected %g to %g", q.file, p[0], q.column, p[1], q.formula(int(p[0])), r, q.low, q.high)
			}
		}
	}
	for _, p := range read(t, "hunt").points(t, "rounds with a fault") {
		if bound := huntOf(int(p[0])).Bound; p[1] > float64(bound) {
			t.Errorf("%.0f nodes: %.0f rounds are above the bound of %d", p[0], p[1], bound)
		}
	}
}

// TestByHand: what can be counted on paper.
func TestByHand(t *testing.T) {
	for _, tt := range []struct{ ranks, up, gather, messages int }{
		{1, 0, 0, 0}, {2, 1, 1, 4}, {5, 1, 1, 16}, {6, 2, 1, 20}, {9, 2, 1, 32}, {10, 2, 2, 36}, {73, 3, 2, 288}, {74, 3, 3, 292},
		{360, 5, 3, 1436}, {585, 5, 3, 2336}, {586, 5, 4, 2340}, {12_500, 7, 5, 49_996}, {100_000, 9, 6, 399_996},
	} {
		c := Of(tt.ranks)
		if c.Bootstrap.Levels != tt.up || c.Gathering.Levels != tt.gather || c.Gathering.Messages != tt.messages {
			t.Errorf("%d ranks: %d and %d levels, %d messages; want %+v", tt.ranks, c.Bootstrap.Levels, c.Gathering.Levels, c.Gathering.Messages, tt)
		}
	}
	// Ten ranks: rank 1 sends for two, ranks 2 to 9 for themselves alone.
	if got, want := gatheringOf(10).Bytes, 8*leafBytes+innerBytes; got != want {
		t.Errorf("ten ranks send %g bytes; want %g", got, want)
	}
	if got := gatheringOf(1).Bytes; got != 0 {
		t.Errorf("one rank sends %g bytes", got)
	}
}

// TestGrows: everything is finite, and no larger cluster costs less, but where
// the nodes' own certificates are too much to be inside the cluster's, and where a
// hunt no longer judges each pair.
func TestGrows(t *testing.T) {
	for _, q := range quantities {
		last := 0.0
		for n := 1; n < 1<<20; n = n*5/4 + 1 {
			v := q.formula(n)
			if math.IsNaN(v) || math.IsInf(v, 0) || v < last && last < 0.9*mostInside && (q.file != "hunt" || n > 20) {
				t.Errorf("%s of %d: %g after %g", q.column, n, v, last)
			}
			last = v
		}
	}
}
