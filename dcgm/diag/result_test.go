package diag

import (
	"encoding/json"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// TestResult: what a child makes of problems and figures, in a test of each verdict.
func TestResult(t *testing.T) {
	h200 := func(i int, bus uint8) GPU {
		return GPU{Index: i, Name: "NVIDIA H200", Bus: sysfs.BusID{Bus: bus}, Bytes: 150_754_820_096, SMs: 132}
	}
	a, b := h200(0, 0x1b), h200(1, 0x43)
	verify := func(g GPU, v float64) figure {
		f := g.figure("verify", v, "GB/s")
		f.Measured.Expect(4800, "mle-acc")
		return f
	}
	limits := map[string]result.Rule{"verify": {Fraction: 0.9, Of: "peak", Source: "own.yaml:3"}, "memory tested": {Value: 150e9, Source: "own.yaml:4"}}
	var got []result.Result
	for _, one := range []struct {
		test    string
		seconds float64
		do      func(*job)
	}{
		{"software", 0.4, func(j *job) { j.findf(1, result.Warn, "start nvidia-persistenced", "persistence mode is off") }},
		{"memory", 9.1, func(j *job) {
			for _, f := range []figure{a.figure("memory tested", 148.3e9, "B"), b.figure("memory tested", 148.3e9, "B"), verify(a, 4312.4), verify(b, 4290)} {
				j.measure(f, "")
			}
		}},
		{"p2p", 60, func(j *job) {
			j.measure(a.to(b, "write", 371.25), "")
			j.findf(noGPU, result.Error, "", "timed out: it was not done within 1m0s (at GPU 0 and 1)")
			j.result.Output = "one line\nand another\n"
		}},
		{"targeted_power", 0, func(j *job) { j.skip("power cannot be read: %v", "no NVML") }},
		{"diagnostic", 180.2, func(j *job) {
			j.findf(0, result.Fail, "replace the GPU", "bf16 products: multiprocessors 17 have other results than the rest")
		}},
	} {
		test, _ := testNamed(one.test)
		j := newJob(test, Environment{}, request{Limits: limits})
		j.gpus, j.result.Seconds = []GPU{a, b}, one.seconds
		one.do(j)
		j.sum()
		got = append(got, j.result)
	}
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "results.json", string(text)+"\n")
	for _, r := range got {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}
}
