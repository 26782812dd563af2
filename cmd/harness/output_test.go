package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/exit"
)

// mount puts a small file system of its own on a new directory.
func mount(t *testing.T, flags uintptr, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		t.Skip("this needs a file system of its own, and mounting one is not allowed: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// certifyInto certifies an empty root, which shows nothing and is written nevertheless.
func certifyInto(t *testing.T, dir string) (code int, stdout, stderr string) {
	t.Helper()
	return tell("certify", "--root", t.TempDir(), "--out", dir+"/")
}

func left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestOutputReadOnly(t *testing.T) {
	dir := mount(t, unix.MS_RDONLY, "")
	for _, into := range []string{dir, filepath.Join(dir, "new")} {
		code, out, errOut := certifyInto(t, into)
		if code != exit.NotDone || out != "" || !strings.Contains(errOut, "--out "+into+"/: nothing was written there") || !strings.Contains(errOut, "read-only file system") {
			t.Errorf("certify into %s: %d, %q, %q", into, code, out, errOut)
		}
	}
}

// TestOutputFull: the disk has room at first, and not for all files.
func TestOutputFull(t *testing.T) {
	dir := mount(t, 0, "size=16k")
	into := filepath.Join(dir, "results")
	code, out, errOut := certifyInto(t, into)
	if code != exit.NotDone || out != "" || !strings.Contains(errOut, "--out "+into+"/: nothing was written there") || !strings.Contains(errOut, "no space left") {
		t.Errorf("certify: %d, %q, %q", code, out, errOut)
	}
	if names := left(t, dir); len(names) > 0 {
		t.Errorf("%v stayed", names)
	}
	// What an earlier run wrote stays whole.
	old := filepath.Join(dir, "certificate.json")
	if err := os.WriteFile(old, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := certifyInto(t, dir); code != exit.NotDone {
		t.Errorf("certify over an older run: %d", code)
	}
	b, err := os.ReadFile(old)
	if names := left(t, dir); err != nil || string(b) != "old" || len(names) != 1 {
		t.Errorf("of an older run, %q stayed, beside %v (%v)", b, names, err)
	}
}
