package oci

import (
	"os"
	"path/filepath"
	"strings"
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

// TestUsersInNames: a name with a password in it, as in a URL, is refused without showing it.
func TestUsersInNames(t *testing.T) {
	for _, ref := range []string{
		"ada:hunter2@ghcr.io/owner/assay", "https://ada:hunter2@ghcr.io/owner/assay", "ada:hunter2@ghcr.io/owner/assay:v1", "hunter2@localhost:5000/assay@sha256:" + strings.Repeat("0", 64),
		"ada:hun/ter2@ghcr.io/owner/assay",
	} {
		_, repository := OpenRepository(ref, Options{})
		_, source := OpenSource(ref, Options{})
		for what, err := range map[string]error{"repository": repository, "source": source, "reference": CheckReference(ref)} {
			if err == nil || strings.Contains(err.Error(), "ter2") || !strings.Contains(err.Error(), "docker login") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if err := CheckReference("ghcr.io/owner/assay:v1@sha256:" + strings.Repeat("0", 64)); err != nil {
		t.Error(err)
	}
}
