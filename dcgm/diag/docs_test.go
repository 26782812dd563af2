package diag

import (
	"fmt"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// TestDocs: the documentation's tables of tests and parameters are the program's.
func TestDocs(t *testing.T) {
	var tests, params strings.Builder
	tests.WriteString("| test | level | what it does | fails when |\n|---|---|---|---|\n")
	params.WriteString("| parameter | default | what it is |\n|---|---|---|\n")
	for _, one := range allTests() {
		level := "by name"
		if one.Level > 0 {
			level = fmt.Sprint(one.Level)
		}
		fmt.Fprintf(&tests, "| `%s` | %s | %s | %s |\n", one.Name, level, one.Title, one.Fails)
		for _, p := range one.Params {
			if !p.hidden {
				fmt.Fprintf(&params, "| `%s.%s` | %v | %s |\n", one.Name, p.Name, p.Default, p.Usage)
			}
		}
	}
	const file, note, end = "../../docs/diag.md", ": go test ./dcgm/diag -args -update writes them -->\n", "<!-- end -->\n"
	golden.Part(t, file, "<!-- tests"+note, end, tests.String())
	golden.Part(t, file, "<!-- parameters"+note, end, params.String())
}
