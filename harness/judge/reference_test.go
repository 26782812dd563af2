package judge

import (
	"fmt"
	"testing"

	"github.com/assay-hpc/assay/internal/platform"
)

// TestPublished judges what others have published by the references alone, without the rows themselves: nothing is called
// impossible, and nine of ten are within the range of their size.
func TestPublished(t *testing.T) {
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	tables := db.MeasuredTables()
	for _, p := range db.Tables {
		tables = append(tables, p)
	}
	type count struct{ all, in, above int }
	var large, small count
	for _, p := range tables {
		m := &Machine{From: "test"}
		m.fromDB(db, p.Platform)
		if m.gpu == nil {
			continue
		}
		tab := &Table{Collective: p.Collective, Ranks: p.GPUs, Nodes: p.Nodes, PerProcess: 1, algorithm: p.Algorithm}
		r, missing := expect(tab, m)
		if r == nil {
			t.Logf("%s %s: needs %v", p.Title, p.Collective, missing)
			continue
		}
		for _, row := range p.Rows {
			low, high := r.at(row.Bytes)
			c := &large
			if row.Bytes <= 16<<20 {
				c = &small
			}
			c.all++
			switch {
			case row.BusBW > high*1.02:
				c.above++
				fallthrough
			case row.BusBW < low:
				t.Logf("%s (%s): %s at %s is not within %s to %s: %s", p.Title, p.Source+" "+p.Note, p.Collective, sizeText(row.Bytes), figure(low), figure(high), figure(row.BusBW))
			default:
				c.in++
			}
		}
	}
	text := fmt.Sprintf("large: %d of %d within, %d above; up to 16 MiB: %d of %d within, %d above", large.in, large.all, large.above, small.in, small.all, small.above)
	t.Log(text)
	if large.in*10 < large.all*9 || small.in*10 < small.all*9 || large.all < 100 {
		t.Error(text)
	}
}
