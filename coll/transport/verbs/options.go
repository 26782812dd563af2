package verbs

import "github.com/assay-hpc/assay/coll/transport/slots"

// A Selection says which ports Find takes, and which of their addresses.
type Selection struct {
	// HCA is NCCL_IB_HCA: names with commas between them, each with a port
	// after a colon if only that one is meant. They are beginnings of names;
	// after a = whole names. After a ^ all others. "" is all.
	HCA         string
	GIDIndex    int  // of a port's table of addresses; -1: the best one
	RoCEVersion int  // of the address, 1 or 2, if there is one of it; 0 stands for 2
	IPv6        bool // an IPv6 address is better than an IPv4 one

	Logf func(format string, args ...any) // ports that are left out, and why; may be nil
}

// Params say how queue pairs are to be. Both ends have their own.
type Params struct {
	Timeout      int // 4.096 µs << Timeout without an answer until a packet is sent again; 1 to 31
	Retries      int // so many times; 0 to 7
	ServiceLevel int // 0 to 15
	TrafficClass int // of the GRH, on RoCE the IP header's DSCP and ECN; 0 to 255
	PKeyIndex    int // in the port's table of partition keys

	// As the sender says:

	QPs   int  // queue pairs of a connection; 0 stands for 1, at most MaxQPs
	Split bool // each message goes over all queue pairs in parts; else they take turns

	// Adaptive: 1: what is longer than AdaptiveAbove, in bytes, is a write,
	// which switches may route adaptively, and a write with immediate of nothing
	// behind it; 0: that is never done; -1: on InfiniBand, not on RoCE.
	Adaptive, AdaptiveAbove int
}

// MaxQPs is how many queue pairs a connection can have.
const MaxQPs = 64

// Options say how an Endpoint is to be. Net, Rank, Key and Fault must be given.
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
	Mbit   int    // a second, as the kernel says; 0: it does not
	GID    string // its address with the index and kind, or its LID
}
