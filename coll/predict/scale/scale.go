// Package scale contains the formulas of docs/scale.md: the cost of a run over a whole cluster,
// in addition to the transfers that it measures, as a function of the number of nodes. The
// document's tables and curves and harness predict use them; tests compare them with measurements
// (docs/scale/*.csv).
package scale

import "math"

// A Cost is the cost of one run of the fabric suite, with one rank per node.
type Cost struct {
	Nodes       int         `json:"nodes"`
	Bootstrap   Bootstrap   `json:"bootstrap"`
	Gathering   Gathering   `json:"gathering"`
	Certificate Certificate `json:"certificate"`
	Hunt        Hunt        `json:"hunt"`
}

// Of returns the cost of a run on the given number of nodes.
func Of(nodes int) Cost {
	return Cost{nodes, bootstrapOf(nodes), gatheringOf(nodes), CertificateOf(nodes), huntOf(nodes)}
}

// Bootstrap is the meeting of all ranks at one root.
type Bootstrap struct {
	Ranks       int     `json:"ranks"`
	Levels      int     `json:"levels"`      // of the tree that connects them afterwards
	LinkEnds    int     `json:"linkEnds"`    // of all ranks, upper bound
	Connections int     `json:"connections"` // of the root, at the same time: file descriptors
	Messages    int     `json:"messages"`    // of the root
	Seconds     float64 `json:"seconds"`     // processor time of all ranks together
}

const (
	bootstrapFanout  = 4
	linksOfRank      = 4      // counting both ends, on average, upper bound
	rootMessages     = 3 + 4  // per rank: handshake, and reports and answers
	bootstrapSeconds = 1.2e-3 // per rank, both ends of its connections; measured
)

// bootstrapOf returns the cost for a job with the given number of ranks.
func bootstrapOf(ranks int) Bootstrap {
	return Bootstrap{
		Ranks: ranks, Levels: levels(ranks, bootstrapFanout), LinkEnds: linksOfRank * ranks, Connections: ranks,
		Messages: rootMessages * ranks, Seconds: bootstrapSeconds * float64(ranks),
	}
}

// Gathering is the transfer of all ranks' results to rank 0, as one summary.
type Gathering struct {
	Ranks          int     `json:"ranks"`
	Levels         int     `json:"levels"`
	Messages       int     `json:"messages"`       // of all ranks, each counted once
	MessagesOfRank int     `json:"messagesOfRank"` // sent and received, upper bound
	Bytes          float64 `json:"bytes"`          // of all ranks, each counted once
	BytesOfRank    float64 `json:"bytesOfRank"`    // sent and received, upper bound
	Seconds        float64 `json:"seconds"`        // processor time of all ranks together
}

// The size of a summary depends on the checks and hardly on the number of ranks. These are for 12
// checks of 8 GPUs.
const (
	gatherFanout  = 8
	leafBytes     = 3.15e3  // one rank's summary
	innerBytes    = 7.1e3   // several ranks' summary
	gatherSeconds = 0.45e-3 // per rank
)

// gatheringOf returns the cost for a job with the given number of ranks.
func gatheringOf(ranks int) Gathering {
	inner := (ranks + gatherFanout - 2) / gatherFanout // ranks with others below them, including rank 0
	return Gathering{
		Ranks: ranks, Levels: levels(ranks, gatherFanout), Messages: 4 * (ranks - 1),
		MessagesOfRank: 4 * min(gatherFanout+1, ranks-1), Seconds: gatherSeconds * float64(ranks),
		Bytes:       leafBytes*float64(ranks-max(inner, 1)) + innerBytes*float64(max(inner-1, 0)),
		BytesOfRank: innerBytes*float64(min(gatherFanout+1, max(inner-1, 0))) + leafBytes*float64(min(gatherFanout, ranks-1)-min(gatherFanout, max(inner-1, 0))),
	}
}

// Certificate is the size of the final certificate of a run.
type Certificate struct {
	Nodes    int     `json:"nodes"`
	Bytes    float64 `json:"bytes"`    // of the cluster's certificate, with a result for each node
	Embedded float64 `json:"embedded"` // if it included all certificates of the nodes
}

const (
	certificateBytes = 310    // per node, in the cluster's certificate
	nodeBytes        = 28.5e3 // of a node's own certificate: 12 checks of 8 GPUs
)

// mostInside is the total size up to which the nodes' own certificates are included in the
// cluster's.
const mostInside = 16 << 20

// CertificateOf returns the size for the given number of nodes.
func CertificateOf(nodes int) Certificate {
	c := Certificate{nodes, certificateBytes * float64(nodes), nodeBytes * float64(nodes)}
	if c.Embedded <= mostInside {
		c.Bytes += c.Embedded
	}
	return c
}

// Hunt is the search for slow nodes.
type Hunt struct {
	Nodes        int     `json:"nodes"`
	Rounds       float64 `json:"rounds"`       // if no node is slow
	RoundsFault  float64 `json:"roundsFault"`  // if a node has half its rate
	Bound        int     `json:"bound"`        // maximum number of rounds, with a fault; tests check simulated hunts against it
	Measurements float64 `json:"measurements"` // with a fault
	Seconds      float64 `json:"seconds"`      // with a fault
}

// RoundSeconds is the duration of a round of the hunt: one measurement, for all pairs at once.
const RoundSeconds = 2

// huntOf returns the cost for the given number of nodes. The number of rounds grows with the
// logarithm of the number of questions that must not be answered wrongly by chance.
func huntOf(nodes int) Hunt {
	log := math.Log2(float64(max(nodes, 2)))
	h := Hunt{Nodes: nodes, Rounds: 6 + 1.25*log, RoundsFault: 9.5 + 1.5*log, Bound: 36 + 2*int(math.Ceil(log))}
	if nodes < 16 { // each pair is measured three times
		h.Rounds, h.RoundsFault, h.Bound = float64(3*max(nodes-1+nodes%2, 1)), 30, 60
	}
	h.Measurements = h.RoundsFault * float64(nodes)
	h.Seconds = RoundSeconds * h.RoundsFault
	return h
}

// levels returns the depth of a tree in which the parent of rank r is (r-1)/fanout.
func levels(ranks, fanout int) (n int) {
	for r := ranks - 1; r > 0; r = (r - 1) / fanout {
		n++
	}
	return n
}
