// Package scale is the arithmetic of docs/scale.md: what a run over a whole
// cluster costs beside the transfers that it measures, as formulas of the
// number of nodes. The document's tables and curves and harness predict use
// them; tests hold them against what was measured (docs/scale/*.csv).
package scale

import "math"

// A Cost is that of one run of the fabric suite, which has one rank a node.
type Cost struct {
	Nodes       int         `json:"nodes"`
	Bootstrap   Bootstrap   `json:"bootstrap"`
	Gathering   Gathering   `json:"gathering"`
	Certificate Certificate `json:"certificate"`
	Hunt        Hunt        `json:"hunt"`
}

// Of is what a run on so many nodes costs.
func Of(nodes int) Cost {
	return Cost{nodes, BootstrapOf(nodes), GatheringOf(nodes), CertificateOf(nodes), HuntOf(nodes)}
}

// Bootstrap is the meeting of all ranks at one root.
type Bootstrap struct {
	Ranks       int     `json:"ranks"`
	Levels      int     `json:"levels"`      // of the tree that joins them then
	LinkEnds    int     `json:"linkEnds"`    // of all ranks, at most
	Connections int     `json:"connections"` // of the root, at once: file descriptors
	Messages    int     `json:"messages"`    // of the root
	Seconds     float64 `json:"seconds"`     // of processor time of all ranks together
}

const (
	bootstrapFanout  = 4
	linksOfRank      = 4      // both ends counted, on average, at most
	rootMessages     = 3 + 4  // of a rank's: handshake, and reports and answers
	bootstrapSeconds = 1.2e-3 // of a rank, both ends of its connections; measured
)

// BootstrapOf is a job's of so many ranks.
func BootstrapOf(ranks int) Bootstrap {
	return Bootstrap{
		Ranks: ranks, Levels: levels(ranks, bootstrapFanout), LinkEnds: linksOfRank * ranks, Connections: ranks,
		Messages: rootMessages * ranks, Seconds: bootstrapSeconds * float64(ranks),
	}
}

// Gathering is all ranks' results brought to rank 0 as one summary.
type Gathering struct {
	Ranks          int     `json:"ranks"`
	Levels         int     `json:"levels"`
	Messages       int     `json:"messages"`       // of all, each counted once
	MessagesOfRank int     `json:"messagesOfRank"` // sent and received, at most
	Bytes          float64 `json:"bytes"`          // of all, each counted once
	BytesOfRank    float64 `json:"bytesOfRank"`    // sent and received, at most
	Seconds        float64 `json:"seconds"`        // of processor time of all ranks together
}

// The size of a summary follows from the checks, hardly from the ranks: these
// are of 12 checks of 8 GPUs.
const (
	gatherFanout  = 8
	leafBytes     = 3.15e3  // one rank's summary
	innerBytes    = 7.1e3   // several ranks' summary
	gatherSeconds = 0.45e-3 // of a rank
)

// GatheringOf is a job's of so many ranks.
func GatheringOf(ranks int) Gathering {
	inner := (ranks + gatherFanout - 2) / gatherFanout // ranks with others under them, rank 0 among them
	return Gathering{
		Ranks: ranks, Levels: levels(ranks, gatherFanout), Messages: 4 * (ranks - 1),
		MessagesOfRank: 4 * min(gatherFanout+1, ranks-1), Seconds: gatherSeconds * float64(ranks),
		Bytes:       leafBytes*float64(ranks-max(inner, 1)) + innerBytes*float64(max(inner-1, 0)),
		BytesOfRank: innerBytes*float64(min(gatherFanout+1, max(inner-1, 0))) + leafBytes*float64(min(gatherFanout, ranks-1)-min(gatherFanout, max(inner-1, 0))),
	}
}

// Certificate is the size of what a run ends with.
type Certificate struct {
	Nodes    int     `json:"nodes"`
	Bytes    float64 `json:"bytes"`    // the cluster's, with a result for each node
	Embedded float64 `json:"embedded"` // if it held all of the nodes' own
}

const (
	certificateBytes = 310    // of a node in the cluster's certificate
	nodeBytes        = 28.5e3 // of a node's own: 12 checks of 8 GPUs
)

// mostInside is up to how many bytes the nodes' own certificates are inside the
// cluster's.
const mostInside = 16 << 20

// CertificateOf is that of so many nodes.
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
	Rounds       float64 `json:"rounds"`       // where nothing is slow
	RoundsFault  float64 `json:"roundsFault"`  // where a node has half its rate
	Bound        int     `json:"bound"`        // of rounds, with a fault; tests hold simulated hunts to it
	Measurements float64 `json:"measurements"` // with a fault
	Seconds      float64 `json:"seconds"`      // with a fault
}

// RoundSeconds is what a round of the hunt takes: a measurement, for all pairs
// at once.
const RoundSeconds = 2

// HuntOf is that of so many nodes. Rounds grow with the logarithm of the number
// of questions that must not be answered wrongly by chance.
func HuntOf(nodes int) Hunt {
	log := math.Log2(float64(max(nodes, 2)))
	h := Hunt{Nodes: nodes, Rounds: 5 + 1.25*log, RoundsFault: 9.5 + 1.5*log, Bound: 36 + 2*int(math.Ceil(log))}
	h.Measurements = h.RoundsFault * float64(nodes)
	h.Seconds = RoundSeconds * h.RoundsFault
	return h
}

// levels is how deep a tree is in which rank r is under rank (r-1)/fanout.
func levels(ranks, fanout int) (n int) {
	for r := ranks - 1; r > 0; r = (r - 1) / fanout {
		n++
	}
	return n
}
