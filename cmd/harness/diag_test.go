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
)

// TestDiag: what children say becomes text, JSON and an exit status.
func TestDiag(t *testing.T) {
	const gpus = `{"gpus": [{"index": 0, "name": "NVIDIA H200", "bus": "0000:01:00.0", "bytes": 150000000000, "sms": 132}]}`
	results := map[string]string{
		"pass": `{"progress": "at it"}
{"result": {"test": "memory", "category": "Hardware", "status": "pass", "seconds": 1.5, "measurements": [{"name": "verify", "gpu": 0, "value": 4300, "unit": "GB/s", "reference": 4800, "source": "mle-acc"}]}}`,
		"warn": `{"result": {"test": "memory", "category": "Hardware", "status": "warn", "findings": [{"gpu": 0, "status": "warn", "text": "persistence mode is off", "remedy": "start nvidia-persistenced"}]}}`,
		"fail": `{"result": {"test": "memory", "category": "Hardware", "status": "fail", "findings": [{"gpu": 0, "status": "fail", "text": "2 words are wrong", "remedy": "replace the GPU"}]}}`,
		"skip": `{"result": {"test": "memory", "category": "Hardware", "status": "skip", "reason": "it takes two"}}`,
		"none": "",
	}
	before := diagCommandLine
	t.Cleanup(func() { diagCommandLine = before })
	for _, tt := range []struct {
		result string
		code   int
		want   string
	}{
		{"pass", exitPass, "verify: 4300 GB/s, 90 % of 4800 (mle-acc)"},
		{"warn", exitPass, "GPU 0: persistence mode is off\n    remedy: start nvidia-persistenced"},
		{"fail", exitFail, "FAIL: memory\n  GPU 0: 2 words are wrong\n    remedy: replace the GPU"},
		{"none", exitFail, "it ended without a result"},
		{"skip", exitNotDone, "it takes two"},
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
		if code := run([]string{"harness", "diag", "-r", "memory", "--json", file}, &out, &errOut); code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: status %d, %s%s; want %d, %q", tt.result, code, out.String(), errOut.String(), tt.code, tt.want)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r diag.Report
		if err := json.Unmarshal(b, &r); err != nil || r.Schema != diag.Schema || len(r.Tests) != 1 || r.Version == "" {
			t.Errorf("%s: %v, %s", tt.result, err, b)
		}
	}
	var out, errOut bytes.Buffer
	if code := run([]string{"harness", "diag", "-r", "memory", "--gpus", "3"}, &out, &errOut); code != exitUsage || !strings.Contains(errOut.String(), "no such GPU: 3 of 1") {
		t.Errorf("GPU 3: status %d, %s", code, errOut.String())
	}
}
