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
