package component

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/build/matrix"
)

// TestNoPrivilege: assay's components, read from their directories as a user's, make the same parts.
// Those of which a part is code say so, and why.
func TestNoPrivilege(t *testing.T) {
	var entries strings.Builder
	builtin := 0
	for _, name := range Library().Names() {
		if text, err := files.ReadFile(name + "/component.yaml"); err != nil {
			t.Fatal(err)
		} else if strings.Contains(string(text), "\nbuiltin: ") {
			builtin++
			continue
		}
		entries.WriteString("      " + name + ": ./" + name + "\n")
	}
	if builtin != len(makers) {
		t.Errorf("%d components say that they are built in, and %d are", builtin, len(makers))
	}
	entries.WriteString("      harness: source")
	f, err := matrix.Parse("m.yaml", strings.NewReader(image("debian", "12", bookworm, "", strings.TrimSpace(entries.String()))), Library(),
		func(dir string) (fs.FS, error) { return os.DirFS(filepath.Clean(dir)), nil })
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, target := range targets(t) {
		for _, p := range target.Platforms {
			for _, c := range target.Components {
				if makers[c.Name] != nil {
					continue
				}
				locked := func(pkg string) string { return "1:2.3.4-5" }
				want, err := Library().Definition(c.Name).Part(target, p, locked)
				if err != nil {
					t.Fatal(err)
				}
				got, err := f.Definition(c.Name).Part(target, p, locked)
				if got.From == "" || err != nil {
					t.Fatalf("%s is not read from its directory: %+v, %v", c.Name, got, err)
				}
				got.From, got.Origin = "", nil
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s in %s on %s (-assay's +a user's):\n%s", c.Name, target.Name, p, diff)
				}
				same++
			}
		}
	}
	if same < 500 {
		t.Errorf("%d parts were compared", same)
	}
}
