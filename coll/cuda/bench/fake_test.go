//go:build cuda && cgo

package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/gputest"
)

// TestOnFakes runs tests that need GPUs, in another process, on a driver whose
// devices are the processor, and with an NCCL that works on that.
func TestOnFakes(t *testing.T) {
	const inside = "BENCH_TEST_FAKE"
	if os.Getenv(inside) != "" {
		t.Skip("this is that process")
	}
	dir := t.TempDir()
	driver := filepath.Join(dir, "libcuda.so.1")
	flags := []string{"-std=c++20", "-O2", "-shared", "-fPIC", "-I/usr/local/cuda/include", "-o"}
	tool(t, "c++", append(flags, driver, "testdata/driver.cpp")...)
	tool(t, "c++", append(flags, filepath.Join(dir, "libnccl.so.2"), "testdata/nccl.cpp", driver)...)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tests := []string{"TestFillAndCompare", "TestCompareAll", "TestManyPatterns", "TestWhatCompareRefuses", "TestMarks", "TestCapture", "TestNCCLOfBytes"}
	cmd := exec.Command(self, "-test.run=^("+strings.Join(tests, "|")+")$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1", gputest.Variable+"=", "LD_LIBRARY_PATH="+dir, "ASSAY_NCCL_LIBRARY="+dir)
	out, err := cmd.CombinedOutput()
	if n := strings.Count(string(out), "\n--- PASS: "); err != nil || n != len(tests) {
		t.Errorf("%d of %d tests passed, %v\n%s", n, len(tests), err, out)
	}
}
