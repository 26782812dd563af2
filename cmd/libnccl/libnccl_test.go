package main

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/gputest"
)

// library compiles libnccl.so.2 and returns its directory.
func library(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("CFLAGS", "-Werror")
	gputest.Tool(t, "./build", dir)
	return dir
}

// program compiles a C program of testdata that is linked against the library.
func program(t *testing.T, dir, name string, flags ...string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	args := append([]string{"-std=gnu11", "-O1", "-Wall", "-o", p, filepath.Join("testdata", name+".c"), filepath.Join(dir, "libnccl.so.2"), "-Wl,-rpath," + dir, "-pthread"}, flags...)
	gputest.Tool(t, "gcc", args...)
	return p
}

// TestFront: what the C side asks of its engine is what a program asked for.
func TestFront(t *testing.T) {
	dir := library(t)
	gputest.Tool(t, "gcc", "-std=gnu11", "-shared", "-fPIC", "-o", filepath.Join(dir, "libassay-coll.so"), "testdata/fake_engine.c")
	p := program(t, dir, "front")
	run := func(name string, arg []string, env ...string) {
		t.Helper()
		cmd := exec.Command(p, arg...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		golden.Check(t, name+".golden", strings.ReplaceAll(string(out), dir, "DIR"))
	}
	run("front", nil)
	run("other_version", []string{"none"}, "FAKE_ABI=9")
	if err := os.Remove(filepath.Join(dir, "libassay-coll.so")); err != nil {
		t.Fatal(err)
	}
	run("no_engine", []string{"none"})
}

var hung = regexp.MustCompile(`(?m)^libnccl \(assay\): communicator "dp": it stands still: rank 2 \(host \S+, pid \d+, GPU 2\) has not called AllReduce of int32 with sum, 1000 elements, operation #2: its last call was AllReduce of int32 with sum, 1000 elements, operation #1, \d+ s ago$`)

// TestRanks: programs of several ranks, on a driver whose GPUs are emulated.
func TestRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("the emulator takes a minute to compile")
	}
	emulator := gputest.Emulator(t, "../../coll/cuda")
	dir := library(t)
	build := exec.Command("go", "build", "-tags", "cuda urfave_cli_no_docs", "-buildmode=c-shared", "-o", filepath.Join(dir, "libassay-coll.so"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := program(t, dir, "ranks", "-ldl")
	for _, c := range []struct{ test, ranks, devices, env string }{
		{"collectives", "2", "2", ""},
		{"collectives", "3", "3", ""},
		{"collectives", "1", "1", ""},
		{"collectives", "2", "2", "NCCL_P2P_DISABLE=1"}, // windows in the processor's memory
		{"streams", "2", "2", ""},
		{"split", "4", "4", ""},
		{"fault", "2", "2", ""},
		{"shrink", "3", "3", ""},
		{"grow", "3", "3", ""},
		{"hang", "3", "3", "ASSAY_SLOW=1"},
		{"nonblocking", "2", "2", ""},
		{"single", "3", "3", ""},
		{"processes", "3", "3", ""},
		{"dies", "3", "3", ""},
	} {
		t.Run(c.test+" "+c.ranks+" "+c.env, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it stands still
			defer cancel()
			cmd := exec.CommandContext(ctx, p, c.test, c.ranks)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+emulator, "FAKE_DEVICES="+c.devices, c.env)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if verdicts := strings.Count(string(out), "stands still"); c.test == "hang" {
				if !hung.Match(out) || verdicts != 1 {
					t.Errorf("%s", out)
				}
			} else if verdicts > 0 {
				t.Errorf("%s", out)
			}
		})
	}
}

// TestSymbols: the library exports NCCL's functions under both of their names, and
// nothing else. docs/libnccl.md has them all, and no other.
func TestSymbols(t *testing.T) {
	f, err := elf.Open(filepath.Join(library(t), "libnccl.so.2"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if name, err := f.DynString(elf.DT_SONAME); err != nil || !slices.Equal(name, []string{"libnccl.so.2"}) {
		t.Errorf("the SONAME is %v, %v", name, err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var plain, others, twice []string
	for _, s := range symbols {
		switch {
		case s.Section == elf.SHN_UNDEF:
		case strings.HasPrefix(s.Name, "nccl"):
			plain = append(plain, s.Name)
		case strings.HasPrefix(s.Name, "pnccl"):
			twice = append(twice, s.Name[1:])
		default:
			others = append(others, s.Name)
		}
	}
	slices.Sort(plain)
	slices.Sort(twice)
	if !slices.Equal(plain, twice) || len(others) > 0 {
		t.Errorf("exported: %v; with a p before them: %v; others: %v", plain, twice, others)
	}
	text, err := os.ReadFile("../../docs/libnccl.md")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(nccl\\w+)` ").FindAllStringSubmatch(string(text), -1) {
		said = append(said, m[1])
	}
	slices.Sort(said)
	if !slices.Equal(plain, said) {
		t.Errorf("docs/libnccl.md and the library differ in %v", differ(plain, said))
	}
}

// differ is what only one of two sorted lists has.
func differ(a, b []string) (only []string) {
	for _, s := range slices.Concat(a, b) {
		if slices.Contains(a, s) != slices.Contains(b, s) {
			only = append(only, s)
		}
	}
	return only
}
