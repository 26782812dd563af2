package gputest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Fake is set in processes that use a fake driver.
const Fake = "ASSAY_TEST_FAKE_DRIVER"

//go:embed fakecuda.h
var fakeCUDA []byte

// Driver compiles a fake CUDA driver and returns the directory of its libcuda.so.1. source is a C++
// file as described in fakecuda.h, and sources the directory of its includes. The test is skipped
// without a compiler.
func Driver(t *testing.T, source, sources string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fakecuda.h"), fakeCUDA, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-std=c++20", "-O2", "-fno-strict-aliasing", "-shared", "-fPIC", "-pthread", "-I" + dir, "-I" + sources, "-I/usr/local/cuda/include"}
	args = append(args, strings.Fields(os.Getenv("CGO_CFLAGS"))...)
	Tool(t, "c++", append(args, "-o", filepath.Join(dir, "libcuda.so.1"), source)...)
	return dir
}

// Tool runs a compiler. The test is skipped if it is not installed.
func Tool(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no %s", name)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

// OnFake runs the tests of this binary that match a pattern in another process, with the driver
// from the given directory.
func OnFake(t *testing.T, driver, tests string, env ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run="+tests, "-test.v", "-test.timeout=120s")
	cmd.Env = append(append(os.Environ(), Fake+"=1", Variable+"=", "LD_LIBRARY_PATH="+driver), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n--- PASS: ") {
		t.Errorf("%s with %v: %v\n%s", tests, env, err, out)
	}
}
