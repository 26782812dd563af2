package verbs

import "github.com/assay-hpc/assay/coll/transport/slots"

// A Selection defines which ports Find uses, and which of their addresses.
type Selection struct {
	// HCA is the value of NCCL_IB_HCA: names separated by commas, each followed by a
	// colon and a port if only that port is meant. A name matches as a prefix; after a
	// leading = only whole names match. A leading ^ selects everything that does not
	// match. "" selects all.
	HCA         string
	GIDIndex    int  // in a port's GID table; -1: the best one
	RoCEVersion int  // preferred version of the address, 1 or 2; 0 stands for 2
	IPv6        bool // an IPv6 address is preferred to an IPv4 one

	Logf func(format string, args ...any) // logs the ports that are left out, and why; may be nil
}

// Params configure queue pairs. Each end has its own.
type Params struct {
	Timeout      int // a packet is sent again after 4.096 µs << Timeout without an answer; 1 to 31
	Retries      int // how many times it is sent again; 0 to 7
	ServiceLevel int // 0 to 15
	TrafficClass int // of the GRH, on RoCE the IP header's DSCP and ECN; 0 to 255
	PKeyIndex    int // in the port's table of partition keys

	// Only the sender's values count:

	QPs   int  // queue pairs of a connection; 0 stands for 1, at most MaxQPs
	Split bool // each message is split over all queue pairs; otherwise messages alternate between them

	// Adaptive 1: data longer than AdaptiveAbove, in bytes, is sent as a write, which
	// switches may route adaptively, followed by an empty write with immediate; 0: never;
	// -1: on InfiniBand, not on RoCE.
	Adaptive, AdaptiveAbove int
}

// maxQPs is the maximum number of queue pairs of a connection.
const maxQPs = 64

// Options configure an Endpoint. Net, Rank, Key and Fault must be given.
type Options struct {
	slots.Options
	Net    *Net // the Endpoint closes it, also when Open fails
	Params Params
}

// A PortInfo describes a port for logs.
type PortInfo struct {
	Device string
	Port   int
	Layer  string // IB or RoCE
	MTU    int    // bytes
	Mbit   int    // per second, as the kernel reports it; 0: unknown
	GID    string // its address with the index and kind, or its LID
}
