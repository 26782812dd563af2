// Package sysfstest creates trees of /sys and /proc for tests, from text archives in the txtar
// format.
package sysfstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Tree writes an archive's files into a temporary directory of the test and opens it. A file named
// "link:sys/…" is a symbolic link with its content as the target; a file named "dir:sys/…" is an
// empty directory.
func Tree(t testing.TB, archive []byte) sysfs.FS {
	t.Helper()
	fs, err := sysfs.Open(Dir(t, archive))
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// Dir is Tree without opening it; it returns the directory.
func Dir(t testing.TB, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse(archive).Files {
		if err := write(dir, f); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(dir string, f txtar.File) error {
	name, isLink := strings.CutPrefix(f.Name, "link:")
	name, isDir := strings.CutPrefix(name, "dir:")
	name = filepath.Join(dir, name)
	if isDir {
		return os.MkdirAll(name, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if isLink {
		return os.Symlink(strings.TrimSpace(string(f.Data)), name)
	}
	return os.WriteFile(name, f.Data, 0o644)
}
