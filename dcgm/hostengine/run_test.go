package hostengine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-hpc/assay/dcgm/diag"
	"github.com/assay-hpc/assay/internal/result"
)

// install puts a script on PATH as dcgmi, before the shell's tools.
func install(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Program), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestRun: dcgmi's words and its exit status must agree that all is well.
func TestRun(t *testing.T) {
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	const one = `echo '{"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "memory", "results": [{"entity_id": 0, "status": "%s", "info": ["Not here."], "warnings": [%s]}]}]}]}}'`
	for _, tt := range []struct {
		name, script string
		want         result.Verdict
		text         string
	}{
		{"warns with a bad status", fmt.Sprintf(one, "Warn", `"Odd."`) + "; exit 1", result.Warn, "GPU 0 as dcgm counts: Odd."},
		{"skips", fmt.Sprintf(one, "Skip", ""), result.Skip, "it skipped all tests"},
		{"skips with a bad status", fmt.Sprintf(one, "Skip", "") + "; exit 198", result.Error, "none of the tests is there"},
		{"passes", "cat " + data + "/4.4-pass.json", result.Pass, ""},
		{"fails", "cat " + data + "/4.2-fail.json; exit 226", result.Fail, "GPU 1 had uncorrectable memory errors"},
		{"fails with status 0", "cat " + data + "/4.2-fail.json", result.Fail, "GPU 1 had uncorrectable memory errors"},
		{"passes with a bad status", "cat " + data + "/4.4-pass.json; exit 205", result.Error, "status 205: an error for which the GPU is to be taken out of service, though its report has no failure"},
		{"does not start", "echo 'unable to connect'; exit 217", result.Error, "dcgmi ended with status 217: another diagnostic runs"},
		{"writes to stderr", "echo 'out of files' >&2; exit 1", result.Error, "out of files"},
		{"is killed", "kill -9 $$", result.Error, "signal: killed"},
		{"gets its arguments", `[ "$*" = "diag -r 2 -j" ] && cat ` + data + "/4.4-pass.json", result.Pass, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			install(t, tt.script)
			results, err := runDCGM(t.Context(), "2", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			own, ran := results[len(results)-1], result.Pass
			if tt.want == result.Skip {
				ran = result.Skip
			}
			if text := fmt.Sprint(results); worst(results) != tt.want || own.ID != Name || own.Verdict != ran || !strings.Contains(text, tt.text) {
				t.Errorf("%s; want %s, %q", text, tt.want, tt.text)
			}
			for _, r := range results {
				if err := r.Validate(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestRunAll: the results of both engines, and what is observed of DCGM's run.
func TestRunAll(t *testing.T) {
	install(t, `echo '{"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software", "results": [{"entity_id": 0, "status": "Pass"}]}]},
{"category": "Integration", "tests": [{"name": "pcie", "results": [{"entity_id": 3, "status": "Fail", "warnings": [{"warning": "PCIe replays", "error_id": 3, "error_severity": 6}]}]}]}]},
"metadata": {"version": "4.2.3", "Driver Version Detected": "580.95.05"}}'; exit 226`)
	own := result.Result{ID: "software", Title: "t", Verdict: result.Warn, Reason: "r"}
	var events []string
	runner := diag.Runner{Observe: func(e diag.Event) { events = append(events, fmt.Sprint(e.Test.Name, " ", e.Done, " ", e.Verdict)) }, Command: func(ctx context.Context, name string) *exec.Cmd {
		b, _ := json.Marshal(map[string]any{"result": own})
		if name == diag.ListGPUs {
			b = []byte(`{"gpus": [{"index": 0}, {"index": 1}]}`)
		}
		return exec.CommandContext(ctx, "printf", "%s", string(b))
	}}
	plan, err := diag.Select("quick", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, gpus, err := RunAll(t.Context(), Both, plan, runner, 0)
	if err != nil || len(gpus) != 2 {
		t.Fatal(gpus, err)
	}
	want := []result.Result{
		own, {ID: "dcgm/software", Title: "software of dcgm", Verdict: result.Pass, Reason: "1 GPU"},
		{ID: "dcgm/pcie", Title: "pcie of dcgm", Verdict: result.Fail, Reason: "GPU 3 as dcgm counts: PCIe replays (DCGM error 3)", Remedy: "reset the GPU, or restart the machine"},
		{ID: "dcgm", Title: "the diagnostics of dcgm ran", Verdict: result.Pass, Reason: "version 4.2.3, driver 580.95.05"},
	}
	r.Results[3].Seconds = 0
	if !reflect.DeepEqual(r.Results, want) {
		t.Errorf("%+v; want %+v", r.Results, want)
	}
	if got := strings.Join(events, ", "); got != "software 0 , software 1 warn, dcgmi diag -r 1 0 , dcgmi diag -r 1 1 fail" {
		t.Errorf("observed %s", got)
	}
}

// TestRunMissing: without dcgmi nothing is known.
func TestRunMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := runDCGM(t.Context(), "1", time.Minute); !errors.Is(err, ErrMissing) {
		t.Errorf("%v; want ErrMissing", err)
	}
}

// TestRunTimeout: dcgmi and what it started end with its time, and when they are
// interrupted.
func TestRunTimeout(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	install(t, "sh -c 'trap \"\" TERM; echo $$ > "+pids+"; while :; do sleep 1; done' >/dev/null 2>&1 &\nwhile [ ! -s "+pids+" ]; do :; done\necho 'at test 3'\nwait")
	for _, tt := range []struct {
		interrupt bool
		limit     time.Duration
		want      string
	}{{false, 10 * time.Second, "timed out: dcgmi diag was not done within 10s"}, {true, time.Minute, "interrupted"}} {
		_ = os.Remove(pids)
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		if tt.interrupt {
			go func() {
				for b, _ := os.ReadFile(pids); len(b) == 0 && ctx.Err() == nil; b, _ = os.ReadFile(pids) {
					time.Sleep(10 * time.Millisecond)
				}
				stop(errors.New("interrupted"))
			}()
		}
		results, err := runDCGM(ctx, "3", tt.limit)
		if err != nil || len(results) != 2 || results[0].Verdict != result.Error || results[0].Reason != tt.want || !tt.interrupt && !strings.Contains(results[0].Output, "at test 3") {
			t.Errorf("%+v, %v; want %q", results, err, tt.want)
		}
		b, err := os.ReadFile(pids)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		for syscall.Kill(pid, 0) == nil && !zombie(pid) { // the test's own limit ends this
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// zombie reports whether a process has ended, and nobody has asked for it.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// TestTests: a level as it is, or those of its tests that DCGM has.
func TestTests(t *testing.T) {
	for _, tt := range []struct {
		run        string
		only, skip []string
		want       string
	}{
		{"3", nil, nil, "3"},
		{"long", nil, nil, "3"},
		{"2", nil, []string{"pcie"}, "software,memory"},
		{"3", []string{"p2p", "memory"}, nil, "memory"},
		{"memory,p2p", nil, nil, "memory"},
		{"p2p", nil, nil, ""},
	} {
		p, err := diag.Select(tt.run, tt.only, tt.skip)
		if err != nil {
			t.Fatal(err)
		}
		if got := Tests(p); got != tt.want {
			t.Errorf("-r %s, only %v, skip %v: %q; want %q", tt.run, tt.only, tt.skip, got, tt.want)
		}
	}
}
