//go:build cuda && cgo

package nccl

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// fake builds a library that notes its calls.
func fake(t *testing.T, args ...string) string {
	t.Helper()
	so := filepath.Join(t.TempDir(), "libnccl.so.2")
	args = append(args, "-shared", "-fPIC", "-o", so, "testdata/fake.c")
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("no C compiler")
		}
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return so
}

// notes are the calls since the last time.
func (l *Library) notes() string {
	return l.check("notes", 1).(*Error).Last
}

func modern(t *testing.T) *Library {
	t.Helper()
	l, err := load(fake(t, "-DVERSION=22803", "-DMODERN"))
	if err != nil {
		t.Fatal(err)
	}
	l.notes()
	return l
}

func old(t *testing.T) *Library {
	t.Helper()
	l, err := load(fake(t, "-DVERSION=21805"))
	if err != nil {
		t.Fatal(err)
	}
	l.notes()
	return l
}

func TestNoLibrary(t *testing.T) {
	for file, want := range map[string]string{
		"/nonexistent/libnccl.so.2":      "/nonexistent/libnccl.so.2: cannot open shared object file",
		"libm.so.6":                      "libm.so.6 has no function nccl",
		fake(t, "-DVERSION=21602"):       "is NCCL 2.16.2; it has to be 2.18.0 or later",
		filepath.Join(t.TempDir(), "no"): "no: cannot open",
	} {
		_, err := load(file)
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("load(%s): %v; want %q in it", file, err, want)
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	for named, want := range map[string]string{
		"":                "libnccl.so.2",
		dir:               dir + "/libnccl.so.2",
		"/a/libnccl.so.9": "/a/libnccl.so.9",
	} {
		if got := libraryFile(named); got != want {
			t.Errorf("file(%q) = %q; want %q", named, got, want)
		}
	}
}

// TestEnvironment: NCCL sees what the caller's environment says about its
// algorithms, and nothing else.
func TestEnvironment(t *testing.T) {
	t.Setenv("NCCL_NVLS_ENABLE", "")
	if err := os.Unsetenv("NCCL_NVLS_ENABLE"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ASSAY_NCCL_LIBRARY", fake(t, "-DVERSION=22803"))
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.notes(), "nvls unset;"; got != want {
		t.Errorf("Open without NCCL_NVLS_ENABLE: %s want %s", got, want)
	}
}

func TestVersion(t *testing.T) {
	l, o := modern(t), old(t)
	if l.Version() != 22803 || l.Version().String() != "2.28.3" || o.Version().String() != "2.18.5" {
		t.Errorf("versions %v and %v", l.Version(), o.Version())
	}
	if !l.HasMemory() || !l.HasWindows() || o.HasMemory() || o.HasWindows() {
		t.Error("what the versions have is wrong")
	}
}

// TestSeveral: libraries of one name are apart from one another.
func TestSeveral(t *testing.T) {
	l, o := modern(t), old(t)
	if err := l.GroupStart(); err != nil {
		t.Fatal(err)
	}
	if got := o.notes(); got != "" {
		t.Errorf("the other library was called: %s", got)
	}
	if l.Path() == o.Path() || filepath.Base(l.Path()) != "libnccl.so.2" {
		t.Errorf("the files are %q and %q", l.Path(), o.Path())
	}
}

// TestPreloaded: a library calls its own functions where the process was started
// with another one.
func TestPreloaded(t *testing.T) {
	const inside = "NCCL_TEST_LOADS"
	if file := os.Getenv(inside); file != "" {
		l, err := OpenFile(filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		if l.Version() != 22803 || l.Path() != file {
			t.Errorf("%v of %s", l.Version(), l.Path())
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestPreloaded$", "-test.v")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+fake(t, "-DVERSION=21805"), inside+"="+fake(t, "-DVERSION=22803", "-DMODERN"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestPreloaded") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGoInside: with a library that brings a Go runtime of its own, as assay's does, this
// one still interrupts goroutines that make no calls. Otherwise the garbage collector
// would wait for them for ever.
func TestGoInside(t *testing.T) {
	const inside = "NCCL_TEST_GO"
	if os.Getenv(inside) == "" {
		so := filepath.Join(t.TempDir(), "goruntime.so")
		if out, err := exec.Command("go", "build", "-buildmode=c-shared", "-o", so, "./testdata/goruntime").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestGoInside$", "-test.v")
		cmd.Env = append(os.Environ(), "FAKE_LOADS="+so, inside+"="+fake(t, "-DVERSION=22803"))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestGoInside") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	l, err := OpenFile(os.Getenv(inside))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.UniqueID(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := 0; ; i++ { // no calls
		}
	}()
	for range 10 {
		runtime.GC()
	}
}

// do runs f on rank 1 of 3, and compares the library's notes.
func do(t *testing.T, l *Library, want string, f func(c *Comm) error) {
	t.Helper()
	id, err := l.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.InitRank(3, id, 1)
	if err != nil {
		t.Fatal(err)
	}
	if c.Rank() != 1 || c.Size() != 3 {
		t.Errorf("rank %d of %d", c.Rank(), c.Size())
	}
	if got := l.notes(); got != "id;init 1 of 3, 1 127;" {
		t.Errorf("the start was %s", got)
	}
	if err := f(c); err != nil {
		t.Error(err)
	}
	if got := l.notes(); got != want {
		t.Errorf("the calls were\n\t%s\nwant\n\t%s", got, want)
	}
	if err := c.Destroy(); err != nil {
		t.Error(err)
	}
	if got := l.notes(); got != "destroy 0x1000;" {
		t.Errorf("the end was %s", got)
	}
}

const (
	send   = uintptr(0x10000)
	recv   = uintptr(0x20000)
	stream = uintptr(0x99)
)

// operate enqueues an operation on memory that nobody looks at.
func operate(c *Comm, kind op.Collective, count int, t elem.Type, red RedOp, root int) error {
	return c.Do(&op.Op{Coll: kind, Send: op.Memory(send, 1), Recv: op.Memory(recv, 1), Count: count, Type: t, Root: root}, red, stream)
}

func TestOperations(t *testing.T) {
	l := modern(t)
	f16, i64 := elem.Float16, elem.Int64
	do(t, l, "all_reduce 0x10000 0x20000 7 6 2 0x1000 0x99;", func(c *Comm) error { return operate(c, op.AllReduce, 7, f16, Reduction(elem.Max), 0) })
	do(t, l, "broadcast 0x10000 0x20000 7 4 2 0x1000 0x99;", func(c *Comm) error { return operate(c, op.Broadcast, 7, i64, 0, 2) })
	do(t, l, "reduce 0x10000 0x20000 7 4 4 2 0x1000 0x99;", func(c *Comm) error { return operate(c, op.Reduce, 7, i64, Reduction(elem.Avg), 2) })
	do(t, l, "all_gather 0x10000 0x20000 7 4 0x1000 0x99;", func(c *Comm) error { return operate(c, op.AllGather, 7, i64, 0, 0) })
	do(t, l, "reduce_scatter 0x10000 0x20000 7 4 1 0x1000 0x99;", func(c *Comm) error { return operate(c, op.ReduceScatter, 7, i64, Reduction(elem.Prod), 0) })
	do(t, l, "alltoall 0x10000 0x20000 7 4 0x1000 0x99;", func(c *Comm) error { return operate(c, op.AllToAll, 7, i64, 0, 0) })
	do(t, l, "gather 0x10000 0x20000 7 4 2 0x1000 0x99;", func(c *Comm) error { return operate(c, op.Gather, 7, i64, 0, 2) })
	do(t, l, "scatter 0x10000 0x20000 7 4 2 0x1000 0x99;", func(c *Comm) error { return operate(c, op.Scatter, 7, i64, 0, 2) })
	do(t, l, "(recv 0x20000 7 4 0 0x1000 0x99;send 0x10000 7 4 2 0x1000 0x99;)", func(c *Comm) error { return operate(c, op.SendRecv, 7, i64, 0, 0) })
	do(t, l, "(broadcast 0x10000 0x20000 7 4 2 0x1000 0x99;)", func(c *Comm) error {
		return errors.Join(l.GroupStart(), operate(c, op.Broadcast, 7, i64, 0, 2), l.GroupEnd())
	})
	do(t, l, "mulsum -2 0 1 0x1000;reduce 0x10000 0x20000 7 0 124076833 2 0x1000 0x99;free op 7654321 0x1000;", func(c *Comm) error {
		red, err := c.PreMulSum([]byte{0xfe}, elem.Int8)
		return errors.Join(err, operate(c, op.Reduce, 7, elem.Int8, red, 2), c.FreeOp(red))
	})
	do(t, l, "alloc 4096;window 0x1000 0x70000000 4096 1;register 0x1000 0x70000000 64;deregister 0x1000 0x77;close window 0x1000 0x88;free 0x70000000;", func(c *Comm) error {
		p, err := l.MemAlloc(4096)
		w, err2 := c.RegisterWindow(p, 4096)
		r, err3 := c.Register(p, 64)
		return errors.Join(err, err2, err3, c.Deregister(r), c.DeregisterWindow(w), l.MemFree(p))
	})
}

// TestOldLibraries: what they lack is made of Send and Recv, or an error.
func TestOldLibraries(t *testing.T) {
	l := old(t)
	f := elem.Float32
	do(t, l, "(send 0x10000 4 7 0 0x1000 0x99;recv 0x20000 4 7 0 0x1000 0x99;send 0x10010 4 7 1 0x1000 0x99;recv 0x20010 4 7 1 0x1000 0x99;send 0x10020 4 7 2 0x1000 0x99;recv 0x20020 4 7 2 0x1000 0x99;)",
		func(c *Comm) error { return operate(c, op.AllToAll, 4, f, 0, 0) })
	do(t, l, "(send 0x10000 4 7 2 0x1000 0x99;)", func(c *Comm) error { return operate(c, op.Gather, 4, f, 0, 2) })
	do(t, l, "(recv 0x20000 4 7 0 0x1000 0x99;send 0x10000 4 7 1 0x1000 0x99;recv 0x20010 4 7 1 0x1000 0x99;recv 0x20020 4 7 2 0x1000 0x99;)",
		func(c *Comm) error { return operate(c, op.Gather, 4, f, 0, 1) })
	do(t, l, "(recv 0x20000 4 7 2 0x1000 0x99;)", func(c *Comm) error { return operate(c, op.Scatter, 4, f, 0, 2) })
	do(t, l, "(send 0x10000 4 7 0 0x1000 0x99;send 0x10010 4 7 1 0x1000 0x99;recv 0x20000 4 7 1 0x1000 0x99;send 0x10020 4 7 2 0x1000 0x99;)",
		func(c *Comm) error { return operate(c, op.Scatter, 4, f, 0, 1) })
	var e *Error
	if _, err := l.MemAlloc(1); !errors.As(err, &e) || e.Result != 5 {
		t.Errorf("MemAlloc: %v", err)
	}
}

func TestErrors(t *testing.T) {
	l := modern(t)
	c, err := l.InitRank(1, UniqueID{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.notes()
	err = operate(c, op.Scatter, 7, elem.Int8, 0, 3)
	const want = "ncclScatter: invalid usage (5): scatter 0x10000 0x20000 7 0 3 0x1000 0x99;"
	if err == nil || err.Error() != want {
		t.Errorf("error %v; want %s", err, want)
	}
	if err := c.AsyncError(); err == nil || !strings.HasPrefix(err.Error(), "NCCL, in the background: invalid usage") {
		t.Errorf("AsyncError: %v", err)
	}
	_ = c.Abort()
	for what, err := range map[string]error{"AsyncError": c.AsyncError(), "AllReduce": operate(c, op.AllReduce, 1, elem.Int8, 0, 0)} {
		if !errors.Is(err, ErrAborted) {
			t.Errorf("%s after Abort: %v", what, err)
		}
	}
	if err := c.Destroy(); err != nil {
		t.Errorf("Destroy after Abort: %v", err)
	}
}

// TestNoAllocation: an operation costs no memory of Go's.
func TestNoAllocation(t *testing.T) {
	l := modern(t)
	c, err := l.InitRank(1, UniqueID{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(100, func() {
		if operate(c, op.AllReduce, 1, elem.Int8, 0, 0) != nil || operate(c, op.SendRecv, 1, elem.Int8, 0, 0) != nil {
			t.Fatal("failed")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
