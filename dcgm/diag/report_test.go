package diag

import (
	"encoding/json"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// sample has a test of each status.
func sample() *Report {
	one := 1
	r := &Report{
		GPUs: []GPU{{Index: 0, Name: "NVIDIA H200", Bus: sysfs.BusID{Bus: 0x1b}, Bytes: 150_754_820_096, SMs: 132}, {Index: 1, Name: "NVIDIA H200", Bus: sysfs.BusID{Bus: 0x43}, Bytes: 150_754_820_096, SMs: 132}},
		Tests: []Result{
			{Test: "software", Category: "Deployment", Status: result.Warn, Seconds: 0.4, Findings: []Finding{{GPU: 1, Status: result.Warn, Text: "persistence mode is off", Remedy: "start nvidia-persistenced"}}},
			{Test: "memory", Category: "Hardware", Status: result.Pass, Seconds: 9.1, Measurements: []Measurement{
				{Name: "memory tested", GPU: 0, Value: 148.3e9, Unit: "B"}, {Name: "memory tested", GPU: 1, Value: 148.3e9, Unit: "B"},
				{Name: "verify", GPU: 0, Value: 4312.4, Unit: "GB/s", Reference: 4800, Source: "mle-acc"}, {Name: "verify", GPU: 1, Value: 4290, Unit: "GB/s", Reference: 4800, Source: "mle-acc"},
			}},
			{Test: "p2p", Category: "Integration", Status: result.Error, Seconds: 60, Reason: "timed out: it was not done within 1m0s (at GPU 0 and 1)", Output: "one line\nand another\n",
				Measurements: []Measurement{{Name: "write", GPU: 0, Peer: &one, Value: 371.25, Unit: "GB/s"}}},
			{Test: "targeted_power", Category: "Stress", Status: result.Skip, Reason: "power cannot be read: no NVML"},
			{Test: "diagnostic", Category: "Hardware", Status: result.Fail, Seconds: 180.2, Findings: []Finding{{GPU: 0, Status: result.Fail, Text: "bf16 products: multiprocessors 17 have other results than the rest", Remedy: "replace the GPU"}}},
		},
	}
	for i := range r.Tests {
		r.Tests[i].Engine = Assay
	}
	r.Engines = []Engine{{Name: Assay}}
	r.Add(Engine{Name: "dcgm", Version: "4.2.3", Driver: "580.95.05", Seconds: 61.4}, []Result{
		{Test: "software", Category: "Deployment", Status: result.Pass},
		{Test: "pcie", Category: "Integration", Status: result.Fail, Findings: []Finding{{GPU: 3, Status: result.Fail, Text: "PCIe replays (DCGM error 3)", Remedy: "reset the GPU"}}},
	})
	r.Add(Engine{Name: "other", Reason: "it is not installed"}, nil)
	return r
}

// TestResults: tests, figures and engines as checks have them.
func TestResults(t *testing.T) {
	got := sample().Results(map[string]result.Rule{"verify": {Fraction: 0.9, Of: "peak", Source: "own.yaml:3"}, "memory tested": {Value: 150e9, Source: "own.yaml:4"}})
	b, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "results.json", string(b)+"\n")
	for _, r := range got {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestJudge: a report is as bad as its worst test, and only skips are no pass.
func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		tests []result.Verdict
		want  result.Verdict
	}{
		{nil, result.Skip}, {[]result.Verdict{result.Skip, result.Skip}, result.Skip}, {[]result.Verdict{result.Skip, result.Pass}, result.Pass}, {[]result.Verdict{result.Pass, result.Warn, result.Skip}, result.Warn},
		{[]result.Verdict{result.Warn, result.Error, result.Pass}, result.Error}, {[]result.Verdict{result.Error, result.Fail, result.Pass}, result.Fail},
	} {
		r := Report{Engines: []Engine{{Name: "none"}}}
		var all []Result
		for _, s := range tt.tests {
			all = append(all, Result{Status: s})
		}
		if r.Add(Engine{Name: Assay}, all); r.Engines[1].Status != tt.want || r.Status != tt.want {
			t.Errorf("%v: %s; want %s", tt.tests, r.Status, tt.want)
		}
	}
}
