package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/internal/golden"
)

var sampleDigest = "sha256:" + strings.Repeat("ab", 32)

func sample() *certificate.Statement {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := certificate.New(certificate.Predicate{
		Suite: "image", Started: begin, Finished: begin.Add(1234 * time.Millisecond),
		Harness:     certificate.Harness{Version: "v1.2.3", Commit: "0123456789abcdef"},
		Environment: certificate.Environment{Platform: "linux/amd64", OS: "Debian 12", Target: "fabric-debian12", Recipe: "fedcba9876543210"},
		Results: []certificate.Result{
			{ID: "libraries", Title: "all libraries are found", Verdict: certificate.Fail, Reason: "libx.so.1 is missing", Remedy: "install libx1", Seconds: 0.25, Output: "one\x1b[2J\n\ttwo\n"},
			{ID: "component/nccl/load", Component: "nccl", Title: "nccl loads", Verdict: certificate.Pass, Reason: "2.27.6", Output: "hello\n"},
			{ID: "bandwidth", Title: "memory is fast", Verdict: certificate.Pass, Measured: &certificate.Measurement{Value: 187.5, Unit: "GB/s", Expected: 200, Source: "data sheet", Ratio: 0.9375}},
			{ID: "gpu", Title: "there are GPUs", Verdict: certificate.Skip, Reason: "no GPU here"},
			{ID: "slow", Title: "it ends", Verdict: certificate.Error, Reason: "no result within 1m0s"},
			{ID: "not-wanted", Title: "x", Verdict: certificate.Skip, Reason: "left out by --skip"},
		},
	})
	if err := s.SetSubject("ghcr.io/x/assay", sampleDigest); err != nil {
		panic(err)
	}
	return s
}

func TestText(t *testing.T) {
	for name, opt := range map[string]TextOptions{
		"plain": {Hide: func(r certificate.Result) bool { return r.ID == "not-wanted" }},
		"color": {Color: true, Verbose: true},
	} {
		var got bytes.Buffer
		if err := Text(&got, sample(), opt); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name+".txt", got.String())
		if name == "plain" && strings.Contains(got.String(), "\x1b") {
			t.Error("an escape sequence of a program's output got through")
		}
	}
}
