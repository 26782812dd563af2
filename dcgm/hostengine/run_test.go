package hostengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// TestDo: dcgmi's words and its exit status must agree that all is well.
func TestDo(t *testing.T) {
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, script string
		status       result.Verdict
		text         string
	}{
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
			e, results, err := Run{Tests: "2", Timeout: time.Minute}.Do(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var r diag.Report
			r.Add(e, results)
			if text := fmt.Sprint(r.Tests); r.Status != tt.status || r.Engines[0].Status != tt.status || !strings.Contains(text, tt.text) {
				t.Errorf("%s: %s; want %s, %q", r.Status, text, tt.status, tt.text)
			}
		})
	}
}

// TestDoMissing: without dcgmi nothing is known.
func TestDoMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, _, err := (Run{Tests: "1", Timeout: time.Minute}).Do(t.Context()); !errors.Is(err, ErrMissing) {
		t.Errorf("%v; want ErrMissing", err)
	}
}

// TestDoTimeout: dcgmi and what it started end with its time, and when they are
// interrupted.
func TestDoTimeout(t *testing.T) {
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
		_, results, err := Run{Tests: "3", Timeout: tt.limit}.Do(ctx)
		if err != nil || len(results) != 1 || results[0].Status != result.Error || results[0].Reason != tt.want || !tt.interrupt && !strings.Contains(results[0].Output, "at test 3") {
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
