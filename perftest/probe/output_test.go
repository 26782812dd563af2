package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// info is a RoCE port's, with as many queue pairs on each side.
func info(qps int) Info {
	i := Info{
		Device: "mlx5_0", Transport: "IB", Link: "Ethernet", GIDIndex: 3, MTU: 4096, TxDepth: 128, RxDepth: 512, CQModeration: 1,
		Inline: 220, OutReads: 16, Relaxed: true, Peer: "10.9.0.2:18515", PeerVersion: "6.06",
	}
	for q := range qps {
		a := wire.Address{OutReads: 16, QPN: 0x119 + uint32(q), PSN: 0x79de23, RKey: 0x1800ee, VAddr: 0x7f6b5f8b6000, HasGID: true}
		copy(a.GID[10:], []byte{255, 255, 10, 9, 0, 1})
		b := a
		b.QPN, b.PSN, b.GID[15] = 0x11, 0x92fa6c, 2
		i.Local, i.Remote = append(i.Local, a), append(i.Remote, b)
	}
	return i
}

func bw(bytes uint64, mib float64) BandwidthResult {
	r := BandwidthResult{Bytes: bytes, Iterations: 5000, Peak: mib * 1.01 * mebibyte, Average: mib * mebibyte, CPU: 12.5}
	r.Rate = r.Average / float64(bytes)
	return r
}

// deltas are 999 times of about 2.4 µs there and back, with three outliers.
func deltas() []int64 {
	out := make([]int64, 999)
	for i := range out {
		out[i] = 2400 + int64(i%7)*10
	}
	out[100], out[500], out[900] = 9000, 80000, 20000
	return out
}

// A play is a run as a golden file has it.
type play struct {
	name string
	op   Operation
	m    Measure
	set  func(*Config)
	rows func() []Row
}

func bwRows(r ...BandwidthResult) func() []Row {
	return func() (out []Row) {
		for _, x := range r {
			out = append(out, Row{Bandwidth: &x})
		}
		return out
	}
}

func latRow(r LatencyResult) func() []Row { return func() []Row { return []Row{{Latency: &r}} } }

func timed() LatencyResult {
	h := new(histogram)
	for _, d := range deltas() {
		h.Add(d)
	}
	return timedLatency(2, 999, 2500*time.Microsecond, h, 2)
}

var plays = []play{
	{"write_bw", Write, Bandwidth, func(c *Config) {}, bwRows(bw(65536, 11026.37))},
	{"write_bw_server", Write, Bandwidth, func(c *Config) { c.Host = "" }, bwRows(bw(65536, 11026.37))},
	{"write_bw_all", Write, Bandwidth, func(c *Config) { c.All, c.QPs = true, 2 }, bwRows(bw(2, 9.61), bw(4, 19.2), bw(8<<20, 11776.5))},
	{"write_bw_gbits", Write, Bandwidth, func(c *Config) { c.Gbits = true }, bwRows(bw(2, 9.61), bw(65536, 11026.37))},
	{"read_bw_timed", Read, Bandwidth, func(c *Config) { c.Duration, c.CPUUtil = 10*time.Second, true }, bwRows(bw(65536, 11026.37))},
	{"send_bw_both", Send, Bandwidth, func(c *Config) { c.Bidirectional, c.ReportBoth = true, true }, func() []Row {
		local, remote := bw(65536, 11026.37), bw(65536, 10999.01)
		sum := local.Plus(remote)
		return []Row{{Bandwidth: &sum, Local: &local, Remote: &remote}}
	}},
	{"send_bw_list", Send, Bandwidth, func(c *Config) { c.Bidirectional, c.PostList, c.Connection = true, 8, UD }, bwRows(bw(4096, 5000))},
	{"write_bw_bare", Write, Bandwidth, func(c *Config) { c.Format = "bandwidth" }, bwRows(bw(65536, 11026.37))},
	{"write_bw_rate", Write, Bandwidth, func(c *Config) { c.Format = "message_rate" }, bwRows(bw(65536, 11026.37))},
	{"write_bw_counters", Write, Bandwidth, func(c *Config) { c.Counters = []string{"counters/port_xmit_data"} }, func() []Row {
		r := bw(65536, 11026.37)
		return []Row{{Bandwidth: &r, Counters: map[string]counterChange{"counters/port_xmit_data": {100, 81920100}, "counters/port_rcv_data": {5, 5}}}}
	}},
	{"write_lat", Write, Latency, func(c *Config) { c.Histogram = true }, latRow(newLatency(2, 1000, deltas(), 2))},
	{"send_lat", Send, Latency, func(c *Config) {}, latRow(newLatency(2, 1000, deltas(), 2))},
	{"read_lat", Read, Latency, func(c *Config) {}, latRow(newLatency(2, 1000, deltas(), 1))},
	{"read_lat_server", Read, Latency, func(c *Config) { c.Host = "" }, func() []Row { return nil }},
	{"atomic_lat_samples", Atomic, Latency, func(c *Config) { c.Sorted, c.Unsorted, c.Iterations = true, true, 5 }, latRow(newLatency(8, 5, []int64{1500, 1000, 1234567890, 3000}, 1))},
	{"send_lat_timed", Send, Latency, func(c *Config) { c.Duration, c.Histogram = 10*time.Second, true }, latRow(timed())},
	{"send_lat_bare", Send, Latency, func(c *Config) { c.Format = "latency" }, latRow(newLatency(2, 1000, deltas(), 2))},
}

func (p play) config(t *testing.T) Config {
	t.Helper()
	c := Default(p.op, p.m)
	c.Host = "node2"
	p.set(&c)
	if err := c.Check(); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	return c
}

// TestTables: what stdout gets, as perftest writes it.
func TestTables(t *testing.T) {
	for _, p := range plays {
		t.Run(p.name, func(t *testing.T) {
			c := p.config(t)
			var b strings.Builder
			table := c.Table(&b)
			if c.Role() == wire.Server {
				table.Waiting(":18515")
			}
			table.Header(info(c.QPs))
			for _, r := range p.rows() {
				table.Row(r)
			}
			if err := table.Close(); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, p.name+".txt", b.String())
			parsed(t, &c, b.String(), len(p.rows()))
		})
	}
}

// parsed reads a table as scripts do: what begins with a number is a line of
// results.
func parsed(t *testing.T, c *Config, text string, rows int) {
	t.Helper()
	if c.Format != "" || c.ReportBoth || c.Sorted || c.Unsorted {
		return
	}
	_, body, _ := strings.Cut(text, "#bytes")
	n := 0
	for line := range strings.Lines(body) {
		var size, iterations int
		if k, _ := fmt.Sscan(line, &size, &iterations); k == 2 {
			n++
		}
	}
	if n != rows {
		t.Errorf("a parser finds %d lines of %d:\n%s", n, rows, text)
	}
}

// TestJSON: both documents, which are valid always.
func TestJSON(t *testing.T) {
	for _, p := range plays {
		t.Run(p.name, func(t *testing.T) {
			c := p.config(t)
			o := &Outcome{Info: info(c.QPs), Rows: p.rows()}
			compat, err := c.PerftestJSON(o)
			if err != nil || !json.Valid(compat) {
				t.Fatalf("%v\n%s", err, compat)
			}
			golden.Check(t, p.name+".perftest.json", string(compat))
			own, err := c.DocumentJSON(o, c.Limits(o.Rows))
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, p.name+".json", string(own))
			var d reportDocument
			if err := json.Unmarshal(own, &d); err != nil || d.Schema != schema || d.Tool != c.Tool() || !d.Passed {
				t.Errorf("the document is %+v, %v", d, err)
			}
		})
	}
}

// TestJSONOfNothing: no number becomes NaN or infinite text.
func TestJSONOfNothing(t *testing.T) {
	c := Default(Write, Bandwidth)
	r := BandwidthResult{Bytes: 2, Average: math.NaN(), Peak: math.Inf(1), Rate: math.Inf(-1)}
	b, err := c.PerftestJSON(&Outcome{Info: Info{GIDIndex: -1}, Rows: []Row{{Bandwidth: &r}}})
	if err != nil || !json.Valid(b) {
		t.Errorf("%v\n%s", err, b)
	}
}

// TestTableErrors: a full disk is not silent.
func TestTableErrors(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	c := Default(Write, Bandwidth)
	table := c.Table(w)
	table.Header(info(1))
	if err := table.Close(); err == nil {
		t.Error("no error")
	}
}

func TestCHex(t *testing.T) {
	for _, tt := range []struct {
		width int
		v     uint64
		want  string
	}{{4, 0, "0000"}, {4, 1, "0x01"}, {6, 0x119, "0x0119"}, {6, 0x79de23, "0x79de23"}, {8, 0x1800ee, "0x1800ee"}, {16, 0x7f6b5f8b6000, "0x007f6b5f8b6000"}, {16, 0, "0000000000000000"}} {
		if got := chex(tt.width, tt.v); got != tt.want {
			t.Errorf("chex(%d, %#x) = %s; want %s", tt.width, tt.v, got, tt.want)
		}
	}
	for v, want := range map[float64]string{1.5: "1.5", 1234567.89: "1.23457e+06", 0.00001: "1e-05", 123456: "123456"} {
		if got := general(v); got != want {
			t.Errorf("general(%v) = %s; want %s", v, got, want)
		}
	}
}

// TestLimits: the best size counts.
func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		bw, rate float64
		gbits    bool
		want     string
	}{
		{0, 0, false, ""}, {11000, 0, false, ""}, {11100, 0, false, "-w"}, {0, 0.17, false, ""}, {0, 6, false, "-y"}, {92, 0, true, ""}, {93, 0, true, "-w"},
	} {
		c := Default(Write, Bandwidth)
		c.LimitBW, c.LimitRate, c.Gbits = tt.bw, tt.rate, tt.gbits
		err := c.Limits(bwRows(bw(2, 9.61), bw(65536, 11026.37))())
		e, _ := err.(*limitError)
		if got := ""; e != nil {
			got = e.Flag
			if got != tt.want {
				t.Errorf("%+v: %v", tt, err)
			}
		} else if tt.want != "" {
			t.Errorf("%+v: no error", tt)
		}
	}
	c := Default(Write, Bandwidth)
	c.LimitBW = 5
	if err := c.Limits(nil); err != nil {
		t.Error(err)
	}
}

// TestReportUnits: what the peer is told is what it prints.
func TestReportUnits(t *testing.T) {
	r := bw(65536, 1000)
	if got := r.Report(false); got.Average != 1000 || math.Abs(got.Rate-0.016) > 1e-12 || got.Size != 65536 {
		t.Errorf("MiB/s: %+v", got)
	}
	if got := r.Report(true).Average; math.Abs(got-8.388608) > 1e-9 {
		t.Errorf("Gb/s: %v", got)
	}
	for _, gbits := range []bool{false, true} {
		back := fromReport(r.Report(gbits), gbits)
		if math.Abs(back.Average-r.Average) > 1 || back.Bytes != r.Bytes {
			t.Errorf("back: %+v", back)
		}
	}
	if got := averaged(1000, 10, 20, 2*time.Second); got.Average != 10000 || got.Rate != 10 || got.Iterations != 10 {
		t.Errorf("Averaged = %+v", got)
	}
	if got := averaged(1000, 10, 20, 0); got.Average != 0 {
		t.Errorf("no time: %+v", got)
	}
}
