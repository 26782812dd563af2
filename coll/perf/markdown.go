package perf

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// ReadDocument reads the output of --format json.
func ReadDocument(r io.Reader) (*Document, error) {
	var d Document
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return nil, err
	}
	switch {
	case d.Schema != 1:
		return nil, fmt.Errorf("schema %d is not 1", d.Schema)
	case d.Error != "":
		return nil, fmt.Errorf("the run failed: %s", d.Error)
	case d.Versus == nil || len(d.Versus.Rows) == 0:
		return nil, fmt.Errorf("nothing was compared: it is not from --versus")
	case len(d.Devices) == 0:
		return nil, fmt.Errorf("it names no device")
	}
	return &d, nil
}

// A cell is how an operation is launched and where its result goes.
type cell struct{ graph, inPlace bool }

// cells returns the rows of a comparison by size and cell, and the cells in their order. If there are
// several kinds of memory it returns the one on which the other engine was fastest.
func (d *Document) cells() (cells map[int64]map[cell]*VersusRow, used []cell) {
	cells = map[int64]map[cell]*VersusRow{}
	for i := range d.Versus.Rows {
		row := &d.Versus.Rows[i]
		if len(row.Engines) < 2 || row.Bytes == 0 {
			continue
		}
		at := cell{row.Graph, row.InPlace}
		if cells[row.Bytes] == nil {
			cells[row.Bytes] = map[cell]*VersusRow{}
		}
		if before := cells[row.Bytes][at]; before == nil || row.Engines[1].Time < before.Engines[1].Time {
			cells[row.Bytes][at] = row
		}
		if !slices.Contains(used, at) {
			used = append(used, at)
		}
	}
	return cells, used
}

// Markdown writes a comparison as a table: a line for each size, with our time, the other
// engine's, and the ratio, for each launch and placement.
func (d *Document) Markdown(w io.Writer) error {
	cells, used := d.cells()
	var b strings.Builder
	fmt.Fprintf(&b, "`%s`, %d × %s, %s", d.Collective, d.Ranks, d.Devices[0].Name, d.Started[:min(10, len(d.Started))])
	for _, e := range d.Rivals {
		fmt.Fprintf(&b, ", %s %s", e.Engine, versionName(e.Version))
	}
	if d.Bad > 0 {
		fmt.Fprintf(&b, ", **%d results wrong**", d.Bad)
	}
	b.WriteString("\n\n| bytes |")
	for _, c := range used {
		place := "out of place"
		if c.inPlace {
			place = "in place"
		}
		fmt.Fprintf(&b, " %s, %s |", launchName(c.graph), place)
	}
	b.WriteString(" busbw (GB/s), first column | by |\n|" + strings.Repeat("---|", len(used)+3) + "\n")
	for _, s := range slices.Sorted(maps.Keys(cells)) {
		fmt.Fprintf(&b, "| %s |", grouped(s))
		for _, c := range used {
			row := cells[s][c]
			if row == nil {
				b.WriteString(" |")
				continue
			}
			ours, theirs := row.Engines[0], row.Engines[1]
			mark := ""
			if ours.Wrong > 0 || theirs.Wrong > 0 {
				mark = ", wrong"
			}
			fmt.Fprintf(&b, " %s / %s, **%.2f**%s |", micros(ours.Time), micros(theirs.Time), theirs.Time/ours.Time, mark)
		}
		first := cells[s][used[0]]
		if first == nil {
			b.WriteString(" | |\n")
			continue
		}
		fmt.Fprintf(&b, " %.1f / %.1f | %s |\n", first.Engines[0].BusBW, first.Engines[1].BusBW, first.Engines[0].Algorithm)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// micros formats a time with three digits.
func micros(t float64) string {
	switch {
	case t < 10:
		return fmt.Sprintf("%.2f", t)
	case t < 100:
		return fmt.Sprintf("%.1f", t)
	}
	return fmt.Sprintf("%.0f", t)
}

// grouped writes a number with commas.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// versionName formats NCCL's version number as people write it.
func versionName(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }
