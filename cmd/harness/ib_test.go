package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/perftest/probe"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

func TestIBProgram(t *testing.T) {
	for argv0, want := range map[string]string{
		"ib_write_bw": "write_bw", "/opt/x/ib_atomic_lat": "atomic_lat", "ib_write": "", "write_bw": "", "harness": "", "ib_write_bw.old": "", "/ib_write_bw/harness": "",
	} {
		if tl, ok := ibProgram(argv0); tl.Name != want || ok != (want != "") {
			t.Errorf("ibProgram(%q) = %v, %v", argv0, tl, ok)
		}
	}
}

// runs puts another Run in place for a test.
func ibRuns(t *testing.T, f func(context.Context, probe.Config, probe.Events) (*probe.Outcome, error)) {
	before := ibRun
	ibRun = f
	t.Cleanup(func() { ibRun = before })
}

// measured is a run that finds a bandwidth of 1000 MiB/s, or a latency.
func measured(_ context.Context, c probe.Config, ev probe.Events) (*probe.Outcome, error) {
	o := &probe.Outcome{Info: probe.Info{Device: "mlx5_0", GIDIndex: -1, MTU: 4096, Link: "IB", Transport: "IB"}}
	ev.TellNote("turned a scanner away")
	ev.TellHeader(o.Info)
	row := probe.Row{Bandwidth: &probe.BandwidthResult{Bytes: 65536, Iterations: c.Iters(), Average: 1000 << 20, Rate: 16000}}
	if c.Measure == probe.Latency {
		row = probe.Row{Latency: &probe.LatencyResult{Bytes: 2, Iterations: c.Iters(), Min: 1000, Max: 1000, Typical: 1000, Average: 1000, P99: 1000, P999: 1000}}
	}
	ev.TellRow(row)
	o.Rows = append(o.Rows, row)
	return o, nil
}

// TestIBRuns: output and statuses of tests that were carried out, under either
// name.
func TestIBRuns(t *testing.T) {
	ibRuns(t, measured)
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	for _, tt := range []struct {
		line   string
		status int
		out    string
		errOut string
	}{
		{"harness ib write_bw node2", 0, "\n 65536      5000             0.00               1000.00", "harness ib write_bw: turned a scanner away\n"},
		{"/x/ib_write_bw node2", 0, "RDMA_Write BW Test\n", "ib_write_bw: turned a scanner away\n"},
		{"ib_read_lat -n 5 node2", 0, " 2       5          1.00 ", ""},
		{"ib_read_lat -n 5 --output=latency node2", 0, "1.000000\n", ""},
		{"ib_write_bw --output=bandwidth node2", 0, "1000.000000\n", ""},
		{"ib_write_bw --output=message_rate node2", 0, "0.016000\n", ""},
		{"harness ib ib_write_bw --output json node2", 0, "{\n  \"schema\": 1,\n  \"tool\": \"write_bw\",", ""},
		{"ib_write_bw -w 999 node2", 0, "1000.00", ""},
		{"ib_write_bw -w 1001 node2", 1, "1000.00", "ib_write_bw: 1000 MiB/s at best, which is below the limit (-w) of 1001\n"},
		{"harness ib write_bw -y 1 --output json node2", 1, "\"passed\": false,\n  \"failure\": \"0.016 Mpps at best", "harness: ib write_bw: 0.016 Mpps"},
		{"ib_write_bw --out_json_file=" + file + " node2", 0, "1000.00", ""},
		{"ib_write_bw --out_json_file=" + dir + "/none/x.json node2", 3, "1000.00", "--out_json: "},
		{"ib_write_bw -n 100 -D 5 node2", 0, "1000.00", "ib_write_bw: -n does nothing with -D\n"},
		{"ib_write_bw -h", 0, "Usage: ib_write_bw [FLAG...]", ""},
		{"ib_write_bw -V", 0, "Version: 6.29 (harness ", ""},
		{"ib_write_bw --sise 4", 2, "", "did you mean '--size'? (see ib_write_bw --help)\n"},
		{"harness ib write_bw -O", 2, "", "harness: ib write_bw: -O: not supported: two ports in one test: run one test on each port (see harness ib write_bw --help)\n"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			var out, errOut strings.Builder
			status := run(strings.Fields(tt.line), &out, &errOut)
			if status != tt.status || !strings.Contains(out.String(), tt.out) || !strings.Contains(errOut.String(), tt.errOut) {
				t.Errorf("status %d; want %d\nstdout:\n%s\nstderr:\n%s", status, tt.status, out.String(), errOut.String())
			}
		})
	}
	b, err := os.ReadFile(file)
	if err != nil || !json.Valid(b) || !strings.Contains(string(b), `"BW_average": 1000.00`) {
		t.Errorf("%v\n%s", err, b)
	}
}

// TestIBFailures: what went wrong, as a status.
func TestIBFailures(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
	}{
		{&probe.NotAvailable{What: "no device"}, exit.NotDone},
		{&probe.FlagError{Flag: "-d", Text: "no such device"}, exit.Usage},
		{fmt.Errorf("QP 1: %w: status 12", probe.ErrFailed), exit.Fail},
		{&wire.Error{Peer: "x:1", Exchange: "a record", Kind: wire.ErrMismatch}, exit.Fail},
		{&wire.Error{Peer: "x:1", Exchange: "a record", Kind: wire.ErrTimeout}, exit.NotDone},
		{&wire.Error{Peer: "x:1", Exchange: "a record", Kind: wire.ErrClosed}, exit.NotDone},
		{fmt.Errorf("%w at x:1", wire.ErrNoServer), exit.NotDone},
		{context.Canceled, exit.NotDone},
	} {
		ibRuns(t, func(context.Context, probe.Config, probe.Events) (*probe.Outcome, error) { return nil, tt.err })
		for _, line := range []string{"ib_write_bw x", "harness ib write_bw x"} {
			var out, errOut strings.Builder
			if got := run(strings.Fields(line), &out, &errOut); got != tt.status || out.Len() > 0 || strings.Count(errOut.String(), "\n") != 1 {
				t.Errorf("%s with %v: status %d; want %d\n%s%s", line, tt.err, got, tt.status, out.String(), errOut.String())
			}
		}
	}
}

// TestIBWithoutDevice: one line says what is missing.
func TestIBWithoutDevice(t *testing.T) {
	if _, err := os.Stat("/sys/class/infiniband"); err == nil {
		t.Skip("this machine has RDMA devices")
	}
	for _, line := range []string{"ib_send_lat", "harness ib write_bw node2"} {
		var out, errOut strings.Builder
		if got := run(strings.Fields(line), &out, &errOut); got != exit.NotDone || out.Len() > 0 || strings.Count(errOut.String(), "\n") != 1 || !strings.Contains(errOut.String(), "/sys/class/infiniband") {
			t.Errorf("%s: status %d\n%s%s", line, got, out.String(), errOut.String())
		}
	}
}

// TestStatusLine shows a line in a test that takes long, and clears it.
func TestStatusLine(t *testing.T) {
	var b strings.Builder
	p := &statusLine{w: &b, from: time.Now().Add(time.Minute)}
	p.show("0 bytes")
	p.clear()
	if b.Len() > 0 {
		t.Errorf("too early: %q", b.String())
	}
	p.from = time.Now().Add(-time.Minute)
	p.show("%d bytes, 1 of 2 messages", 4)
	p.clear()
	p.clear()
	if b.String() != "\r\x1b[K4 bytes, 1 of 2 messages\r\x1b[K" {
		t.Errorf("%q", b.String())
	}
	none := newStatusLine(&b)
	none.show("")
	none.clear()
	if none.shown {
		t.Error("shown without a terminal")
	}
}

// TestMeshWithoutDevice: one line says what is missing.
func TestMeshWithoutDevice(t *testing.T) {
	if _, err := os.Stat("/sys/class/infiniband"); err == nil {
		t.Skip("this machine has RDMA devices")
	}
	var out, errOut strings.Builder
	if got := run([]string{"harness", "ib", "mesh"}, &out, &errOut); got != exit.NotDone || out.Len() > 0 || strings.Count(errOut.String(), "\n") != 1 ||
		!strings.Contains(errOut.String(), "/sys/class/infiniband") {
		t.Errorf("status %d\n%s%s", got, out.String(), errOut.String())
	}
}
