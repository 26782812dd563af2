package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/result"
)

var sampleDigest = "sha256:" + strings.Repeat("ab", 32)

func sample() *certificate.Statement {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := certificate.New(certificate.Predicate{
		Suite: "image", Started: begin, Finished: begin.Add(1234 * time.Millisecond),
		Harness:     certificate.Harness{Version: "v1.2.3", Commit: "0123456789abcdef"},
		Environment: certificate.Environment{Platform: "linux/amd64", OS: "Debian 12", Target: "fabric-debian12", Recipe: "fedcba9876543210"},
		Results: []result.Result{
			{ID: "libraries", Title: "all libraries are found", Verdict: result.Fail, Reason: "libx.so.1 is missing", Remedy: "install libx1", Seconds: 0.25, Output: "one\x1b[2J\n\ttwo\n"},
			{ID: "component/nccl/load", Component: "nccl", Title: "nccl loads", Verdict: result.Pass, Reason: "2.27.6", Output: "hello\n"},
			{ID: "bandwidth", Title: "memory is fast", Verdict: result.Pass, Measured: &result.Measurement{Value: 187.5, Unit: "GB/s", Expected: 200, Source: "data sheet", Ratio: 0.9375}},
			{ID: "gpu", Title: "there are GPUs", Verdict: result.Skip, Reason: "no GPU here"},
			{ID: "slow", Title: "it ends", Verdict: result.Error, Reason: "no result within 1m0s"},
			{ID: "not-wanted", Title: "x", Verdict: result.Skip, Reason: "left out by --skip"},
		},
	})
	if err := s.SetSubject("ghcr.io/x/assay", sampleDigest); err != nil {
		panic(err)
	}
	return s
}

func textOf(t testing.TB, s *certificate.Statement, opt TextOptions) string {
	t.Helper()
	var got bytes.Buffer
	if err := Text(&got, s, opt); err != nil {
		t.Fatal(err)
	}
	return got.String()
}

func TestText(t *testing.T) {
	for name, in := range map[string]struct {
		of  *certificate.Statement
		opt TextOptions
	}{
		"plain":    {sample(), TextOptions{Hide: func(r result.Result) bool { return r.ID == "not-wanted" }}},
		"color":    {sample(), TextOptions{Color: true, Verbose: true}},
		"node":     {certificatetest.Node(8), TextOptions{}},
		"node-80":  {certificatetest.Node(8), TextOptions{Width: 80}},
		"sick-80":  {sick(), TextOptions{Width: 80}},
		"sick-160": {sick(), TextOptions{Width: 160}},
	} {
		got := textOf(t, in.of, in.opt)
		golden.Check(t, name+".txt", got)
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); in.opt.Width > 0 && n > in.opt.Width && !strings.Contains(line, "sha256:") {
				t.Errorf("%s: a line has %d characters: %s", name, n, line)
			}
		}
		if name != "color" && strings.Contains(got, "\x1b") {
			t.Error("an escape sequence of a program's output got through")
		}
	}
	if got := textOf(t, hostile(), TextOptions{Verbose: true}); strings.ContainsAny(got, "\x00\x07\x08\x1b\u202e") {
		t.Errorf("what steers a terminal got through: %q", got)
	}
}

// sick is a machine whose every GPU and pair has something.
func sick() *certificate.Statement {
	s := certificatetest.Node(8)
	p := &s.Predicate
	for i := range p.Results {
		r := &p.Results[i]
		for j := range r.Objects {
			o := &r.Objects[j]
			switch r.ID {
			case "health/gpu/temperature":
				r.Verdict, r.Reason, r.Remedy = result.Fail, "8 GPUs fell off the bus", "drain the node, power it down completely, and if it comes back without them send it to its maker with the log of nvidia-bug-report"
				o.Verdict, o.Reason, o.Measured = result.Fail, "fell off the bus", nil
			case "bandwidth/p2p":
				r.Verdict, r.Reason = result.Fail, "56 pairs are slow"
				m := *o.Measured
				m.Value /= 2
				o.Verdict, o.Reason, o.Measured = result.Fail, figure(m.Value, m.Unit)+", less than 360", &m
			case "bandwidth/h2d":
				o.Verdict = result.Error
				o.Reason = fmt.Sprintf("cuMemAlloc on the device with the serial number %c%c%c: out of memory, although nothing else runs there", 'A'+j, 'K'-j, 'Q'+j)
				o.Measured = nil
			}
		}
	}
	p.Verdict = result.Summary(p.Results)
	return s
}

func TestNames(t *testing.T) {
	for want, names := range map[string][]string{
		"GPU 0-3, 7":             {"GPU 0", "GPU 1", "GPU 2", "GPU 3", "GPU 7"},
		"GPU 1, 0":               {"GPU 1", "GPU 0"},
		"mlx5_0-1, eth0, a b":    {"mlx5_0", "mlx5_1", "eth0", "a b"},
		"GPU 07, GPU 08":         {"GPU 07", "GPU 08"},
		"0-2":                    {"0", "1", "2"},
		"a0-1, b0":               {"a0", "a1", "b0"},
		"mlx5_0/1, mlx5_1/1":     {"mlx5_0/1", "mlx5_1/1"},
		"x99999999999999999999 ": {"x99999999999999999999 "},
	} {
		if got := condense(names); got != want {
			t.Errorf("condense(%q) = %q; want %q", names, got, want)
		}
	}
}

// TestFaultsOnTop: what is wrong comes before the list of checks.
func TestFaultsOnTop(t *testing.T) {
	got := textOf(t, certificatetest.Node(8), TextOptions{})
	at := 0
	for _, want := range []string{"node     node07", "8 × NVIDIA H200", "✗ bandwidth/h2d: ", "remedy: look at", "✗ GPU 0: 31.2 GB/s, less than 48; limit: at least 48 GB/s (Azure)", "! diag/pulse: ", "    round 4", "⚠ health/xid: ", "remedy: restart", "✓ health/gpu/temperature", "FAIL  suite node"} {
		i := strings.Index(got[at:], want)
		if i < 0 {
			t.Fatalf("%q does not follow:\n%s", want, got[at:])
		}
		at += i
	}
}

// TestManySkipped: what was skipped for one reason is a line, unless all is asked for.
func TestManySkipped(t *testing.T) {
	var results []result.Result
	for i := range 3 * many {
		results = append(results, result.Result{ID: fmt.Sprintf("gpu/%02d", i), Title: "t", Verdict: result.Skip, Reason: "there is no GPU"})
	}
	results = append(results, result.Result{ID: "other", Title: "t", Verdict: result.Skip, Reason: "another reason"}, result.Result{ID: "good", Title: "it is good", Verdict: result.Pass})
	st := certificate.New(certificate.Predicate{Suite: "s", Results: results})
	for _, verbose := range []bool{false, true} {
		var b strings.Builder
		if err := Text(&b, st, TextOptions{Verbose: verbose}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(b.String(), "there is no GPU")
		if want := map[bool]int{false: 1, true: 3 * many}[verbose]; lines != want || !strings.Contains(b.String(), "another reason") {
			t.Errorf("verbose %v: %d lines; want %d\n%s", verbose, lines, want, b.String())
		}
		if !verbose && !strings.Contains(b.String(), "– 24 checks  there is no GPU: gpu/00 … gpu/23 (--verbose shows all)") {
			t.Error(b.String())
		}
	}
}

// TestBunches: objects of about the same limit are one line, which says between which values
// their limits are.
func TestBunches(t *testing.T) {
	of := func(name string, value, expected float64) result.Object {
		return result.Object{Name: name, Verdict: result.Warn, Reason: fmt.Sprintf("%.4g GB/s is low", value), Measured: &result.Measurement{
			Value: value, Unit: "GB/s", Expected: expected, Source: "alone", Limit: &result.Limit{Value: 0.7 * expected, Kind: result.AtLeast, Source: "rule"},
		}}
	}
	got := bunches([]result.Object{of("GPU 0", 33, 55), of("GPU 1", 36, 55.5), of("GPU 2", 30, 62)})
	var lines []string
	for _, b := range got {
		lines = append(lines, b.names()+": "+b.outcome())
	}
	want := []string{
		"GPU 0-1: 33 to 36 GB/s; limit: at least 38.5 to 38.85 GB/s (rule); expected: 55 to 55.5 GB/s (alone)",
		"GPU 2: 30 GB/s is low; limit: at least 43.4 GB/s (rule); expected: 62 GB/s (alone)",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}
