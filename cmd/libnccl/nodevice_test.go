package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/gputest"
)

// works are those of nodevice.c's calls that need no driver.
var works = []string{"ncclGetVersion", "ncclGetUniqueId", "ncclGroupStart"}

// testNoDevice: where the driver does not work, each call that needs it says so, with the reason.
func testNoDevice(t *testing.T, dir string) {
	fake := t.TempDir()
	args := append([]string{"-shared", "-fPIC", "-I/usr/local/cuda/include"}, strings.Fields(os.Getenv("CGO_CFLAGS"))...)
	gputest.Tool(t, "gcc", append(args, "-o", filepath.Join(fake, "libcuda.so.1"), "../../internal/gpu/driver/testdata/fake.c")...)
	p := program(t, dir, "nodevice")
	for _, c := range []struct{ env, reason string }{
		{hidden(t), "no NVIDIA driver: libcuda.so.1: cannot open shared object file: No such file or directory"},
		{"FAKE_INIT=999", "cuInit: an unknown error (CUDA_ERROR_UNKNOWN, 999)"},
		{"FAKE_INIT=803", "cuInit: libcuda.so.1 and the kernel's driver are of different versions (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)"},
		{"FAKE_VERSION=11080", "no NVIDIA driver: it has CUDA 11.8, 12.0 or newer is needed"},
	} {
		t.Run(c.env, func(t *testing.T) { noDevice(t, p, c.reason, "LD_LIBRARY_PATH="+fake, "FAKE_VERSION=12080", c.env) })
	}
}

// hidden returns the setting by which the loader finds no driver.
func hidden(t *testing.T) string {
	t.Helper()
	audit := filepath.Join(t.TempDir(), "hide.so")
	gputest.Tool(t, "gcc", "-shared", "-fPIC", "-o", audit, "testdata/hide.c")
	return "LD_AUDIT=" + audit
}

// noDevice runs nodevice.c in an environment in which the driver does not work.
func noDevice(t *testing.T, program, reason string, env ...string) {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	calls := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		want := []string{f[0], "1", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)", reason}
		if slices.Contains(works, f[0]) {
			want = []string{f[0], "0", "no error", ""}
		}
		if calls++; !slices.Equal(f, want) {
			t.Errorf("%q, want %q", f, want)
		}
	}
	if calls != 14 {
		t.Errorf("%d calls:\n%s", calls, out)
	}
}
