//go:build cuda && cgo

package bench

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestWidest(t *testing.T) {
	for _, tt := range []struct {
		v    []uintptr
		want int
	}{
		{nil, 3}, {[]uintptr{0, 64}, 3}, {[]uintptr{16, 4}, 2}, {[]uintptr{2, 8}, 1}, {[]uintptr{8, 8, 7}, 0},
	} {
		if got := widest(tt.v...); got != tt.want {
			t.Errorf("widest(%v) = %d; want %d", tt.v, got, tt.want)
		}
	}
}

func TestWidthOf(t *testing.T) {
	for size, want := range map[int]int{1: 0, 2: 1, 4: 2, 8: 3, 0: -1, 3: -1, 16: -1, -1: -1} {
		if got, err := widthOf(size); (err == nil) != (want >= 0) || err == nil && got != want {
			t.Errorf("widthOf(%d) = %d, %v; want %d", size, got, err, want)
		}
	}
}

func TestAligned(t *testing.T) {
	if err := aligned(2, 8, 4); err != nil {
		t.Error(err)
	}
	if aligned(2, 8, 2) == nil {
		t.Error("2 is not a multiple of 4")
	}
}

// TestAddress: the slices stand for addresses that nobody touches.
func TestAddress(t *testing.T) {
	const at = 0x7f1200000000
	b := Bytes(at, 1<<40)
	if Address(b) != at || len(b) != 1<<40 || Address(b[1<<39:]) != at+1<<39 {
		t.Errorf("%#x, %d bytes", Address(b), len(b))
	}
}

// tool runs a compiler, and skips the test where there is none.
func tool(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("no %s", name)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

// TestKernelsOnProcessor runs the kernels' source, compiled for the processor.
func TestKernelsOnProcessor(t *testing.T) {
	program := filepath.Join(t.TempDir(), "check")
	tool(t, "c++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-pthread", "-o", program, "testdata/check.cpp")
	if out := tool(t, program); !strings.Contains(string(out), "1000 cases, 0 failures") {
		t.Errorf("%s", out)
	}
}

// TestPTXIsCurrent compiles the kernels again, if nvcc is the one that
// check.ptx came from.
func TestPTXIsCurrent(t *testing.T) {
	_, rest, _ := bytes.Cut(image, []byte("Cuda compilation tools, "))
	version, _, _ := bytes.Cut(rest, []byte("\n"))
	if v := tool(t, "nvcc", "--version"); !bytes.Contains(v, version) {
		t.Skipf("nvcc is not of %s", version)
	}
	ptx := filepath.Join(t.TempDir(), "check.ptx")
	tool(t, "nvcc", "-ptx", "-arch=compute_80", "-o", ptx, "check.cu")
	got, err := os.ReadFile(ptx)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, image) {
		t.Error("check.ptx is not what nvcc makes of check.cu: go generate")
	}
}
