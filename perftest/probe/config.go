// Package probe measures bandwidth and latency between two hosts over RDMA, like the tools of
// linux-rdma/perftest, and with them as peers: ib_write_bw and the seven others of its kind. It
// contains the options of a test, their effective values under perftest's rules, the statistics,
// and the output; package wire is the protocol between the two sides. docs/ib.md is for users.
package probe

import (
	"time"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// An Operation is the RDMA operation that is measured.
type Operation int

const (
	Write  Operation = iota // RDMA write
	Read                    // RDMA read
	Send                    // send and receive
	Atomic                  // 8-byte atomics
)

func (o Operation) String() string { return [...]string{"write", "read", "send", "atomic"}[o] }

// A Measure is the measured quantity.
type Measure int

const (
	Bandwidth Measure = iota
	Latency
)

func (m Measure) String() string { return [...]string{"bw", "lat"}[m] }

// A Connection is the transport service of a queue pair.
type Connection int

const (
	RC Connection = iota // reliable connection
	UC                   // unreliable connection
	UD                   // unreliable datagram
)

func (c Connection) String() string { return [...]string{"RC", "UC", "UD"}[c] }

// Config is one side of a test. Default fills in perftest's defaults. If a default depends on other
// options, the field is zero and a method (Iters, SendDepth, CQMod, …) returns the effective value.
// Each field's comment names its flag.
type Config struct {
	Operation Operation
	Measure   Measure

	// The control channel.
	Host    string        // the server's name or address; empty: this side is the server
	Port    int           // -p: TCP port; 0: a server's system chooses, Events.Waiting reports it
	IPv6TCP bool          // --ipv6-addr: control over IPv6
	Source  string        // --bind_source_ip: local address to connect from; empty: by route
	Wait    time.Duration // --wait: how long a client retries to connect; how long a server waits for a client, 0: 1 h
	Timeout time.Duration // --timeout: for one exchange with the peer; 0: 30 s

	// Connections by rdma_cm.
	CM        bool // -R: for the queue pairs and the control channel
	ControlCM bool // -z: for the control channel
	TOS       int  // -T: type of service; -1: none
	Retries   int  // --retry_count: retries of a request, also if the receiver is not ready

	// The path through the network.
	Device     string   // -d: empty: the first one
	IBPort     int      // -i
	MTU        int      // -m: bytes; 0: the port's active MTU
	GIDIndex   int      // -x: -1: chosen by rule
	IPv6       bool     // --ipv6: prefer GIDs that are not IPv4-mapped
	ForceLink  string   // --force-link: "IB" or "Ethernet"; empty: the port's
	SL         int      // -S: service level
	TClass     int      // --tclass: traffic class of the GRH
	PKeyIndex  int      // --pkey_index
	FlowLabels []uint32 // --flow_label: of the GRH, used by the QPs in turn; none: 0
	DLID       int      // --dlid: 0: the peer's LID

	// Queue pairs.
	Connection   Connection // -c
	QPs          int        // -q
	TxDepth      int        // -t: 0: see SendDepth
	RxDepth      int        // -r: 0: see ReceiveDepth
	CQModeration int        // -Q: 0: see CQMod
	PostList     int        // -l: sends posted at once; 1: one by one
	RecvList     int        // --recv_post_list: receives posted at once; 1: one by one
	SRQ          bool       // --use-srq: one receive queue for all QPs
	Inline       int        // -I: bytes; -1: see InlineSize
	OutReads     int        // -o: reads in flight; 0: the device's maximum
	AckTimeout   int        // -u: 4.096 µs * 2^this
	Events       bool       // -e: sleep instead of polling
	Vector       int        // -X: completion vector; -1: none chosen
	Relaxed      bool       // --disable_pcie_relaxed turns it off; see RelaxedOrdering
	EachMR       bool       // --mr_per_qp: memory regions of each QP
	OnDemand     bool       // --odp: pages are not locked, but mapped on demand
	PollBatch    int        // --cqe_poll: completions taken at a time
	Cores        []int      // --pin_cores: processors that the measurement runs on; none: any
	NUMANode     int        // --numa_node: the node whose processors it runs on; -1: any
	NoReorder    bool       // --no_enhanced_reorder: told to the peer, which compares it

	// The data.
	Size       uint64 // -s: bytes; 0: see MessageSize
	All        bool   // -a: 2, 4, 8, … bytes to 8 MiB
	HugePages  bool   // --use_hugepages
	File       string // --mmap: use this file's memory; empty: the process's own
	FileOffset uint64 // --mmap-offset
	Payload    string // --payload_file_path: file with the words that fill the buffer; empty: zeros
	GPU        int    // --use_cuda: CUDA's index; -1: host memory
	GPUBusID   string // --use_cuda_bus_id: PCI address instead of an index
	DMABuf     bool   // --use_cuda_dmabuf: register GPU memory as a DMA buffer

	// Allocate allocates n bytes of memory on the GPU that c selects (GPU, GPUBusID), with a DMA
	// buffer if c.DMABuf is set; nil: this program was built without GPU support.
	Allocate func(c *Config, n int) (*Memory, error) `json:"-"`

	// Length of the test.
	Iterations uint64        // -n: 0: see Iters
	Duration   time.Duration // -D: in whole seconds; 0: Iterations applies
	Margin     time.Duration // -f: before and after the sampled time; -1: a quarter of the duration
	Endless    bool          // --run_infinitely
	WarmUp     bool          // --perform_warm_up

	// Kind of traffic.
	CompareAndSwap bool          // -A: instead of fetch and add
	Immediate      bool          // --write_with_imm, --send_with_imm: messages carry immediate data
	Bidirectional  bool          // -b
	Reversed       bool          // --reversed: the server sends
	LatencyGap     time.Duration // --latency_gap: pause before each message
	Rate           float64       // --rate_limit: of sends, in RateUnit; 0: none
	RateUnit       string        // --rate_units: "g" Gb/s, "M" MiB/s, "p" messages/s
	RateType       string        // --rate_limit_type: "SW"
	Burst          int           // --burst_size: messages at a time under Rate; 0: SendDepth
	WaitDestroy    time.Duration // --wait_destroy: pause before queue pairs are destroyed

	// Output.
	NoPeak     bool     // -N
	Gbits      bool     // --report_gbits: Gb/s instead of MiB/s
	ReportBoth bool     // --report-both: show both directions separately
	Cycles     bool     // -C: latencies in cycles of the processor's counter
	Sorted     bool     // -H: every latency, sorted
	Unsorted   bool     // -U: every latency, in order of arrival
	Histogram  bool     // --histogram: percentiles and buckets after the table
	CPUUtil    bool     // --cpu_util
	Counters   []string // -W: counters of the port of which the change is shown
	JSONFile   string   // --out_json, --out_json_file: perftest's JSON; empty: none
	LimitBW    float64  // -w: minimum average bandwidth, in the table's unit; 0: none
	LimitRate  float64  // --limit_msgrate (-y): minimum rate, Mpps; 0: none

	// Format selects what is written to stdout (--output): only the average, in the table's unit
	// ("bandwidth"); only the message rate, Mpps ("message_rate"); only the average, microseconds
	// ("latency"); a document in our own format ("json"); perftest's table ("").
	Format string

	// Notes are remarks about options that are accepted but have no effect.
	Notes []string
}

// Default is the configuration of a tool without flags.
func Default(op Operation, m Measure) Config {
	return Config{
		Operation: op, Measure: m, Port: wire.DefaultPort, IBPort: 1, GIDIndex: -1, QPs: 1, PostList: 1, RecvList: 1,
		Inline: -1, AckTimeout: defaultAckTimeout, TOS: -1, Retries: defaultRetries, Vector: -1, Relaxed: true, GPU: -1, Margin: -1,
		PollBatch: defaultPollBatch, NUMANode: -1, RateUnit: "g",
	}
}

// A Tool is one of the programs.
type Tool struct {
	Name      string // "write_bw"; perftest's is ib_write_bw
	Operation Operation
	Measure   Measure
}

// Tools returns all eight tools.
func Tools() (out []Tool) {
	for _, m := range []Measure{Bandwidth, Latency} {
		for _, op := range []Operation{Write, Read, Send, Atomic} {
			out = append(out, Tool{op.String() + "_" + m.String(), op, m})
		}
	}
	return out
}

// ToolNames returns the tools' names.
func ToolNames() (names []string) {
	for _, t := range Tools() {
		names = append(names, t.Name)
	}
	return names
}

// FindTool finds a tool by its name.
func FindTool(name string) (Tool, bool) {
	for _, t := range Tools() {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

// Tool is the program's name, such as write_bw.
func (c *Config) Tool() string { return c.Operation.String() + "_" + c.Measure.String() }

// Role is this side's role on the control channel.
func (c *Config) Role() wire.Role { return wire.Role(c.Host != "") }

// ControlsByCM reports whether the control channel uses rdma_cm.
func (c *Config) ControlsByCM() bool { return c.CM || c.ControlCM }

// Receives reports whether arriving messages consume receives.
func (c *Config) Receives() bool {
	return c.Operation == Send || c.Operation == Write && c.Immediate
}

// Sends reports whether this side generates traffic: the client does, the server with --reversed,
// and both in both directions. Reads and atomics count as their initiator's traffic, even if the
// data flows to it.
func (c *Config) Sends() bool {
	switch {
	case c.Bidirectional, c.Measure == Latency && (c.Operation == Write || c.Operation == Send):
		return true
	}
	return (c.Role() == wire.Client) != c.Reversed
}
