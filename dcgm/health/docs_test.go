package health

import (
	"fmt"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

const (
	begin = "<!-- checks: go test ./dcgm/health -args -update writes them -->\n"
	end   = "<!-- end of the checks -->\n"
)

// checkTable is the documentation's table.
func checkTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| check | a pass says | limit | else | wanted by |\n|---|---|---|---|---|\n")
	rules := expect(t).Rules
	for _, id := range IDs() {
		r := rules[id]
		limit := ""
		if r.Limit != nil {
			limit = fmt.Sprintf("%v %s", int(*r.Limit), r.Unit)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", id, Title(id), limit, r.Severity, r.Source)
	}
	return b.String()
}

// TestDocs: the documentation's table of checks is the program's.
func TestDocs(t *testing.T) {
	golden.Part(t, "../../docs/health.md", begin, end, checkTable(t))
}

// TestChartIDs: the chart's schema has the ids of all checks, so that a misspelt one in its limits
// is found before anything is installed.
func TestChartIDs(t *testing.T) {
	var b strings.Builder
	for i, id := range IDs() {
		switch {
		case i == 0:
		case i%6 == 0:
			b.WriteString(",\n        ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", id)
	}
	golden.Part(t, "../../examples/kubernetes/chart/values.schema.json", `"propertyNames": {"enum": [`, "]}", b.String())
}
