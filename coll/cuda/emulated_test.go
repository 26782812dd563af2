//go:build cuda && cgo

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/internal/gputest"
)

// The tests that need GPUs, with a driver whose GPUs are emulated: all of the
// engine runs as it does on real ones, but for the speed.
func TestEmulated(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("it takes minutes")
	case driver.Init() == nil:
		t.Skip("there are GPUs")
	}
	lib := emulator(t)
	for _, c := range []struct{ tests, devices, env string }{
		{"TestScaled|TestGroup|TestAllToAllInPlace|TestStreams|TestAbort|TestStagedAbort|TestMismatch|TestProcesses|TestPointers|TestStagedGraph|TestWays|TestHostedRefused|TestGraph|TestTuner|TestReuse|TestAbortFree", "2", ""},
		{"TestFailedOpen", "2", ""},
		{"TestConformance", "2", ""},
		{"TestCopies", "2", ""},
		{"TestRoomRefused", "2", "FAKE_SMALL=1"},
		{"TestCopies|TestCopiedExchanges", "3", ""},
		{"TestGroup|TestAbort", "4", ""},
		{"TestEnqueueAhead|TestShared|TestGroupStreams|TestStreamsBetween", "2", ""},
		{"TestOppositeOrders", "4", ""},
	} {
		t.Run(c.devices+" "+c.tests, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, "-test.run=^("+c.tests+")$", "-test.short", "-test.timeout=10m", "-test.v")
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lib, "FAKE_DEVICES="+c.devices, gputest.Variable+"="+c.devices, "ASSAY_GPU_TEST_LIMIT=60000")
			if c.env != "" {
				cmd.Env = append(cmd.Env, c.env)
			}
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "SKIP") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// emulator builds the driver and returns the directory that it is in.
func emulator(t *testing.T) string {
	t.Helper()
	for _, source := range []string{"testdata/fakegpu.cpp", "kernels/emu/machine.cpp"} {
		if _, err := os.Stat(source); err != nil {
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
			out, err := exec.Command(gxx, args...).CombinedOutput()
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
