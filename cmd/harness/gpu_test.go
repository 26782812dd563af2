//go:build cuda && cgo

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/nccl"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/coll/perf/world"
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gputest"
)

// needsGPUs skips a test where there are too few.
func needsGPUs(t *testing.T, n int) int {
	t.Helper()
	all, err := world.GPUs()
	gputest.Need(t, n, len(all), err, driver.ErrNoDriver, driver.ErrNoDevice)
	return len(all)
}

func runs(t *testing.T, line string) string {
	t.Helper()
	var out, errOut strings.Builder
	if status := run(strings.Fields("harness coll "+line), &out, &errOut); status != 0 {
		t.Errorf("%s: status %d\n%s%s", line, status, out.String(), errOut.String())
	}
	return out.String()
}

// TestGPUsVerify: every type and reduction of every operation is right on
// GPUs, eager and in graphs, unaligned and from every root.
func TestGPUsVerify(t *testing.T) {
	n := needsGPUs(t, 1)
	for _, op := range perf.Collectives() {
		for _, how := range []string{"-b 1 -e 4M -f 130 -d all", "-b 8 -e 1M -f 32 -G 2 -d half", "-b 1 -e 20000 -f 130 -d all -u 1 -r -1 -c 2"} {
			line := fmt.Sprintf("%s %s -g %d -n 2", op, how, n)
			if strings.Contains(op, "reduce") {
				line += " -o all"
			}
			out := runs(t, line)
			if !strings.Contains(out, "# Out of bounds values : 0 OK") || tableRows(out) < 3 || strings.Count(out, "#  Rank ") != n {
				t.Errorf("%s:\n%s", line, out)
			}
		}
	}
}

// TestTuneGPUs: what is found goes into a file that the engine takes.
func TestTuneGPUs(t *testing.T) {
	n := needsGPUs(t, 2)
	file := filepath.Join(t.TempDir(), "tune.json")
	for range 2 {
		out := runs(t, fmt.Sprintf("tune -g %d -b 8 -e 8M -f 1024 --collectives all_reduce,scatter,sendrecv --out %s", n, file))
		if !strings.Contains(out, fmt.Sprintf("rules for %d GPUs are in %s", n, file)) {
			t.Error(out)
		}
	}
	if m := tables(t, file); len(m.Tables) != 3 {
		t.Fatalf("%+v", m)
	}
	t.Setenv("ASSAY_TUNING", file)
	if out := runs(t, fmt.Sprintf("all_reduce -b 8 -e 16M -f 8 -g %d -n 2", n)); !strings.Contains(out, "# Out of bounds values : 0 OK") {
		t.Error(out)
	}
}

// TestVersusNCCL: both engines are measured in one run, in all modes, and both
// are right.
func TestVersusNCCL(t *testing.T) {
	n := needsGPUs(t, 2)
	t.Setenv("NCCL_NVLS_ENABLE", "0") // multicast can put the GPUs of a host out of service
	if _, err := nccl.Open(); err != nil {
		t.Skip(err)
	}
	for _, op := range perf.Collectives() {
		out := runs(t, fmt.Sprintf("%s -b 8 -e 16M -f 128 -g %d --repeat 2 --min-time 1 --versus nccl --output json", op, n))
		var doc perf.Document
		if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Bad != 0 || doc.Versus == nil || len(doc.Versus.Ratios) != 2 {
			t.Errorf("%s: %v\n%s", op, err, out)
		}
	}
	table := runs(t, fmt.Sprintf("all_reduce -b 8 -e 1M -f 64 -g %d --engine nccl -R 2 -G 2", n))
	if !strings.Contains(table, "# Engine: nccl, ") || !strings.Contains(table, "# Out of bounds values : 0 OK") {
		t.Errorf("%s", table)
	}
}
