package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/perftest/membw"
)

// A copier has two GPUs between which a copy of any size takes as long.
type copier struct {
	membw.Machine // what is not asked
	seconds       float64
	err           error
	closed        *bool
}

func (m copier) GPUs() []membw.GPU {
	return []membw.GPU{{Index: 0, Name: "NVIDIA H200", Node: -1}, {Index: 1, Name: "NVIDIA H200", Node: -1}}
}
func (m copier) CUDA() int                       { return 12080 }
func (m copier) Peer(a, b int) error             { return nil }
func (m copier) SetPeer(a, b int, on bool) error { return nil }
func (m copier) Close() error                    { *m.closed = true; return nil }

func (m copier) Measure(_ context.Context, flows []membw.Flow, p membw.Plan) (membw.Outcome, error) {
	out := membw.Outcome{Flows: make([][]float64, len(flows))}
	for range p.Samples {
		for i := range flows {
			out.Flows[i] = append(out.Flows[i], m.seconds)
		}
		out.Total, out.Enqueue = append(out.Total, m.seconds), append(out.Enqueue, 1e-6)
	}
	return out, m.err
}

func (m copier) Latency(_ context.Context, l membw.Latency) ([]float64, error) {
	return []float64{m.seconds}, m.err
}

// TestBandwidthRuns: the exit status is what was found, the GPUs are let go, and
// the report is where it was asked for.
func TestBandwidthRuns(t *testing.T) {
	before := openMachine
	defer func() { openMachine = before }()
	file := filepath.Join(t.TempDir(), "report.json")
	const fast = 8 * 512 << 20 / 396e9
	for _, c := range []struct {
		line    string
		seconds float64
		err     error
		status  int
		out     string
	}{
		{"bandwidth --only peer_write_ce --out " + file, fast, nil, 0, "Verdict: pass"},
		{"bandwidth --only peer_write_ce -o json", fast, nil, 0, `"verdict": "pass"`},
		{"bandwidth --only peer_write_ce", 2 * fast, nil, exit.Fail, "Verdict: fail"},
		{"bandwidth --only peer_read_sm", fast, errors.New("broken"), exit.Fail, "broken"},
		{"bandwidth test --htod", fast, nil, 0, "Result = PASS"},
		{"bandwidth test --htod", fast, errors.New("broken"), exit.Fail, "Result = FAIL"},
		{"bandwidth p2p", fast, nil, 0, "P2P Connectivity Matrix"},
		{"bandwidth p2p", fast, errors.New("broken"), exit.Fail, "N/A"},
	} {
		closed := false
		openMachine = func(bool) (membw.Machine, error) {
			return copier{seconds: c.seconds, err: c.err, closed: &closed}, nil
		}
		var out, errOut strings.Builder
		status := run(append([]string{"harness"}, strings.Fields(c.line)...), &out, &errOut)
		if status != c.status || !strings.Contains(out.String(), c.out) || !closed {
			t.Errorf("%s: status %d, want %d; closed %v\n%s%s", c.line, status, c.status, closed, &out, &errOut)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r membw.Report
	if err := json.Unmarshal(b, &r); err != nil || r.Schema != result.ReportSchema || r.Of("peer_write_ce").Objects[0].Verdict != result.Pass {
		t.Errorf("%v, %+v", err, r)
	}
}
