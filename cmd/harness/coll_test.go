package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/exit"
)

// TestPerfProgram: a program's name chooses an operation, whatever its path
// and suffix.
func TestPerfProgram(t *testing.T) {
	for argv0, want := range map[string]struct {
		op string
		ok bool
	}{
		"all_reduce_perf": {"all_reduce", true}, "/opt/x/build/reduce_perf": {"reduce", true}, "./reduce_scatter_perf_mpi": {"reduce_scatter", true},
		"harness": {"", false}, "hypercube_perf": {"", true}, "all_reduce": {"", false}, "/opt/all_reduce_perf/harness": {"", false},
	} {
		if op, ok := perfProgram(argv0); op != want.op || ok != want.ok {
			t.Errorf("perfProgram(%q) = %q, %v; want %q, %v", argv0, op, ok, want.op, want.ok)
		}
	}
}

// TestPerfPrograms: under nccl-tests' names the program prints the table, and
// ends with nccl-tests' statuses.
func TestPerfPrograms(t *testing.T) {
	for _, tt := range []struct {
		args   string
		env    string
		status int
		out    string // in stdout
		errOut string // in stderr
	}{
		{"/x/all_reduce_perf -b 8 -e 1K -f 8 -t 2 -n 2 --device cpu", "", 0, "# Collective test starting: all_reduce_perf\n", ""},
		{"sendrecv_perf_mpi -b 8 -e 8 -t 2 -n 2 --device cpu", "", 0, "# Collective test concluded: sendrecv_perf_mpi\n", ""},
		{"all_reduce_perf -h", "", 0, "USAGE: all_reduce_perf\n", ""},
		{"all_reduce_perf -q 1", "", 0, "invalid option '?'\nUSAGE: all_reduce_perf\n", "all_reduce_perf: invalid option -- 'q'\n"},
		{"all_reduce_perf -b 1T", "", 255, "", "invalid size specified for 'minbytes'\n"},
		{"all_reduce_perf -b 2 -e 1", "", 255, "", "invalid sizes for 'minbytes' and 'maxbytes': 2 > 1\n"},
		{"reduce_perf -b 8 -e 8 -r 3 --device cpu", "", 6, "# error: rank 0: -r 3 is no rank: they go from 0 to 0\n", " .. "},
		{"all_reduce_perf -b 8 -e 8 -t 2 -n 2 --device cpu", "NCCL_TESTS_MIN_BW=1000", 7, " FAILED\n", ""},
		{"hypercube_perf", "", 5, "", "hypercube_perf: there is no such test; there are all_reduce_perf "},
	} {
		t.Run(tt.args, func(t *testing.T) {
			if k, v, ok := strings.Cut(tt.env, "="); ok {
				t.Setenv(k, v)
			}
			var out, errOut strings.Builder
			status := run(strings.Fields(tt.args), &out, &errOut)
			if status != tt.status || !strings.Contains(out.String(), tt.out) || !strings.Contains(errOut.String(), tt.errOut) || tt.errOut == "" && errOut.Len() > 0 {
				t.Errorf("status %d; want %d\nstdout:\n%s\nstderr:\n%s", status, tt.status, out.String(), errOut.String())
			}
		})
	}
}

// TestEngineVerifies: every type and reduction of every operation is right on
// the real engine, unaligned and from every root.
func TestEngineVerifies(t *testing.T) {
	all := "-b 1 -e 20000 -f 130 -d all"
	if testing.Short() {
		all = "-b 2000 -e 2000 -d all"
	}
	for _, op := range perf.Collectives() {
		lines := []string{all, "-b 1 -e 20000 -f 130 -d half -o avg -r -1"}
		if strings.Contains(op, "reduce") {
			lines[0] += " -o all"
		}
		for _, line := range lines {
			var out, errOut strings.Builder
			args := append([]string{"harness", "coll", op}, strings.Fields(line+" -t 3 -n 1 -w 0 -u 1 --device cpu")...)
			if status := run(args, &out, &errOut); status != 0 {
				t.Errorf("%v: status %d\n%s%s", args, status, out.String(), errOut.String())
			}
			text := out.String()
			if !strings.Contains(text, "# Out of bounds values : 0 OK") || tableRows(text) < 3 || strings.Count(text, "#  Rank ") != 3 {
				t.Errorf("%v:\n%s", args, text)
			}
		}
	}
}

// TestCollErrors: a failure of the engine is not a failed check, and what was
// asked for wrongly is usage.
func TestCollErrors(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{&perf.Failure{Status: perf.EngineError, Err: context.Canceled}, exit.NotDone},
		{&perf.Failure{Status: perf.TimedOut, Err: context.Canceled}, exit.NotDone},
		{&perf.Failure{Status: perf.InvalidUsage, Err: errors.New("-r 9")}, exit.Usage},
		{&perf.UsageError{Text: "NCCL_TESTS_SPLIT"}, exit.Usage},
		{errors.New("no peers"), exit.NotDone},
	} {
		if got := exit.Of(collError(tt.err)); got != tt.want {
			t.Errorf("%v: exit code %d; want %d", tt.err, got, tt.want)
		}
	}
	if got := exit.Of(verdict(&perf.Result{OutOfBounds: 1, Rows: make([]perf.Row, 1), Status: perf.BadData})); got != exit.Fail {
		t.Errorf("wrong data: exit code %d; want %d", got, exit.Fail)
	}
}

// TestPerfStatusOfFailures: nccl-tests' lines and statuses.
func TestPerfStatusOfFailures(t *testing.T) {
	var out, errOut strings.Builder
	f := &perf.Failure{Status: perf.TimedOut, Where: "x.go:1", Err: errors.New("silence")}
	if got := perfStatus("a_perf", perf.Config{Timeout: 9}, f, &out, &errOut); got != 4 || !strings.Contains(errOut.String(), ": Test timeout (9s) x.go:1\n .. ") {
		t.Errorf("status %d, stderr %q", got, errOut.String())
	}
	errOut.Reset()
	if got := perfStatus("a_perf", perf.Config{}, errors.New("no peers"), &out, &errOut); got != 3 || errOut.String() != "a_perf: no peers\n" {
		t.Errorf("status %d, stderr %q", got, errOut.String())
	}
}

// TestCollFiles: a report is written where it is asked for.
func TestCollFiles(t *testing.T) {
	dir := t.TempDir()
	var out, errOut strings.Builder
	args := strings.Fields("harness coll all_gather -b 64 -e 4K -f 8 -t 2 -n 2 --device cpu -J " + filepath.Join(dir, "r.json"))
	if status := run(args, &out, &errOut); status != 0 {
		t.Fatalf("status %d\n%s%s", status, out.String(), errOut.String())
	}
	if st, err := os.Stat(filepath.Join(dir, "r.json")); err != nil || st.Size() == 0 {
		t.Error(err)
	}
}
