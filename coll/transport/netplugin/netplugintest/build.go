// Package netplugintest tests network plugins. Run checks, call by call, what the
// interface promises and the transport relies on, and reports which call broke which
// rule. RunCollNet does the same for networks that reduce. Build compiles a plugin over
// TCP that behaves as badly as the interface allows, to test the code that calls plugins.
//
// The package's own test runs any plugin:
//
//	ASSAY_NET_PLUGIN=/path/libnccl-net-NAME.so go test ./coll/transport/netplugin/netplugintest
package netplugintest

import (
	"embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata
var sources embed.FS

// Name is the name of the test plugin's network.
const Name = "assay test"

// Build compiles the test plugin and returns its file. The plugin's source documents its
// variables and flags, such as -DONLY=8. Without flags, Build returns the file that
// ASSAY_TEST_NET_PLUGIN names, if it is set. Without a C compiler the test is skipped.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	if so := os.Getenv("ASSAY_TEST_NET_PLUGIN"); so != "" && len(flags) == 0 {
		return so
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, sources); err != nil {
		t.Fatal(err)
	}
	c, so := filepath.Join(dir, "testdata", "plugin.c"), filepath.Join(dir, "libnccl-net-test.so")
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-O2", "-shared", "-fPIC", "-o", so, c}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("no C compiler")
		}
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return so
}
