package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/gputest"
)

// TestDevice: programs compiled with the nccl_device.h of each release get structures as they are
// there, and what is refused says why.
func TestDevice(t *testing.T) {
	dir := library(t)
	gputest.Tool(t, "gcc", "-std=gnu11", "-shared", "-fPIC", "-o", filepath.Join(dir, "libassay-coll.so"), "testdata/fake_engine.c")
	p := program(t, dir, "device")
	out, err := exec.Command(p, "layout").Output()
	if err != nil {
		t.Fatal(err)
	}
	facts, err := os.ReadFile("testdata/device.facts")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for line := range strings.Lines(string(facts)) {
		if !strings.HasPrefix(line, "#") {
			want[line] = true
		}
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if n++; !want[line] {
			t.Errorf("%q is not as in testdata/device.facts", strings.TrimSpace(line))
		}
	}
	if n != len(want) {
		t.Errorf("%d fields; testdata/device.facts has %d", n, len(want))
	}
	out, err = exec.Command(p).CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	golden.Check(t, "device.golden", strings.ReplaceAll(string(out), dir, "DIR"))
}
