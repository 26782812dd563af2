package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/dcgm/diag"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
)

// TestDiag: what children say becomes text, JSON and an exit status.
func TestDiag(t *testing.T) {
	const gpus = `{"gpus": [{"index": 0, "name": "NVIDIA H200", "bus": "0000:01:00.0", "bytes": 150000000000, "sms": 132}]}`
	results := map[string]string{
		"pass": `{"progress": "at it"}
{"result": {"id": "memory", "verdict": "pass", "seconds": 1.5, "measured": {"value": 4300, "unit": "GB/s", "expected": 4800, "source": "mle-acc"}}}`,
		"warn": `{"result": {"id": "memory", "verdict": "warn", "reason": "GPU 0: persistence mode is off", "remedy": "start nvidia-persistenced"}}`,
		"fail": `{"result": {"id": "memory", "verdict": "fail", "reason": "GPU 0: 2 words are wrong", "remedy": "replace the GPU"}}`,
		"skip": `{"result": {"id": "memory", "verdict": "skip", "reason": "it takes two"}}`,
		"none": "",
	}
	before := diagCommandLine
	t.Cleanup(func() { diagCommandLine = before })
	for _, tt := range []struct {
		result string
		code   int
		want   string
	}{
		{"pass", exit.Pass, "4300 GB/s"},
		{"warn", exit.Pass, "memory: GPU 0: persistence mode is off\n    remedy: start nvidia-persistenced"},
		{"fail", exit.Fail, "✗ memory: GPU 0: 2 words are wrong\n    remedy: replace the GPU"},
		{"none", exit.Fail, "it ended without a result"},
		{"skip", exit.NotDone, "it takes two"},
	} {
		diagCommandLine = func(ctx context.Context, name string) *exec.Cmd {
			text := results[tt.result]
			if name == diag.ListGPUs {
				text = gpus
			}
			return exec.CommandContext(ctx, "printf", "%s", text)
		}
		file := filepath.Join(t.TempDir(), "report.json")
		var out, errOut bytes.Buffer
		if code := run([]string{"harness", "diag", "-r", "memory", "--out", file}, &out, &errOut); code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: status %d, %s%s; want %d, %q", tt.result, code, out.String(), errOut.String(), tt.code, tt.want)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r result.Report
		if err := json.Unmarshal(b, &r); err != nil || r.Schema != result.ReportSchema || len(r.Results) != 1 || r.Version == "" {
			t.Errorf("%s: %v, %s", tt.result, err, b)
		}
	}
	// A suite's limits reach the child.
	diagCommandLine = func(ctx context.Context, name string) *exec.Cmd {
		if name == diag.ListGPUs {
			return exec.CommandContext(ctx, "printf", "%s", gpus)
		}
		return exec.CommandContext(ctx, "sh", "-c", "cat >&2")
	}
	var out, errOut bytes.Buffer
	const limits = `{"write":{"fraction":0.9,"of":"peak","source":"own.yaml:3"}}`
	if code := run([]string{"harness", "diag", "-r", "memory", "-o", "json", "--limits", limits}, &out, &errOut); code != exit.Fail || !strings.Contains(strings.ReplaceAll(out.String(), `\"`, `"`), `"limits":`+limits) {
		t.Errorf("limits: status %d, %s%s", code, out.String(), errOut.String())
	}
	if code := run([]string{"harness", "diag", "--limits", "{"}, &out, &errOut); code != exit.Usage || !strings.Contains(errOut.String(), "--limits: ") {
		t.Errorf("limits that are not JSON: status %d, %s", code, errOut.String())
	}
	errOut.Reset()
	if code := run([]string{"harness", "diag", "-r", "memory", "--gpus", "3"}, &out, &errOut); code != exit.Usage || !strings.Contains(errOut.String(), "no such GPU: 3 of 1") {
		t.Errorf("GPU 3: status %d, %s", code, errOut.String())
	}
}

// TestDiagEngines: DCGM's diagnostics beside or instead of assay's, and what is said
// where there are none.
func TestDiagEngines(t *testing.T) {
	before := diagCommandLine
	t.Cleanup(func() { diagCommandLine = before })
	diagCommandLine = func(ctx context.Context, name string) *exec.Cmd {
		text := `{"result": {"id": "` + name + `", "verdict": "pass"}}`
		if name == diag.ListGPUs {
			text = `{"gpus": [{"index": 0, "name": "NVIDIA H200"}]}`
		}
		return exec.CommandContext(ctx, "printf", "%s", text)
	}
	const pass = `{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [{"entity_id": 0, "status": "Pass"}]}]}]}, "metadata": {"version": "4.4.1"}}`
	missing, there, failing := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, script := range map[string]string{
		there:   "echo \"$@\" >&2; echo '" + pass + "'",
		failing: "echo '" + strings.Replace(pass, "Pass", "Fail", 1) + "'; exit 226",
	} {
		if err := os.WriteFile(filepath.Join(dir, "dcgmi"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := os.Getenv("PATH")
	for _, tt := range []struct {
		dir, args string
		code      int
		want      string
	}{
		{there, "-r 2 --engine dcgm", exit.Pass, "the diagnostics of dcgm ran: version 4.4.1"},
		{there, "-r memory --engine both", exit.Pass, "✓ dcgm/memory"},
		{failing, "-r memory --engine dcgm", exit.Fail, "✗ dcgm/memory: GPU 0 as dcgm counts: DCGM says Fail"},
		{failing, "-r memory --engine both", exit.Fail, "✗ dcgm/memory"},
		{failing, "-r memory --engine assay", exit.Pass, "memory"},
		{there, "-r p2p --engine both", exit.Pass, "– dcgm  it has none of the tests"},
		{missing, "-r 1 --engine dcgm", exit.NotDone, "dcgmi is not installed: there is no dcgmi on PATH"},
		{missing, "-r memory --engine both", exit.Pass, "dcgmi is not installed"},
		{there, "-r p2p --engine dcgm", exit.Usage, "DCGM has none of these tests"},
		{there, "-r 1 --engine dcgm --duration 5s", exit.Usage, "-p and --duration are assay's"},
		{there, "-r 1 --engine both --gpus 0", exit.Usage, "DCGM does otherwise"},
		{there, "-r 1 --engine nvidia", exit.Usage, `--engine is assay, dcgm or both, not "nvidia"`},
	} {
		t.Setenv("PATH", tt.dir+":"+path)
		var out, errOut bytes.Buffer
		code := run(append([]string{"harness", "diag"}, strings.Fields(tt.args)...), &out, &errOut)
		if text := out.String() + errOut.String(); code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("%s: status %d, %s; want %d, %q", tt.args, code, text, tt.code, tt.want)
		}
		if tt.dir == missing && tt.code == exit.NotDone && (out.Len() > 0 || strings.Count(errOut.String(), "\n") != 1) {
			t.Errorf("%s: %s%s; want one line", tt.args, out.String(), errOut.String())
		}
	}
}
