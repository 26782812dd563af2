// Package probe measures bandwidth and latency between two hosts over RDMA, as
// linux-rdma/perftest's tools do, and against them: ib_write_bw and the seven
// others of their kind. It has the options of a test, their effective values
// under perftest's rules, the statistics, and the output; package wire is how
// two sides talk. docs/ib.md is for users.
package probe

import (
	"time"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// An Operation is what is measured.
type Operation int

const (
	Write  Operation = iota // RDMA write
	Read                    // RDMA read
	Send                    // send and receive
	Atomic                  // 8-byte atomics
)

func (o Operation) String() string { return [...]string{"write", "read", "send", "atomic"}[o] }

// A Measure is what is measured of it.
type Measure int

const (
	Bandwidth Measure = iota
	Latency
)

func (m Measure) String() string { return [...]string{"bw", "lat"}[m] }

// A Connection is a queue pair's service.
type Connection int

const (
	RC Connection = iota // reliable connection
	UC                   // unreliable connection
	UD                   // unreliable datagram
)

func (c Connection) String() string { return [...]string{"RC", "UC", "UD"}[c] }

// Config is one side of a test. Default fills in what perftest does unless it
// is told otherwise; where that follows from other options the zero value
// stands for it, and a method (Iters, SendDepth, CQMod, …) gives what it comes
// to. The flag is named behind each field.
type Config struct {
	Operation Operation
	Measure   Measure

	// The control channel.
	Host    string        // the server's name or address; empty: this is the server
	Port    int           // -p: TCP port; 0 lets a server's system choose, Events.Waiting tells
	IPv6TCP bool          // --ipv6-addr: control over IPv6
	Source  string        // --source_ip: local address to connect from; empty: by route
	Wait    time.Duration // --wait: how long a client goes on trying to connect
	Timeout time.Duration // --timeout: of an exchange with the peer; 0: 30 s

	// Connections by rdma_cm.
	CM        bool // -R: of the queue pairs, and of the control channel
	ControlCM bool // -z: of the control channel
	TOS       int  // -T: type of service; -1: none
	Retries   int  // --retry_count: of a request, and of one that found no receive

	// The way through the network.
	Device     string   // -d: empty: the first one
	IBPort     int      // -i
	MTU        int      // -m: bytes; 0: the port's active one
	GIDIndex   int      // -x: -1: by rule
	IPv6       bool     // --ipv6: prefer GIDs that are not IPv4-mapped
	ForceLink  string   // --force-link: "IB" or "Ethernet"; empty: the port's
	SL         int      // -S: service level
	TClass     int      // --tclass: traffic class of the GRH
	PKeyIndex  int      // --pkey_index
	FlowLabels []uint32 // --flow_label: of the GRH, one QP's after the other's; none: 0
	DLID       int      // --dlid: 0: the peer's

	// Queue pairs.
	Connection   Connection // -c
	QPs          int        // -q
	TxDepth      int        // -t: 0: see SendDepth
	RxDepth      int        // -r: 0: see ReceiveDepth
	CQModeration int        // -Q: 0: see CQMod
	PostList     int        // -l: sends posted at a time; 1: one by one
	RecvList     int        // --recv_post_list: receives posted at a time; 1: one by one
	SRQ          bool       // --use-srq: one receive queue for all
	Inline       int        // -I: bytes; -1: see InlineSize
	OutReads     int        // -o: reads in flight; 0: the device's maximum
	AckTimeout   int        // -u: 4.096 µs * 2^this
	Events       bool       // -e: sleep instead of polling
	Vector       int        // -X: completion vector; -1: none chosen
	Relaxed      bool       // --disable_pcie_relaxed turns it off; see RelaxedOrdering

	// The data.
	Size       uint64 // -s: bytes; 0: see MessageSize
	All        bool   // -a: 2, 4, 8, … bytes to 8 MiB
	HugePages  bool   // --use_hugepages
	File       string // --mmap: memory is this file's; empty: the process's own
	FileOffset uint64 // --mmap-offset
	GPU        int    // --use_cuda: CUDA's index; -1: host memory
	GPUBusID   string // --use_cuda_bus_id: PCI address instead of an index
	DMABuf     bool   // --use_cuda_dmabuf: register GPU memory by dma-buf

	// Allocate allocates n bytes of memory of the GPU that c names (GPU, GPUBusID), with
	// a DMA buffer if c has DMABuf; nil: this program has no code for GPUs.
	Allocate func(c *Config, n int) (*Memory, error) `json:"-"`

	// How long.
	Iterations uint64        // -n: 0: see Iters
	Duration   time.Duration // -D: 0: Iterations counts; whole seconds
	Margin     time.Duration // -f: before and behind what is sampled; -1: a quarter of the duration
	Endless    bool          // --run_infinitely
	WarmUp     bool          // --perform_warm_up

	// What is done.
	CompareAndSwap bool          // -A: instead of fetch and add
	Bidirectional  bool          // -b
	Reversed       bool          // --reversed: the server sends
	LatencyGap     time.Duration // --latency_gap: pause before each message
	WaitDestroy    time.Duration // --wait_destroy: pause before queue pairs are destroyed

	// What is reported.
	NoPeak     bool     // -N
	Gbits      bool     // --report_gbits: Gb/s instead of MiB/s
	ReportBoth bool     // --report-both: both directions apart
	Sorted     bool     // -H: every latency, sorted
	Unsorted   bool     // -U: every latency, as they came
	Histogram  bool     // --histogram: percentiles and buckets behind the table
	CPUUtil    bool     // --cpu_util
	Counters   []string // -W: the port's counters whose change is shown
	JSONFile   string   // --out_json, --out_json_file: perftest's JSON; empty: none
	LimitBW    float64  // -w: least average bandwidth, in the table's unit; 0: none
	LimitRate  float64  // --limit_msgrate (-y): least rate, Mpps; 0: none

	// Format is what stdout gets (--output): the average alone, in the table's unit
	// ("bandwidth"), the message rate alone, Mpps ("message_rate"), the average alone,
	// microseconds ("latency"), one document of our own ("json"); perftest's table ("").
	Format string

	// Notes are remarks about options that were taken and do nothing.
	Notes []string
}

// Default is a tool without any flag.
func Default(op Operation, m Measure) Config {
	return Config{
		Operation: op, Measure: m, Port: wire.DefaultPort, IBPort: 1, GIDIndex: -1, QPs: 1, PostList: 1, RecvList: 1,
		Inline: -1, AckTimeout: defaultAckTimeout, TOS: -1, Retries: defaultRetries, Vector: -1, Relaxed: true, GPU: -1, Margin: -1,
	}
}

// A Tool is one of the programs.
type Tool struct {
	Name      string // "write_bw"; perftest's is ib_write_bw
	Operation Operation
	Measure   Measure
}

// Tools are all eight.
func Tools() (out []Tool) {
	for _, m := range []Measure{Bandwidth, Latency} {
		for _, op := range []Operation{Write, Read, Send, Atomic} {
			out = append(out, Tool{op.String() + "_" + m.String(), op, m})
		}
	}
	return out
}

// FindTool finds one by its name.
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

// Role is this side's on the control channel.
func (c *Config) Role() wire.Role { return wire.Role(c.Host != "") }

// ControlsByCM reports whether the control channel is one of rdma_cm.
func (c *Config) ControlsByCM() bool { return c.CM || c.ControlCM }

// Sends reports whether this side generates traffic: the client does, or with
// --reversed the server, and in both directions both. Reads and atomics are
// their initiator's traffic, also where the data flows to it.
func (c *Config) Sends() bool {
	switch {
	case c.Bidirectional, c.Measure == Latency && (c.Operation == Write || c.Operation == Send):
		return true
	}
	return (c.Role() == wire.Client) != c.Reversed
}
