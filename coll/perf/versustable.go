package perf

import (
	"fmt"
	"io"
	"strings"
)

// versusColumns are the columns of a row, followed by engineColumns for each engine, and for each
// engine except the first by ratioColumn.
var (
	versusColumns = []column{{12, "size", "(B)"}, {12, "count", "(elements)"}, {8, "type", ""}, {6, "redop", ""}, {6, "root", ""}, {5, "place", ""}, {6, "launch", ""}, {9, "memory", ""}}
	engineColumns = []column{{8, "time", "(us)"}, {6, "busbw", "(GB/s)"}, {6, "#wrong", ""}}
	ratioColumn   = column{6, "ratio", ""}
)

// versusHeads are the three rows above the table of a comparison.
func (r *reporter) versusHeads() string {
	var over, names, units strings.Builder
	add := func(c column) {
		names.WriteString("  " + pad(c.name, c.width))
		units.WriteString("  " + pad(c.unit, c.width))
	}
	for _, c := range versusColumns {
		add(c)
	}
	engines := []string{r.world.Engine}
	for _, rival := range r.world.Against {
		engines = append(engines, rival.Engine)
	}
	for i, e := range engines {
		over.WriteString(strings.Repeat(" ", max(2, names.Len()+2-over.Len())) + e)
		for _, c := range engineColumns {
			add(c)
		}
		if i > 0 {
			add(ratioColumn)
		}
	}
	return "#" + over.String()[1:] + "\n#" + names.String()[1:] + "\n#" + units.String()[1:] + "\n"
}

// comparison returns the header's line that says what is compared.
func (r *reporter) comparison() string {
	if r.cfg.Versus == "" {
		return ""
	}
	var names []string
	for _, rival := range r.world.Against {
		name := rival.Engine
		if v := rival.Version; v != r.world.Version {
			name += " " + versionName(v)
		}
		names = append(names, name)
	}
	length := fmt.Sprintf("%d iterations", r.cfg.Iters)
	if r.cfg.MinTime > 0 {
		length = fmt.Sprintf("%v, at most %d iterations", r.cfg.MinTime, maxIters)
	}
	return fmt.Sprintf("# Compared with: %s; in turns, median of %d repetitions of %s\n", strings.Join(names, ", "), r.cfg.Repeat, length)
}

func (t *table) versus(_ *reporter, row *VersusRow) error {
	var b strings.Builder
	for i, v := range []any{row.Bytes, row.Count, row.Type, row.Redop, row.Root, placeName(row.InPlace), launchName(row.Graph), row.Memory} {
		b.WriteString("  " + pad(fmt.Sprint(v), versusColumns[i].width))
	}
	for i, s := range row.Engines {
		wrong := "N/A"
		if s.Wrong >= 0 {
			wrong = general(float64(s.Wrong))
		}
		fmt.Fprintf(&b, "  %s  %s  %s", fit(s.Time, engineColumns[0].width), fit(s.BusBW, engineColumns[1].width), pad(wrong, engineColumns[2].width))
		if i > 0 {
			b.WriteString("  " + fit(s.Ratio, ratioColumn.width))
		}
	}
	b.WriteByte('\n')
	_, err := io.WriteString(t.out, b.String())
	return err
}
