package solve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/recipe"
)

// TestLimited: what a builder sends as a base does not fill the disk.
func TestLimited(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	l := &limited{f, 4}
	if n, err := l.Write([]byte("1234")); n != 4 || err != nil {
		t.Errorf("Write of what is left = %d, %v", n, err)
	}
	if n, err := l.Write([]byte("5")); n != 0 || err == nil || !strings.Contains(err.Error(), "larger than 8 GB") {
		t.Errorf("Write of more = %d, %v", n, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(f.Name()); string(text) != "1234" || err != nil {
		t.Errorf("it has written %q, %v", text, err)
	}
}

// TestBaseNeedsBuilder: nothing but a builder executes a base's packages.
func TestBaseNeedsBuilder(t *testing.T) {
	p := provider(t)
	r := &recipe.Recipe{Target: "x", Platform: amd64, Stages: []recipe.Stage{{Name: "base", From: recipe.Source{Kind: recipe.FromLayout, Ref: "base-bookworm-minbase"}}}}
	if err := p.Prepare(t.Context(), r, amd64); err == nil || err.Error() != "base-bookworm-minbase for linux/amd64: it needs a builder" {
		t.Errorf("Prepare without a solver = %v", err)
	}
}
