package scale

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// markdown writes a table with the formulas' rows for what was not measured.
func (tb table) markdown(file string) string {
	var b strings.Builder
	b.WriteString("| " + strings.Join(tb.columns, " | ") + " |\n" + strings.Repeat("|---", len(tb.columns)) + "|\n")
	rows := slices.Clone(tb.rows)
	for _, n := range []float64{1440, 12_500, 100_000} {
		if !slices.ContainsFunc(quantities, func(q quantity) bool { return q.file == file }) {
			break // there is no formula
		}
		if !slices.ContainsFunc(rows, func(r []float64) bool { return r[0] == n }) {
			rows = append(rows, []float64{n})
		}
	}
	slices.SortFunc(rows, func(a, b []float64) int { return int(a[0] - b[0]) })
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s", number(r[0]))
		if len(r) == 1 {
			b.WriteString(" (formula)")
		}
		for i, column := range tb.columns[1:] {
			cell := ""
			if len(r) > 1 {
				cell = number(r[i+1])
			} else if k := slices.IndexFunc(quantities, func(q quantity) bool { return q.file == file && q.column == column }); k >= 0 {
				cell = number(quantities[k].formula(int(r[0])))
			}
			b.WriteString(" | " + cell)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// number has three digits, those of a count apart by thousands.
func number(v float64) string {
	if v < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// TestTables holds the tables of docs/scale.md against the data beside it; with
// -update it writes them.
func TestTables(t *testing.T) {
	for _, name := range []string{"bootstrap", "crew", "overhead", "gathering", "certificate", "hunt"} {
		golden.Part(t, "../../../docs/scale.md", "<!-- "+name+".csv -->\n", "<!-- end -->", read(t, name).markdown(name))
	}
}
