package oci

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSplitLayout(t *testing.T) {
	colon := filepath.Join(t.TempDir(), "a:b")
	if err := os.Mkdir(colon, 0o755); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string][2]string{
		"out":              {"out", ""},
		"out:fabric":       {"out", "fabric"},
		"out@sha256:12":    {"out", "sha256:12"},
		colon:              {colon, ""},
		colon + ":fabric":  {colon, "fabric"},
		"out/x:a/linux/b6": {"out/x", "a/linux/b6"},
	} {
		if dir, target := SplitLayout(in); dir != want[0] || target != want[1] {
			t.Errorf("SplitLayout(%q) = %q, %q; want %q", in, dir, target, want)
		}
	}
}
