//go:build cuda && cgo

package membw

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/assay-hpc/assay/internal/gputest"
)

// In the program, which may run where the sources are not.
//
//go:embed ptx/kernels.cu
var kernelSource []byte

// TestOnFake runs the tests that need GPUs, in other processes, on a driver whose
// devices are the processor.
func TestOnFake(t *testing.T) {
	kernels := t.TempDir()
	check(t, os.WriteFile(filepath.Join(kernels, "kernels.cu"), kernelSource, 0o600))
	lib := gputest.Driver(t, "testdata/fake.cpp", kernels)
	for _, c := range []struct{ tests, env string }{
		{"GPU", "FAKE_DEVICES=3"}, {"GPU", "FAKE_DEVICES=1"}, {"GPU", "FAKE_NO_PEER=1"},
		{"TestFakeWrong", "FAKE_WRONG=peer"}, {"TestFakeSlow", "FAKE_SLOW=1"}, {"TestFakeMemory", "FAKE_MEMORY=0x100000"},
	} {
		gputest.OnFake(t, lib, c.tests, c.env)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPTXIsCurrent compiles the kernels again, if nvcc is the one that the PTX
// came from.
func TestPTXIsCurrent(t *testing.T) {
	for _, arch := range []string{"80", "90"} {
		want, err := files.ReadFile("ptx/kernels.sm_" + arch + ".ptx")
		check(t, err)
		_, rest, _ := strings.Cut(string(want), "Cuda compilation tools, ")
		version, _, _ := strings.Cut(rest, "\n")
		if v := gputest.Tool(t, "nvcc", "--version"); !strings.Contains(string(v), version) {
			t.Skipf("nvcc is not of %s", version)
		}
		file := filepath.Join(t.TempDir(), "kernels.ptx")
		gputest.Tool(t, "nvcc", "--ptx", "-O3", "-std=c++17", "-arch=compute_"+arch, "-o", file, "ptx/kernels.cu")
		got, err := os.ReadFile(file)
		check(t, err)
		if string(got) != string(want) {
			t.Errorf("kernels.sm_%s.ptx is not what nvcc makes of kernels.cu: go generate", arch)
		}
	}
}

// TestPTX: each processor has the newest that it can run.
func TestPTX(t *testing.T) {
	dir, err := fs.Sub(files, "ptx")
	check(t, err)
	for cc, want := range map[int]string{80: "sm_80", 89: "sm_80", 90: "sm_90", 120: "sm_90"} {
		if text, err := ptx(dir, cc); err != nil || !strings.Contains(string(text), ".target "+want+"\n") {
			t.Errorf("%d: %v", cc, err)
		}
	}
	if _, err := ptx(dir, 75); err == nil || !strings.Contains(err.Error(), "7.5 is too old") {
		t.Errorf("7.5: %v", err)
	}
	if _, err := ptx(fstest.MapFS{}, 90); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of none: %v", err)
	}
}
