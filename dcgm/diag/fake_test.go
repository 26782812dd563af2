//go:build cuda && cgo

package diag

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/gputest"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// In the program, which may run where the sources are not.
//
//go:embed ptx/*.h ptx/*.cu ptx/generate
var sources embed.FS

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unpack writes the sources of the kernels to a directory.
func unpack(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.CopyFS(dir, sources))
	return filepath.Join(dir, "ptx")
}

// fakeDriver is a driver with this package's kernels.
func fakeDriver(t *testing.T) string { return gputest.Driver(t, "testdata/fake.cpp", unpack(t)) }

// TestOnFake runs the tests that need GPUs, in other processes, on a driver whose
// devices are the processor.
func TestOnFake(t *testing.T) {
	lib := fakeDriver(t)
	for _, env := range []string{"FAKE_DEVICES=2", "FAKE_DEVICES=1", "FAKE_NO_PEER=1"} {
		gputest.OnFake(t, lib, "GPU", env)
	}
}

// TestFakeFaults: a fault of the driver, a crash, a hang and wrong data each fail
// their test, and the next one runs.
func TestFakeFaults(t *testing.T) {
	lib := fakeDriver(t)
	self, err := os.Executable()
	check(t, err)
	params, err := ParseParams("memory_bandwidth.memory_size_mb=12; memory_bandwidth.test_loops=1; memory.max_memory_mb=4; pcie.copies=1")
	check(t, err)
	for _, tt := range []struct {
		env, test string
		verdict   result.Verdict
		text      string
	}{
		{"FAKE_LOST=stream_copy", "memory_bandwidth", result.Fail, "not mapped"},
		{"FAKE_CRASH=stream_copy", "memory_bandwidth", result.Error, "the fake driver crashes"},
		{"FAKE_HANG=stream_copy", "memory_bandwidth", result.Error, "timed out: it was not done within 6s (at GPU "},
		{"FAKE_WRONG=host", "pcie", result.Fail, "h2d: 1 word of 8 bytes wrong"},
	} {
		plan, err := Select("context_create,"+tt.test, nil, nil)
		check(t, err)
		after, _ := testNamed("context_create")
		plan.Tests = append(plan.Tests, after)
		plan.Params, plan.Timeout = params, 6*time.Second
		if tt.test == "pcie" {
			plan.Timeout = 0
		}
		r := Runner{Command: func(ctx context.Context, name string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, self)
			cmd.Env = append(os.Environ(), childEnv+"="+name, scenarioEnv+"=driver", "LD_LIBRARY_PATH="+lib, "FAKE_DEVICES=2", tt.env)
			return cmd
		}}
		report, _, err := r.Run(t.Context(), plan)
		check(t, err)
		got := report.Results[1]
		if text := fmt.Sprint(got); got.Verdict != tt.verdict || !strings.Contains(text, tt.text) {
			t.Errorf("%s: %s", tt.env, text)
		}
		if report.Results[0].Verdict != result.Pass || report.Results[2].Verdict != result.Pass {
			t.Errorf("%s: the others: %+v", tt.env, report.Results)
		}
	}
}

func init() {
	scenarios["driver"] = func() (Machine, error) { return Open(sysfs.FS{}) }
}

// TestPTXIsCurrent compiles the kernels again, if nvcc is the one that the PTX
// came from.
func TestPTXIsCurrent(t *testing.T) {
	want, err := files.ReadFile("ptx/kernels.ptx")
	check(t, err)
	_, rest, _ := strings.Cut(string(want), "Cuda compilation tools, ")
	version, _, _ := strings.Cut(rest, "\n")
	if v := gputest.Tool(t, "nvcc", "--version"); !strings.Contains(string(v), version) {
		t.Skipf("nvcc is not of %s", version)
	}
	dir := unpack(t)
	cmd := exec.Command("sh", "./generate", ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"kernels.ptx", "warpgroup.ptx"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		check(t, err)
		if want, err := files.ReadFile("ptx/" + name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what nvcc makes of its source: go generate", name)
		}
	}
}

// TestGenerate: CUDA 13's nvcc has assembly checked for the architecture that it
// is told, and CUDA 11's does not know the one that wgmma is of.
func TestGenerate(t *testing.T) {
	for _, tt := range []struct{ release, refuses string }{{"11.8", "compute_90a"}, {"12.4", ""}, {"13.0", "compute_90"}} {
		out := t.TempDir()
		nvcc := filepath.Join(t.TempDir(), "nvcc")
		check(t, os.WriteFile(nvcc, []byte(`#!/bin/sh
if [ "$1" = --version ]; then
	echo "Cuda compilation tools, release `+tt.release+`, V`+tt.release+`.1"
	exit
fi
while [ $# -gt 0 ]; do
	case $1 in
	-arch=*) arch=${1#-arch=} ;;
	-o) out=$2; shift ;;
	*.cu) source=$1 ;;
	esac
	shift
done
if [ "$source" = warpgroup.cu ] && [ "$arch" = "`+tt.refuses+`" ]; then
	echo "ptxas fatal: $arch" >&2
	exit 255
fi
printf '.version 7.8\n.target sm_%s\n' "${arch#compute_}" >"$out"
`), 0o755))
		cmd := exec.Command("sh", "./generate", out)
		cmd.Dir, cmd.Env = unpack(t), append(os.Environ(), "NVCC="+nvcc)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("CUDA %s: %v\n%s", tt.release, err, text)
			continue
		}
		text, err := os.ReadFile(filepath.Join(out, "warpgroup.ptx"))
		check(t, err)
		if !strings.Contains(string(text), ".target sm_90a\n") {
			t.Errorf("CUDA %s: warpgroup.ptx is\n%s", tt.release, text)
		}
		if files, err := os.ReadDir(out); err != nil || len(files) != 2 {
			t.Errorf("CUDA %s: %v, %v; want two files", tt.release, files, err)
		}
	}
}
