package probe

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// A Table writes what perftest writes: header, addresses, and a line for each size as soon as it is
// known. Our own lines begin with "# " and follow the table, so that a parser of lines that begin
// with a number ignores them.
type Table struct {
	c      *Config
	out    io.Writer
	later  strings.Builder // text after the table
	headed bool            // the column heads have been written
	failed error
}

// Table writes to out in the Config's Format, which must not be json.
func (c *Config) Table(out io.Writer) *Table { return &Table{c: c, out: out} }

const ruler = "---------------------------------------------------------------------------------------\n"

// The column heads, and the formats of the lines.
const (
	headBW       = " #bytes     #iterations    BW peak[%[1]s/sec]    BW average[%[1]s/sec]   MsgRate[Mpps]"
	headCPU      = "    CPU_Util[%]"
	headLat      = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
	headTimedLat = " #bytes        #iterations       t_avg[usec]    tps average"
	lineBW       = " %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f"
	lineSmallBW  = " %-7d    %d           %-7.6f            %-7.6f            %-7.6f"
	lineCPU      = "\t    %-3.2f"
	lineLat      = " %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f"
	lineTimedLat = " %-7d       %d            %-7.2f        %-7.2f"
)

// smallGbits is the bandwidth in Gb/s below which more digits are printed.
const smallGbits = 0.1

// write stores the first error, for Close.
func (t *Table) write(s string) {
	if t.failed == nil {
		_, t.failed = io.WriteString(t.out, s)
	}
}

// Waiting writes the message of a server that waits for its client.
func (t *Table) Waiting(string) {
	if t.c.Format == "" {
		const stars = "************************************\n"
		t.write("\n" + stars + "* Waiting for client to connect... *\n" + stars)
	}
}

// Header writes everything above the lines.
func (t *Table) Header(i Info) {
	if t.c.Format != "" {
		return
	}
	t.write(ruler + t.c.about(i) + ruler + t.c.addresses(i) + ruler)
	if t.c.prints() && !t.c.ReportBoth {
		t.heads()
	}
}

// prints reports whether there will be lines: the passive side of a latency test of reads or
// atomics has none.
func (c *Config) prints() bool { return c.Measure == Bandwidth || c.Sends() }

// about is the block that describes the test.
func (c *Config) about(i Info) string {
	var b strings.Builder
	sends, receives := c.Sends(), c.Receives() && (!c.Sends() || c.Bidirectional || c.Measure == Latency)
	line := func(when bool, format string, a ...any) {
		if when {
			fmt.Fprintf(&b, " "+format+"\n", a...)
		}
	}
	fmt.Fprintf(&b, "                    %s Test\n", strings.Join(c.title(), " "))
	line(c.Events, "Test with events. Using %s_comp%d", i.Device, max(0, c.Vector))
	line(true, "Dual-port       : OFF\t\tDevice         : %s", i.Device)
	line(true, "Number of qps   : %d\t\tTransport type : %s", c.QPs, i.Transport)
	line(true, "Connection type : %v\t\tUsing SRQ      : %s", c.Connection, onOff(c.SRQ))
	line(true, "PCIe relax order: %s", onOff(i.Relaxed))
	line(true, "ibv_wr* API     : OFF")
	line(sends, "TX depth        : %d", i.TxDepth)
	line(c.PostList > 1, "Post List       : %d", c.PostList)
	line(c.RecvList > 1, "Recv Post List  : %d", c.RecvList)
	line(receives, "RX depth        : %d", i.RxDepth)
	line(c.Measure == Bandwidth, "CQ Moderation   : %d", i.CQModeration)
	line(true, "Mtu             : %d[B]", i.MTU)
	line(true, "Link type       : %s", i.Link)
	line(i.GIDIndex >= 0, "GID index       : %d", i.GIDIndex)
	reads := c.Operation == Read || c.Operation == Atomic
	line(reads, "Outstand reads  : %d", i.OutReads)
	line(!reads && sends, "Max inline data : %d[B]", i.Inline)
	line(true, "rdma_cm QPs\t : %s", onOff(c.CM))
	line(true, "Data ex. method : %s", c.exchange()+c.tos())
	return b.String()
}

// exchange is the method of exchange between the two sides, in perftest's words.
func (c *Config) exchange() string {
	if c.ControlsByCM() {
		return "rdma_cm"
	}
	return "Ethernet"
}

func (c *Config) tos() string {
	if c.TOS < 0 {
		return ""
	}
	return fmt.Sprintf(" \tTOS    : %d", c.TOS)
}

// title is the test's name in words.
func (c *Config) title() (words []string) {
	name := [...]string{"RDMA_Write", "RDMA_Read", "Send", "Atomic"}[c.Operation]
	if c.Immediate {
		name += "_imm"
	}
	words = append(words, name)
	if c.Bidirectional {
		words = append(words, "Bidirectional")
	}
	if c.PostList > 1 {
		words = append(words, "Post List")
	}
	if c.Measure == Latency {
		return append(words, "Latency")
	}
	return append(words, "BW")
}

func onOff(v bool) string {
	if v {
		return "ON"
	}
	return "OFF"
}

// addresses are the lines of the queue pairs, this side's first.
func (c *Config) addresses(i Info) string {
	var b strings.Builder
	for _, side := range []struct {
		name string
		all  []wire.Address
	}{{"local", i.Local}, {"remote", i.Remote}} {
		for _, a := range side.all {
			b.WriteString(c.address(side.name, a))
		}
	}
	return b.String()
}

func (c *Config) address(side string, a wire.Address) string {
	var b strings.Builder
	fmt.Fprintf(&b, " %s address: LID %s QPN %s PSN %s", side, chex(4, uint64(a.LID)), chex(6, uint64(a.QPN)), chex(6, uint64(a.PSN)))
	if c.Operation == Read || c.Operation == Atomic {
		fmt.Fprintf(&b, " OUT %s", chex(4, uint64(a.OutReads)))
	}
	if c.Operation != Send {
		fmt.Fprintf(&b, " RKey %s VAddr %s", chex(8, uint64(a.RKey)), chex(16, a.VAddr))
	}
	b.WriteByte('\n')
	if a.HasGID {
		var parts []string
		for _, g := range a.GID {
			parts = append(parts, fmt.Sprintf("%02d", g)) // perftest prints them in decimal
		}
		fmt.Fprintf(&b, " GID: %s\n", strings.Join(parts, ":"))
	}
	return b.String()
}

// chex is C's %#0Nx: the width includes the 0x, which is omitted for zero.
func chex(width int, v uint64) string {
	if v == 0 {
		return strings.Repeat("0", width)
	}
	return fmt.Sprintf("0x%0*x", width-2, v)
}

// heads writes the column names, once.
func (t *Table) heads() {
	if t.headed || t.c.Format != "" {
		return
	}
	t.headed = true
	t.write(t.c.heads())
}

func (c *Config) heads() string {
	switch {
	case c.Measure == Latency && c.Duration > 0:
		return strings.ReplaceAll(headTimedLat, "usec", c.latencyUnit()) + "\n"
	case c.Measure == Latency:
		return strings.ReplaceAll(headLat, "usec", c.latencyUnit()) + "\n"
	}
	u := "MB"
	if c.Gbits {
		u = "Gb"
	}
	head := fmt.Sprintf(headBW, u)
	if c.showsCPU() {
		head += headCPU
	}
	return head + "\n"
}

func (c *Config) showsCPU() bool { return c.CPUUtil && c.Duration > 0 }

// Row writes a line of results.
func (t *Table) Row(r Row) {
	switch {
	case t.c.Format != "":
		t.write(t.c.bare(r))
	case t.c.ReportBoth && r.Local != nil && r.Remote != nil:
		for _, d := range []struct {
			name string
			r    *BandwidthResult
		}{{"Local", r.Local}, {"Remote", r.Remote}} {
			t.write(fmt.Sprintf("\n %s results: \n", d.name) + ruler + t.c.heads() + t.c.bandwidth(d.r) + ruler)
		}
	case r.Bandwidth != nil:
		t.heads()
		t.write(t.c.bandwidth(r.Bandwidth))
	case r.Latency != nil:
		t.heads()
		t.write(t.c.samples(r.Latency) + t.c.latency(r.Latency))
	}
	t.counters(r)
	if r.Latency != nil && t.c.Histogram && t.c.Format == "" {
		t.later.WriteString(histogramText(r.Latency))
	}
}

// bare is the single number that --output requests.
func (c *Config) bare(r Row) string {
	switch {
	case c.Format == "bandwidth" && r.Bandwidth != nil:
		return fmt.Sprintf("%f\n", r.Bandwidth.Average/unit(c.Gbits))
	case c.Format == "message_rate" && r.Bandwidth != nil:
		return fmt.Sprintf("%f\n", r.Bandwidth.Rate/million)
	case c.Format == "latency" && r.Latency != nil:
		return fmt.Sprintf("%f\n", c.inUnit(r.Latency, r.Latency.Average))
	}
	return ""
}

func (c *Config) bandwidth(r *BandwidthResult) string {
	u := unit(c.Gbits)
	format := lineBW
	if c.Gbits && r.Average/u < smallGbits {
		format = lineSmallBW
	}
	line := fmt.Sprintf(format, r.Bytes, r.Iterations, r.Peak/u, r.Average/u, r.Rate/million)
	if c.showsCPU() {
		line += fmt.Sprintf(lineCPU, r.CPU)
	}
	return line + "\n"
}

// latencyUnit is the unit of latencies in the table: with -C the cycles of the processor's counter.
func (c *Config) latencyUnit() string {
	if c.Cycles {
		return "cycles"
	}
	return "usec"
}

// inUnit converts nanoseconds to latencyUnit.
func (c *Config) inUnit(r *LatencyResult, ns float64) float64 {
	if c.Cycles {
		return ns * r.Cycles
	}
	return ns / 1e3
}

func (c *Config) latency(r *LatencyResult) string {
	us := func(ns float64) float64 { return c.inUnit(r, ns) }
	if c.Duration > 0 {
		return fmt.Sprintf(lineTimedLat, r.Bytes, r.Iterations, us(r.Average), r.TPS) + "\n"
	}
	return fmt.Sprintf(lineLat, r.Bytes, r.Iterations, us(r.Min), us(r.Max), us(r.Typical), us(r.Average), us(r.Stdev), us(r.P99), us(r.P999)) + "\n"
}

// Close writes everything after the lines and returns the first error.
func (t *Table) Close() error {
	if t.c.Format == "" {
		if !t.c.ReportBoth {
			t.write(ruler)
		}
		t.write(t.later.String())
	}
	return t.failed
}
