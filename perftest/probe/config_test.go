package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// TestDefaults: each tool without flags passes Check and has perftest's
// values.
func TestDefaults(t *testing.T) {
	for tool, want := range map[string]string{
		"write_bw":   "size 65536 iters 5000 tx 128 rx 1 mod 1 inline 0 peak true",
		"read_bw":    "size 65536 iters 1000 tx 128 rx 1 mod 1 inline 0 peak true",
		"send_bw":    "size 65536 iters 1000 tx 128 rx 512 mod 1 inline 0 peak true",
		"atomic_bw":  "size 8 iters 1000 tx 128 rx 1 mod 100 inline 0 peak true",
		"write_lat":  "size 2 iters 1000 tx 1 rx 1 mod 1 inline 220 peak false",
		"read_lat":   "size 2 iters 1000 tx 1 rx 1 mod 1 inline 0 peak false",
		"send_lat":   "size 2 iters 1000 tx 1 rx 512 mod 1 inline 236 peak false",
		"atomic_lat": "size 8 iters 1000 tx 1 rx 1 mod 1 inline 0 peak false",
	} {
		tl, ok := FindTool(tool)
		if !ok {
			t.Fatalf("no tool %s", tool)
		}
		c := Default(tl.Operation, tl.Measure)
		got := fmt.Sprintf("size %d iters %d tx %d rx %d mod %d inline %d peak %v", c.MessageSize(4096), c.Iters(), c.SendDepth(), c.ReceiveDepth(), c.CQMod(), c.InlineSize(true), c.Peak())
		if got != want || c.Tool() != tool || c.Check() != nil || len(c.Remarks()) > 0 {
			t.Errorf("%s: %s; want %s; %v %q", tool, got, want, c.Check(), c.Remarks())
		}
	}
	if len(Tools()) != 8 {
		t.Errorf("%d tools", len(Tools()))
	}
}

// TestEffective: what options come to.
func TestEffective(t *testing.T) {
	for _, tt := range []struct {
		name string
		op   Operation
		m    Measure
		set  func(*Config)
		get  func(*Config) any
		want any
	}{
		{"small messages are moderated", Write, Bandwidth, func(c *Config) { c.Size = 8192 }, func(c *Config) any { return c.CQMod() }, 100},
		{"all sizes are", Write, Bandwidth, func(c *Config) { c.All = true }, func(c *Config) any { return c.CQMod() }, 100},
		{"to the depth", Write, Bandwidth, func(c *Config) { c.Size, c.TxDepth = 2, 16 }, func(c *Config) any { return c.CQMod() }, 16},
		{"-Q wins", Write, Bandwidth, func(c *Config) { c.CQModeration = 50 }, func(c *Config) any { return c.CQMod() }, 50},
		{"events", Read, Bandwidth, func(c *Config) { c.Events = true }, func(c *Config) any { return c.CQMod() }, 100},
		{"a list is one completion", Write, Bandwidth, func(c *Config) { c.PostList = 8 }, func(c *Config) any { return c.CQMod() }, 8},
		{"a send's receives", Send, Bandwidth, func(c *Config) { c.Size, c.RxDepth = 2, 20 }, func(c *Config) any { return c.CQMod() }, 20},
		{"few iterations", Write, Bandwidth, func(c *Config) { c.Iterations, c.Size = 20, 2 }, func(c *Config) any { return [2]int{c.SendDepth(), c.CQMod()} }, [2]int{20, 20}},
		{"not with a duration", Write, Bandwidth, func(c *Config) { c.Iterations, c.Duration = 20, time.Minute }, func(c *Config) any { return [2]int{c.SendDepth(), int(c.Iters())} }, [2]int{128, 0}},
		{"a long list", Write, Bandwidth, func(c *Config) { c.PostList = 500 }, func(c *Config) any { return c.SendDepth() }, 500},
		{"receives of few", Send, Bandwidth, func(c *Config) { c.Iterations = 101 }, func(c *Config) any { return c.ReceiveDepth() }, 102},
		{"of all sizes", Send, Bandwidth, func(c *Config) { c.Iterations, c.All = 101, true }, func(c *Config) any { return c.ReceiveDepth() }, 101},
		{"unreliable", Send, Bandwidth, func(c *Config) { c.Connection = UD }, func(c *Config) any { return c.ReceiveDepth() }, 1000},
		{"many unreliable", Send, Bandwidth, func(c *Config) { c.Connection, c.Iterations = UC, 100000 }, func(c *Config) any { return c.ReceiveDepth() }, 16000},
		{"unreliable by time", Send, Bandwidth, func(c *Config) { c.Connection, c.Duration = UC, time.Minute }, func(c *Config) any { return c.ReceiveDepth() }, 512},
		{"a datagram is cut", Send, Bandwidth, func(c *Config) { c.Connection = UD }, func(c *Config) any { return c.MessageSize(2048) }, uint64(2048)},
		{"sizes", Write, Bandwidth, func(c *Config) { c.All = true }, func(c *Config) any { s := c.Sizes(1024); return [3]uint64{s[0], s[22], uint64(len(s))} }, [3]uint64{2, 8 << 20, 23}},
		{"sizes of datagrams", Send, Bandwidth, func(c *Config) { c.All, c.Connection = true, UD }, func(c *Config) any { s := c.Sizes(1024); return s[len(s)-1] }, uint64(1024)},
		{"window", Write, Bandwidth, func(c *Config) { c.Duration = 10 * time.Second }, func(c *Config) any { a, b := c.Window(); return [2]time.Duration{a, b} }, [2]time.Duration{2e9, 6e9}},
		{"short window", Write, Bandwidth, func(c *Config) { c.Duration = 3 * time.Second }, func(c *Config) any { a, b := c.Window(); return [2]time.Duration{a, b} }, [2]time.Duration{0, 3e9}},
		{"margin", Write, Bandwidth, func(c *Config) { c.Duration, c.Margin = 5*time.Second, time.Second }, func(c *Config) any { _, b := c.Window(); return b }, 3 * time.Second},
		{"no peak beyond", Write, Bandwidth, func(c *Config) { c.Iterations = 20001 }, func(c *Config) any { return c.Peak() }, false},
		{"no peak over time", Write, Bandwidth, func(c *Config) { c.Duration = time.Minute }, func(c *Config) any { return c.Peak() }, false},
		{"a period", Write, Bandwidth, func(c *Config) { c.Endless = true }, func(c *Config) any { return c.Period() }, 5 * time.Second},
		{"inline of datagrams", Send, Latency, func(c *Config) { c.Connection = UD }, func(c *Config) any { return c.InlineSize(true) }, 188},
		{"largest of datagrams", Send, Latency, func(c *Config) { c.Connection, c.Inline = UD, 900 }, func(c *Config) any { return c.InlineSize(true) }, 884},
		{"another vendor's", Write, Latency, func(c *Config) {}, func(c *Config) any { return c.InlineSize(false) }, 0},
		{"a GPU's", Send, Latency, func(c *Config) { c.GPU = 0 }, func(c *Config) any { return c.InlineSize(true) }, 0},
		{"relaxed", Write, Bandwidth, func(c *Config) {}, func(c *Config) any { return c.RelaxedOrdering() }, true},
		{"strict", Write, Latency, func(c *Config) {}, func(c *Config) any { return c.RelaxedOrdering() }, false},
		{"client sends", Write, Bandwidth, func(c *Config) { c.Host = "x" }, func(c *Config) any { return c.Sends() }, true},
		{"server does not", Write, Bandwidth, func(c *Config) {}, func(c *Config) any { return c.Sends() }, false},
		{"reversed", Write, Bandwidth, func(c *Config) { c.Reversed = true }, func(c *Config) any { return c.Sends() }, true},
		{"both", Write, Bandwidth, func(c *Config) { c.Bidirectional = true }, func(c *Config) any { return c.Sends() }, true},
		{"round trips", Send, Latency, func(c *Config) {}, func(c *Config) any { return c.RoundTrips() }, 2},
		{"reads come back", Read, Latency, func(c *Config) {}, func(c *Config) any { return c.RoundTrips() }, 1},
		{"IPv6", Write, Bandwidth, func(c *Config) { c.IPv6TCP = true }, func(c *Config) any { return c.Wire(nil).Network }, "tcp6"},
	} {
		c := Default(tt.op, tt.m)
		tt.set(&c)
		if got := tt.get(&c); got != tt.want {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
}

// TestParams: the block of a default write_bw, as 26.01.5 has it.
func TestParams(t *testing.T) {
	c := Default(Write, Bandwidth)
	if got, want := c.Params(4096, 16), (wire.Params{Sizes: "one size", Connection: "RC", Verb: "write", Test: "bandwidth", Mode: "iterations", Format: "MiB/s", Size: 65536, Iterations: 5000, QPs: 1, Duration: 5, MaxReads: 16}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
	c = Default(Send, Latency)
	c.Connection, c.All, c.Gbits = UD, true, true
	if got, want := c.Params(2048, 16), (wire.Params{Sizes: "all sizes", Connection: "UD", Verb: "send", Test: "latency", Mode: "iterations", Format: "Gb/s", Size: 2048, Iterations: 1000, QPs: 1, Duration: 5, MaxReads: 16}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
	c = Default(Write, Bandwidth)
	c.CM = true
	if got := c.Params(4096, 16); got.ControlCM != 1 {
		t.Errorf("%+v", got)
	}
	c = Default(Atomic, Bandwidth)
	c.Duration = 10 * time.Second
	if got := c.Params(0, 1); got.Atomic != 1 || got.Mode != "duration" || got.Iterations != 0 || got.Duration != 10 {
		t.Errorf("%+v", got)
	}
}

// TestCheck: each rule refuses what it is for, and names the flag.
func TestCheck(t *testing.T) {
	type bad struct {
		tool string
		flag string
		text string
		set  func(*Config)
	}
	for _, b := range []bad{
		{"write_bw", "-p", "65535", func(c *Config) { c.Port = 70000 }},
		{"write_bw", "-i", "port", func(c *Config) { c.IBPort = 0 }},
		{"write_bw", "-m", "4096", func(c *Config) { c.MTU = 1500 }},
		{"write_bw", "-x", "64", func(c *Config) { c.GIDIndex = 65 }},
		{"write_bw", "-S", "15", func(c *Config) { c.SL = 16 }},
		{"write_bw", "--tclass", "255", func(c *Config) { c.TClass = 256 }},
		{"write_bw", "--pkey_index", "65535", func(c *Config) { c.PKeyIndex = 65536 }},
		{"write_bw", "--dlid", "65535", func(c *Config) { c.DLID = 65536 }},
		{"write_bw", "-q", "16384", func(c *Config) { c.QPs = 0 }},
		{"write_bw", "-t", "15000", func(c *Config) { c.TxDepth = 15001 }},
		{"send_bw", "-r", "16384", func(c *Config) { c.RxDepth = 16385 }},
		{"write_bw", "-Q", "1024", func(c *Config) { c.CQModeration = 1025 }},
		{"write_bw", "-l", "15000", func(c *Config) { c.PostList = 0 }},
		{"write_bw", "-I", "912", func(c *Config) { c.Inline = 913 }},
		{"read_bw", "-o", "65535", func(c *Config) { c.OutReads = 65536 }},
		{"write_bw", "-u", "31", func(c *Config) { c.AckTimeout = 32 }},
		{"send_bw", "-X", "2048", func(c *Config) { c.Vector, c.Events = 2049, true }},
		{"write_bw", "-s", "2147483647", func(c *Config) { c.Size = 1 << 31 }},
		{"write_bw", "-n", "from 5", func(c *Config) { c.Iterations = 4 }},
		{"write_bw", "-n", "100000000", func(c *Config) { c.Iterations = 100000001 }},
		{"write_bw", "-D", "year", func(c *Config) { c.Duration = 1e18 }},
		{"write_bw", "-f", "seconds", func(c *Config) { c.Margin = -2 }},
		{"write_lat", "--latency_gap", "microseconds", func(c *Config) { c.LatencyGap = -1 }},
		{"write_bw", "--wait_destroy", "seconds", func(c *Config) { c.WaitDestroy = -1 }},
		{"write_bw", "--wait, --timeout", "seconds", func(c *Config) { c.Timeout = -1 }},
		{"write_bw", "-w, -y", "above 0", func(c *Config) { c.LimitBW = -1 }},
		{"write_bw", "--use_cuda", "0 or more", func(c *Config) { c.GPU = -2 }},
		{"write_bw", "-c", "-c RC", func(c *Config) { c.Connection = UD }},
		{"read_bw", "-c", "-c RC", func(c *Config) { c.Connection = UC }},
		{"write_bw", "--use-srq", "send_bw", func(c *Config) { c.SRQ = true }},
		{"send_bw", "--use-srq", "larger -r", func(c *Config) { c.SRQ, c.QPs, c.RxDepth = true, 9, 8 }},
		{"send_lat", "--recv_post_list", "send_bw", func(c *Config) { c.RecvList = 2 }},
		{"send_bw", "--recv_post_list", "16384", func(c *Config) { c.RecvList = 0 }},
		{"send_bw", "--recv_post_list", "-n 1000 is not a multiple", func(c *Config) { c.RecvList = 3 }},
		{"send_bw", "--recv_post_list", "longer than a QP's receives (128)", func(c *Config) { c.SRQ, c.QPs, c.RecvList = true, 4, 200 }},
		{"send_bw", "--flow_label", "1048575", func(c *Config) { c.FlowLabels = []uint32{1 << 20} }},
		{"send_bw", "--use_hugepages", "leave one out", func(c *Config) { c.HugePages, c.File = true, "x" }},
		{"send_bw", "--mmap-offset", "add --mmap", func(c *Config) { c.FileOffset = 4096 }},
		{"send_bw", "--mmap-offset", "4096", func(c *Config) { c.FileOffset, c.File = 100, "x" }},
		{"send_bw", "--use_cuda", "leave -R out", func(c *Config) { c.GPU, c.CM, c.Connection = 0, true, UD }},
		{"send_bw", "--use_cuda", "leave --mmap", func(c *Config) { c.GPU, c.File = 0, "x" }},
		{"write_bw", "-T", "255", func(c *Config) { c.CM, c.TOS = true, 256 }},
		{"write_bw", "-T", "add -R", func(c *Config) { c.TOS = 4 }},
		{"write_bw", "--retry_count", "from 0 to 7", func(c *Config) { c.CM, c.Retries = true, 8 }},
		{"write_bw", "--retry_count", "add -R", func(c *Config) { c.Retries = 3 }},
		{"write_bw", "-c", "leave -R out", func(c *Config) { c.CM, c.Connection = true, UC }},
		{"atomic_bw", "-s", "leave -s out", func(c *Config) { c.Size = 16 }},
		{"atomic_bw", "-a", "leave -a out", func(c *Config) { c.All = true }},
		{"send_lat", "-q", "leave -q out", func(c *Config) { c.QPs = 2 }},
		{"send_lat", "-b", "leave -b out", func(c *Config) { c.Bidirectional = true }},
		{"send_lat", "-l", "leave -l out", func(c *Config) { c.PostList = 2 }},
		{"send_lat", "-N", "leave -N out", func(c *Config) { c.NoPeak = true }},
		{"send_lat", "--reversed", "both ways", func(c *Config) { c.Reversed = true }},
		{"send_lat", "--run_infinitely", "-D", func(c *Config) { c.Endless = true }},
		{"send_lat", "-w, -y", "bandwidth", func(c *Config) { c.LimitRate = 1 }},
		{"send_lat", "--report-both", "bandwidth", func(c *Config) { c.ReportBoth = true }},
		{"send_bw", "-H, -U", "latency", func(c *Config) { c.Sorted = true }},
		{"send_bw", "--histogram", "latency", func(c *Config) { c.Histogram = true }},
		{"send_bw", "--latency_gap", "latency", func(c *Config) { c.LatencyGap = 1 }},
		{"read_bw", "-I", "leave -I out", func(c *Config) { c.Inline = 10 }},
		{"send_bw", "-o", "leave -o out", func(c *Config) { c.OutReads = 4 }},
		{"write_bw", "-e", "send_bw", func(c *Config) { c.Events = true }},
		{"write_lat", "-e", "send_lat", func(c *Config) { c.Events = true }},
		{"send_bw", "-X", "add -e", func(c *Config) { c.Vector = 1 }},
		{"send_bw", "--perform_warm_up", "read_bw", func(c *Config) { c.WarmUp = true }},
		{"send_bw", "--report-both", "add -b", func(c *Config) { c.ReportBoth = true }},
		{"send_bw", "--reversed", "leave one", func(c *Config) { c.Reversed, c.Bidirectional = true, true }},
		{"send_bw", "--run_infinitely", "leave -a out", func(c *Config) { c.Endless, c.All = true, true }},
		{"send_bw", "--run_infinitely", "leave -e out", func(c *Config) { c.Endless, c.Events = true, true }},
		{"send_bw", "--run_infinitely", "not for messages that are received", func(c *Config) { c.Endless, c.Bidirectional = true, true }},
		{"send_bw", "-D", "leave -a out", func(c *Config) { c.Duration, c.All = time.Minute, true }},
		{"send_bw", "-D", "leave -e out", func(c *Config) { c.Duration, c.Events = time.Minute, true }},
		{"send_bw", "-D", "more than twice the margin", func(c *Config) { c.Duration, c.Margin = 4*time.Second, 2*time.Second }},
		{"send_bw", "-l", "-n 1000 is not a multiple of -l 3", func(c *Config) { c.PostList = 3 }},
		{"send_bw", "-l", "longer than the send queue (4)", func(c *Config) { c.PostList, c.TxDepth = 8, 4 }},
		{"send_bw", "-l", "leave -Q out", func(c *Config) { c.PostList, c.CQModeration = 4, 3 }},
		{"send_bw", "--use_cuda_bus_id", "leave one out", func(c *Config) { c.GPU, c.GPUBusID = 0, "0:1:0.0" }},
		{"send_bw", "--use_cuda_dmabuf", "add --use_cuda", func(c *Config) { c.DMABuf = true }},
		{"write_lat", "--use_cuda", "send_lat", func(c *Config) { c.GPU = 0 }},
		{"atomic_bw", "--use_cuda", "host memory", func(c *Config) { c.GPU = 0 }},
		{"send_bw", "-I", "leave -I out", func(c *Config) { c.GPU, c.Inline = 0, 8 }},
		{"send_bw", "--output", "want bandwidth", func(c *Config) { c.Format = "xml" }},
		{"send_lat", "--output", "latency or json", func(c *Config) { c.Format = "bandwidth" }},
		{"send_bw", "--output", "message_rate or json", func(c *Config) { c.Format = "latency" }},
		{"send_bw", "--force-link", "Ethernet", func(c *Config) { c.ForceLink = "x" }},
		{"send_bw", "--bind_source_ip", "IPv6", func(c *Config) { c.IPv6TCP, c.Source = true, "10.0.0.1" }},
	} {
		tool, _ := FindTool(b.tool)
		c := Default(tool.Operation, tool.Measure)
		b.set(&c)
		err := c.Check()
		var f *FlagError
		if !errors.As(err, &f) || f.Flag != b.flag || !strings.Contains(f.Text, b.text) {
			t.Errorf("%s %s: %v; want %q in it", b.tool, b.flag, err, b.text)
		}
	}
	c := Default(Send, Bandwidth)
	c.Connection, c.Size = UD, 4096
	if err := c.CheckMTU(2048); err == nil || !strings.Contains(err.Error(), "2048 bytes, not 4096") {
		t.Errorf("a datagram that is too large: %v", err)
	}
	if err := c.CheckMTU(4096); err != nil {
		t.Error(err)
	}
}

// TestRemarks: what perftest passes over is said.
func TestRemarks(t *testing.T) {
	c := Default(Write, Bandwidth)
	c.Iterations, c.Duration, c.RxDepth = 100, time.Minute, 5
	if got := c.Remarks(); !slices.Equal(got, []string{"-n does nothing with -D", "-r does nothing where nothing is received"}) {
		t.Errorf("%q", got)
	}
	c = Default(Write, Bandwidth)
	c.CM, c.FlowLabels = true, []uint32{7}
	if got := c.Remarks(); len(got) != 1 || !strings.Contains(got[0], "rdma_cm finds the path") {
		t.Errorf("%q", got)
	}
	c = Default(Send, Latency)
	c.TxDepth, c.CQModeration, c.Gbits, c.Margin, c.CPUUtil = 5, 5, true, 1, true
	if got := c.Remarks(); len(got) != 5 || c.Check() != nil {
		t.Errorf("%q, %v", got, c.Check())
	}
}
