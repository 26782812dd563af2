// Package emutest compiles the engine's kernels together with a CUDA driver whose GPUs are emulated,
// for tests on machines without GPUs.
package emutest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/coll/elem"
)

// Driver compiles a CUDA driver with emulated GPUs, together with the engine's kernels, and
// returns the directory of its libcuda.so.1. source is the directory of package coll/cuda.
// FAKE_DEVICES sets the number of GPUs of a process. The test is skipped without a compiler or
// cuda.h. The compilation takes minutes, so the result is cached in the user's cache directory, per
// sources and compiler.
func Driver(t *testing.T, source string) string {
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
	key, err := emulatorKey(gxx, source)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	cache = filepath.Join(cache, "assay", "emulator")
	dir := filepath.Join(cache, key)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	made, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(made)
	compileEmulator(t, gxx, source, made)
	if err := os.Rename(made, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another test was faster
		t.Fatal(err)
	}
	prune(cache)
	return dir
}

// emulatorFlags are the flags for all sources. Fibers jump between stacks, which a fortified
// longjmp would reject.
func emulatorFlags() []string {
	return append([]string{"-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-fPIC", "-I.", "-I/usr/local/cuda/include"}, strings.Fields(os.Getenv("CGO_CFLAGS"))...)
}

// emulatorKey returns the cache key, which depends on sources, flags and compiler.
func emulatorKey(gxx, source string) (string, error) {
	version, err := exec.Command(gxx, "--version").Output()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s%q", version, emulatorFlags())
	for _, pattern := range []string{"kernels/*.cu", "kernels/*.cuh", "kernels/*.h", "kernels/emu/*", "testdata/fakegpu.cpp", "../../internal/gputest/*.h", "emutest/emulator.go"} {
		names, err := filepath.Glob(filepath.Join(source, pattern))
		if err != nil {
			return "", err
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%s %d\n%s", filepath.Base(name), len(text), text)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12]), nil
}

// prune removes entries that were created more than a month ago.
func prune(cache string) {
	entries, _ := os.ReadDir(cache)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 30*24*time.Hour {
			_ = os.RemoveAll(filepath.Join(cache, e.Name()))
		}
	}
}

func compileEmulator(t *testing.T, gxx, source, dir string) {
	t.Helper()
	tmp := t.TempDir()
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	var objects []string
	compile := func(name string, args ...string) {
		object := filepath.Join(tmp, name+".o")
		objects = append(objects, object)
		args = append(append(emulatorFlags(), args...), "-o", object)
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
		if ty.Norms() {
			compile("norm_"+ty.String(), "-DASSAY_TYPE="+strconv.Itoa(int(ty)), "-c", "-x", "c++", "kernels/norm.cu")
		}
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
}
