//go:build cuda && cgo

package driver

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// child is the test that this process was started for by another one; the value
// is what that one wants to say.
func child(t testing.TB) string {
	v := os.Getenv("DRIVER_TEST_CHILD")
	if v == "" {
		t.Skip("another test starts this one in a process of its own")
	}
	return v
}

// start prepares a test in a process of its own.
func start(t *testing.T, test, value string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+test+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(append(os.Environ(), "DRIVER_TEST_CHILD="+value), env...)
	return cmd
}

// In the program, which may run where the sources are not.
//
//go:embed testdata/fake.c
var fake []byte

// fakeDriver compiles testdata/fake.c and returns the environment in which it is
// the driver.
func fakeDriver(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "gcc"))
	if err != nil {
		t.Skip("no compiler for the fake driver")
	}
	dir := t.TempDir()
	args := []string{"-shared", "-fPIC", "-Wall", "-Werror", "-I/usr/local/cuda/include"}
	args = append(args, strings.Fields(os.Getenv("CGO_CFLAGS"))...)
	src := filepath.Join(dir, "fake.c")
	check(t, os.WriteFile(src, fake, 0o600))
	args = append(args, "-o", filepath.Join(dir, "libcuda.so.1"), src)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("cuda.h")) {
			t.Skip("no cuda.h for the fake driver")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	return "LD_LIBRARY_PATH=" + dir
}

func TestFakeDriver(t *testing.T) {
	lib := fakeDriver(t)
	for _, c := range []struct{ test, env, env2, want string }{
		{"TestFakeCalls", "FAKE_VERSION=12080", "FAKE_INIT=0", ""},
		{"TestFakeInit", "FAKE_VERSION=11080", "FAKE_INIT=0", "no NVIDIA driver: it has CUDA 11.8, 12.0 or newer is needed"},
		{"TestFakeInit", "FAKE_VERSION=12080", "FAKE_INIT=803", "cuInit: libcuda.so.1 and the kernel's driver are of different versions (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)"},
	} {
		trace := "FAKE_TRACE=" + filepath.Join(t.TempDir(), "trace")
		out, err := start(t, c.test, "fake", lib, trace, c.env, c.env2).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s with %s %s: %v, want %q\n%s", c.test, c.env, c.env2, err, c.want, out)
		}
	}
}

// TestFakeInit prints what Init says.
func TestFakeInit(t *testing.T) {
	child(t)
	err := Init()
	if !errors.Is(err, ErrNoDriver) {
		t.Errorf("%v is not ErrNoDriver", err)
	}
	t.Log(err)
	all, err := Devices()
	if len(all) != 0 || err != nil {
		t.Errorf("Devices: %v, %v", all, err)
	}
}

// TestFakeCalls makes all kinds of calls through the stubs.
func TestFakeCalls(t *testing.T) {
	child(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	all, err := Devices()
	if err != nil || len(all) != 2 {
		t.Fatalf("Devices: %v, %v", all, err)
	}
	want := DeviceInfo{
		Ordinal: 1, Name: "Fake 1", UUID: "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f", PCI: PCI{50, 33, 34},
		ComputeMajor: 75, ComputeMinor: 76, SMs: 16, Memory: 1 << 30, AsyncEngines: 40, MemSyncDomains: 126,
		CanStreamMemOps: true, CanIPC: true, CanCooperate: true, CanDMABuf: true, CanVirtual: true, CanShareVirtual: true, CanRDMAVirtual: true,
	}
	if all[1] != want {
		t.Errorf("%+v, want %+v", all[1], want)
	}
	if s := want.PCI.String(); s != "0032:21:22.0" {
		t.Errorf("PCI address %s", s)
	}

	if _, err := Open(2); !errors.Is(err, ErrNoDevice) || err.Error() != "no such CUDA device: number 2 of 2" {
		t.Errorf("Open(2): %v", err)
	}
	var ctx [2]*Context
	for i := range ctx {
		if ctx[i], err = Open(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(ctx[1].Bind(), ctx[0].Bind(), ctx[0].Bind()); err != nil {
		t.Error(err)
	}
	if !ctx[0].CanAccessPeer(1) || ctx[0].CanAccessPeer(0) || ctx[0].CanAccessPeer(7) {
		t.Error("CanAccessPeer")
	}
	if err := ctx[0].EnablePeer(ctx[1]); err != nil {
		t.Errorf("EnablePeer, enabled already: %v", err)
	}
	if err := ctx[0].EnablePeer(ctx[0]); !errors.Is(err, ErrContext) {
		t.Errorf("EnablePeer of itself: %v", err)
	}
	if err := ctx[0].Synchronize(); err == nil || err.Error() != "cuCtxSynchronize: an error of tomorrow (CUDA_ERROR_FAKE, 12345)" {
		t.Errorf("a code that is not known: %v", err)
	}

	p, err := Malloc(100)
	if err != nil {
		t.Fatal(err)
	}
	back := make([]byte, 5)
	if err := errors.Join(CopyToDevice(p, []byte("hello")), CopyFromDevice(back, p), CopyToDevice(p, nil), Free(p)); err != nil || string(back) != "hello" {
		t.Errorf("%q, %v", back, err)
	}
	if _, err := Malloc(1 << 40); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("Malloc of 1 TiB: %v", err)
	}
	if _, err := HostAlloc(5); !errors.Is(err, ErrNotSupported) {
		t.Errorf("a function that the driver has not: %v", err)
	}
	if i, err := PointerInfo(0); err != nil || i != (PtrInfo{Ordinal: -1}) {
		t.Errorf("PointerInfo(0): %+v, %v", i, err)
	}
	if i, err := PointerInfo(p); err != nil || i != (PtrInfo{1, 77, true, true}) {
		t.Errorf("PointerInfo: %+v, %v", i, err)
	}

	if done, err := Stream(0).Query(); !done || err != nil {
		t.Errorf("Query: %v, %v", done, err)
	}
	if done, err := Stream(1).Query(); done || err != nil {
		t.Errorf("Query: %v, %v", done, err)
	}
	if d, err := Elapsed(1, 2); d != 1500*time.Microsecond || err != nil {
		t.Errorf("Elapsed: %v, %v", d, err)
	}
	if fd, err := DMABuf(4096, 8192); fd != 12289 || err != nil {
		t.Errorf("DMABuf: %v, %v", fd, err)
	}
	if fd, err := DMABuf(1, 8192); fd != -1 || !errors.Is(err, ErrInvalid) {
		t.Errorf("DMABuf of an odd address: %v, %v", fd, err)
	}
	var handle [64]byte
	for i := range handle {
		handle[i] = byte(i)
	}
	if p, err := OpenMem(handle); p != 63*32<<4+1 || err != nil {
		t.Errorf("OpenMem: %v, %v", p, err)
	}

	fakeLaunches(t, ctx)
}

// fakeLaunches runs launches whose arguments the fake driver prints.
func fakeLaunches(t *testing.T, ctx [2]*Context) {
	var f [2]Func
	for i, c := range ctx {
		if err := c.Bind(); err != nil {
			t.Fatal(err)
		}
		if _, err := Load([]byte("bad")); !errors.Is(err, ErrImage) || !strings.Contains(err.Error(), ": line 1: what is this? (") {
			t.Errorf("Load: %v", err)
		}
		newest := func(own, committed string) (*Module, error) {
			files := fstest.MapFS{"ptx": {Mode: fs.ModeDir}}
			for name, text := range map[string]string{"ptx/own/k": own, "ptx/k": committed} {
				if text != "" {
					files[name] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			return LoadNewest(files, func(dir fs.FS) ([]byte, error) { return fs.ReadFile(dir, "k") })
		}
		if _, err := newest("new", "bad"); !errors.Is(err, ErrImage) || !strings.Contains(err.Error(), "PTX newer than the driver") || !strings.Contains(err.Error(), "what is this?") {
			t.Errorf("of what the driver does not take: %v", err)
		}
		if _, err := newest("large", "good"); !errors.Is(err, ErrOutOfMemory) {
			t.Errorf("where there is no memory: %v", err)
		}
		if _, err := newest("new", ""); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without what every driver takes: %v", err)
		}
		for own, committed := range map[string]string{"": "good", "good": "bad"} {
			if _, err := newest(own, committed); err != nil {
				t.Errorf("of %q and %q: %v", own, committed, err)
			}
		}
		m, err := newest("new", "good")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Function("other"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("Function: %v", err)
		}
		if f[i], err = m.Function("kernel"); err != nil {
			t.Fatal(err)
		}
	}
	if err := ctx[0].Bind(); err != nil {
		t.Fatal(err)
	}
	ls := make([]*Launch, 2)
	for i := range ls {
		ls[i] = NewLaunch(f[i], 8, 4)
		defer ls[i].Close()
		*(*uint64)(ls[i].Param(0)) = 1<<40 + uint64(i)
		*(*uint32)(ls[i].Param(1)) = 7
		ls[i].SetGrid(2, 3, 4)
		ls[i].SetBlock(5, 6, 7)
		ls[i].SetShared(8)
		ls[i].SetStream(9)
	}
	ls[1].SetDependent(true)
	ls[1].SetRemoteDomain(true)
	const common = "grid 2 3 4 block 5 6 7 shared 8 stream 0x9:"
	got := traced(t, func() error { return RunAll(ls) })
	want := "launch 0x123 in 0 " + common + " 1099511627776 7\nlaunch 0x123 in 1 " + common + " 1099511627777 7 [6=1] [10=1]\n"
	if got != want {
		t.Errorf("RunAll:\n%swant\n%s", got, want)
	}
	ls[1].SetDependent(false)
	ls[1].SetCooperative(true)
	ls[1].SetCluster(2)
	// The context is what it was before RunAll.
	got = traced(t, ls[1].Run)
	want = "launch 0x123 in 0 " + common + " 1099511627777 7 [2=1] [10=1] [4=2]\n"
	if got != want {
		t.Errorf("Run:\n%swant\n%s", got, want)
	}
	ls[1].SetGrid(0, 1, 1)
	var e *Error
	if err := RunAll(ls); !errors.As(err, &e) || e.Code != 1 || !strings.HasPrefix(err.Error(), "launch 2 of 2: cuLaunchKernelEx: invalid argument: grid 0×1×1, block 5×6×7, 8 bytes") {
		t.Errorf("RunAll: %v", err)
	}
	if err := RunAll(nil); err != nil {
		t.Error(err)
	}
	for _, l := range ls {
		l.SetGrid(1, 9, 1)
	}
	fail := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { fail(ls[0].Run()); fail(RunAll(ls)) }); n != 0 {
		t.Errorf("a launch allocates %v times", n)
	}
	got = traced(t, func() error { return Stream(1).WaitValue32(0xabc, 5) })
	if got != "wait 0x1 abc 5 0\n" {
		t.Errorf("WaitValue32: %s", got)
	}
}

// traced gives what the fake driver writes down while f runs.
func traced(t *testing.T, f func() error) string {
	t.Helper()
	file := os.Getenv("FAKE_TRACE")
	os.Remove(file)
	if err := f(); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
