package matrix

import (
	"reflect"
	"strings"
	"testing"
)

// The reference must not rot: its example is a file that assay takes, and it
// names every key and every component.
func TestDocs(t *testing.T) {
	doc := string(read(t, "../../docs/matrix.md"))
	_, example, _ := strings.Cut(doc, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if _, err := expand("docs/matrix.md", []byte(example)); err != nil {
		t.Errorf("the example is refused: %v", err)
	}
	for _, v := range []any{document{}, image{}, base{}, debootstrap{}, axes{}, variant{}, include{}, exclude{}, constraint{}, capabilityList{}, choice{}} {
		keys, _ := keysOf(reflect.TypeOf(v))
		for _, k := range keys {
			if !strings.Contains(doc, "`"+k+"`") && !strings.Contains(doc, "`"+k+":") {
				t.Errorf("docs/matrix.md does not name the key %q", k)
			}
		}
	}
	if want := strings.Join(ComponentNames(), ", "); !strings.Contains(strings.ReplaceAll(doc, "\n", " "), want) {
		t.Errorf("docs/matrix.md does not list the components %s", want)
	}
}
