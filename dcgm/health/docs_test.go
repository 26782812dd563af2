package health

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

const (
	docs  = "../../docs/health.md"
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
	b, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(b), begin)
	table, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the checks, between %q and %q", docs, begin, end)
	}
	want := checkTable(t)
	if table == want {
		return
	}
	if golden.Update() {
		if err := os.WriteFile(docs, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s has another table of checks; go test ./dcgm/health -args -update writes it", docs)
}
