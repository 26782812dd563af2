package gputest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/coll/elem"
)

// Emulator compiles a CUDA driver whose GPUs are emulated, and the engine's kernels
// with it, and returns the directory of its libcuda.so.1. source is the directory of
// package coll/cuda. FAKE_DEVICES says to a process how many GPUs there are. The test is
// skipped where there is no compiler, or no cuda.h.
func Emulator(t *testing.T, source string) string {
	t.Helper()
	for _, name := range []string{"testdata/fakegpu.cpp", "kernels/emu/machine.cpp"} {
		if _, err := os.Stat(filepath.Join(source, name)); err != nil {
			t.Skip("the sources are not here")
		}
	}
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++")
	}
	dir := t.TempDir()
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	var objects []string
	compile := func(name string, args ...string) {
		object := filepath.Join(dir, name+".o")
		objects = append(objects, object)
		// Fibers jump from stack to stack, which a fortified longjmp takes for a mistake.
		args = append([]string{"-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-fPIC", "-I.", "-I/usr/local/cuda/include"}, args...)
		args = append(append(args, strings.Fields(os.Getenv("CGO_CFLAGS"))...), "-o", object)
		g.Go(func() error {
			cmd := exec.Command(gxx, args...)
			cmd.Dir = source
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %s", name, out)
			}
			return err
		})
	}
	for _, ty := range elem.Types {
		compile(ty.String(), "-DASSAY_TYPE="+strconv.Itoa(int(ty)), "-c", "-x", "c++", "kernels/reduction.cu")
	}
	compile("movement", "-c", "-x", "c++", "kernels/movement.cu")
	for _, name := range []string{"device", "machine", "stores"} {
		compile(name, "-c", "kernels/emu/"+name+".cpp")
	}
	compile("fakegpu", "-c", "testdata/fakegpu.cpp")
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-shared", "-o", filepath.Join(dir, "libcuda.so.1")}, objects...)
	if out, err := exec.Command(gxx, append(args, "-ldl", "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}
