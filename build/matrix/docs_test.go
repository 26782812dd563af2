package matrix

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// The reference must not rot: its example is a file that assay takes, and it
// names every key and every component.
func TestDocs(t *testing.T) {
	const file = "../../docs/matrix.md"
	doc := string(read(t, file))
	_, example, _ := strings.Cut(doc, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if _, err := expand("docs/matrix.md", []byte(example)); err != nil {
		t.Errorf("the example is refused: %v", err)
	}
	for _, v := range []any{matrixDocument{}, image{}, base{}, debootstrap{}, axes{}, variant{}, include{}, exclude{}, constraint{}, capabilityList{}, choice{}} {
		keys, _ := keysOf(reflect.TypeOf(v))
		for _, k := range keys {
			if !strings.Contains(doc, "`"+k+"`") && !strings.Contains(doc, "`"+k+":") {
				t.Errorf("docs/matrix.md does not name the key %q", k)
			}
		}
	}
	reference := string(read(t, "../../docs/components.md"))
	for _, v := range []any{componentDocument{}, requirement{}, aptEntry{}, aptKey{}, buildEntry{}, rowEntry{}, installEntry{}, runEntry{}, fileEntry{}, dirEntry{}, absentEntry{}, checkEntry{}, writtenForm{}, textChoice{}} {
		keys, _ := keysOf(reflect.TypeOf(v))
		for _, k := range keys {
			if !strings.Contains(reference, "`"+k+"`") && !strings.Contains(reference, k+":") && !strings.Contains(reference, "{"+k+", ") && !strings.Contains(reference, ", "+k+"}") {
				t.Errorf("docs/components.md does not name the key %q", k)
			}
		}
	}
	table := "| component | |\n|---|---|\n"
	for _, name := range library().Names() {
		table += fmt.Sprintf("| `%s` | %s |\n", name, library().Definition(name).About())
	}
	golden.Part(t, file, "<!-- components, by go test -args -update -->\n", "<!-- end -->\n", table)
}
