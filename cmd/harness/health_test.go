package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// A healthDriver has so many GPUs, of which one may be lost, or never answers.
type healthDriver struct {
	gpus  int
	err   error
	lost  int // index; -1 is none
	never chan struct{}
}

func (d healthDriver) Driver() (nvml.Driver, error) {
	return nvml.Driver{GPUs: d.gpus, Version: "580.65.06", CUDA: 13000}, d.err
}

func (d healthDriver) GPU(i int, asking func(string)) (nvml.GPU, error) {
	if i != d.lost {
		return nvml.GPU{Persistence: sysfs.Known(true)}, nil
	}
	if d.never == nil {
		return nvml.GPU{}, nvml.ErrLost
	}
	asking("its fabric")
	<-d.never
	return nvml.GPU{}, nil
}

func (healthDriver) Counters(int) (map[string]uint64, error) { return nil, nvml.ErrNotSupported }

// TestHealth: the exit status is what was found, and stderr has one line of it.
func TestHealth(t *testing.T) {
	before := openGPUs
	defer func() { openGPUs = before }()
	never := make(chan struct{})
	defer close(never)
	for _, tt := range []struct {
		line     string
		driver   healthDriver
		status   int
		out, err string
	}{
		{"--only gpu/persistence", healthDriver{gpus: 2, lost: -1}, exit.Pass, "PASS  health: 1 passed, 0 failed", ""},
		{"--only gpu/count --gpus 2", healthDriver{gpus: 2, lost: -1}, exit.Pass, "✓ gpu/count  all GPUs are there: 2", ""},
		{"--only gpu/count --gpus 8", healthDriver{gpus: 2, lost: -1}, exit.Fail, "the driver has 2 GPUs, not 8", "harness: health: 1 check failed\n"},
		{"--only gpu/answers", healthDriver{gpus: 2, lost: 1}, exit.Fail, "GPU 1: the GPU is lost", "harness: health: 1 check failed\n"},
		{"--only gpu/persistence", healthDriver{gpus: 2, lost: 1}, exit.NotDone, "GPU 1: the GPU is lost", "harness: health: 1 check could not be made\n"},
		{"--only gpu/persistence --timeout 100ms", healthDriver{gpus: 2, lost: 0, never: never}, exit.NotDone, "no answer in time (100ms), asked for its fabric", "harness: health: 1 check could not be made\n"},
		{"--only gpu/persistence", healthDriver{err: errors.New("NVML: Unknown Error")}, exit.NotDone, "NVML: Unknown Error", "harness: health: 1 check could not be made\n"},
	} {
		openGPUs = func() health.Source { return tt.driver }
		var out, errOut strings.Builder
		status := run(append([]string{"harness", "health"}, strings.Fields(tt.line)...), &out, &errOut)
		if status != tt.status || !strings.Contains(out.String(), tt.out) || errOut.String() != tt.err {
			t.Errorf("health %s of %+v: status %d\n%s%s; want %d, %q, %q", tt.line, tt.driver, status, out.String(), errOut.String(), tt.status, tt.out, tt.err)
		}
	}
}

// TestHealthHere: this machine's own files are read to the end, whatever they
// say, and the document is whole.
func TestHealthHere(t *testing.T) {
	var out, errOut strings.Builder
	status := run([]string{"harness", "health", "-o", "json"}, &out, &errOut)
	var r result.Report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil || r.Schema != result.ReportSchema || len(r.Results) != len(health.IDs()) {
		t.Fatalf("status %d, %v\n%s%s", status, err, out.String(), errOut.String())
	}
	if (status == exit.Fail) != (r.Verdict == result.Fail) || (status == exit.NotDone) != (r.Verdict == result.Error) {
		t.Errorf("status %d, verdict %s", status, r.Verdict)
	}
}
