// Package golden compares test results with files in testdata. With -update it rewrites the files,
// to be reviewed like code.
package golden

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Update reports whether golden files are being rewritten.
func Update() bool { return *update }

// Check compares got with testdata/name.
func Check(t testing.TB, name, got string) {
	t.Helper()
	File(t, filepath.Join("testdata", name), got)
}

// Part compares got with the text between two lines of a document.
func Part(t testing.TB, file, begin, end, got string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no %q with %q after it", file, begin, end)
	}
	File(t, file, before+begin+got+end+after)
}

// File compares got with a file. With -update it writes the file, and creates its directory.
func File(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" || err != nil {
		t.Errorf("%s (-want +got; %s writes it):\n%s", file, command(t), diff)
	}
}

// command is the command line that writes the files of a test.
func command(t testing.TB) string {
	test, _, _ := strings.Cut(t.Name(), "/")
	pkg := "."
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" {
		pkg = strings.TrimSuffix(info.Path, ".test")
	}
	return fmt.Sprintf("go test %s -run '^%s$' -args -update", pkg, test)
}
