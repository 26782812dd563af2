package perf

import (
	"fmt"
	"io"
	"path"
	"strings"
)

// A comparer is a sink that shows comparisons.
type comparer interface {
	versus(r *reporter, row *VersusRow) error
}

// A versusTable is the text of a comparison: the head of nccl-tests' table,
// and rows of our own.
type versusTable struct{ out io.Writer }

// versusColumns are those of a row, those of each engine, and what is behind
// those of each but the first.
var (
	versusColumns = []column{{12, "size", "(B)"}, {12, "count", "(elements)"}, {8, "type", ""}, {6, "redop", ""}, {6, "root", ""}, {5, "place", ""}, {6, "launch", ""}, {9, "memory", ""}}
	engineColumns = []column{{8, "time", "(us)"}, {6, "busbw", "(GB/s)"}, {6, "#wrong", ""}}
	ratioColumn   = column{6, "ratio", ""}
)

func (t *versusTable) header(r *reporter) error {
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
	var b strings.Builder
	b.WriteString(r.preamble())
	for _, line := range []string{over.String(), names.String(), units.String()} {
		b.WriteString("#" + line[1:] + "\n")
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

// comparison is the header's line about what is compared.
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

func (*versusTable) row(*reporter, *Row) error { return nil }

func (t *versusTable) versus(_ *reporter, row *VersusRow) error {
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

func (t *versusTable) footer(r *reporter, res *Result, cause error) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %-20s : %d %s\n", "Out of bounds values", res.OutOfBounds, passed(res.OutOfBounds == 0))
	if v := res.Versus; v != nil {
		for _, sum := range v.Ratios {
			fmt.Fprintf(&b, "# %-20s : %v\n", sum.Engine+", "+launchName(sum.Graph), sum)
		}
	}
	fmt.Fprintf(&b, "#\n# Collective test concluded: %s\n", path.Base(r.cfg.Program))
	if r.cfg.Memory {
		b.WriteString(r.memoryLine())
	}
	b.WriteString("#\n")
	if cause != nil {
		fmt.Fprintf(&b, "# error: %v\n", cause)
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

// passed is the footer's word for a check.
func passed(ok bool) string {
	if ok {
		return "OK"
	}
	return "FAILED"
}
