package predict

import (
	"math"
	"time"

	"github.com/assay-hpc/assay/coll/op"
)

// Collectives that NCCL makes of Sends and Recvs (ncclGroupStart around them): AllToAll, Gather, Scatter and SendRecv. Nothing
// is simulated: all messages are under way at once, and the busiest port or NIC decides. The constants are from published
// tables of nccl-tests on one node of A100, H100 and B200 and on 2 to 48 nodes: docs/predict.md.
const (
	exchangeBase = 11 * time.Microsecond // of an operation within a domain
	exchangeNet  = 40 * time.Microsecond // of one between domains
	exchangeOne  = 15 * time.Microsecond // of SendRecv between domains
	exchangeEach = 10 * time.Microsecond // for each further GPU that one process launches it on
	exchangeRank = 500 * time.Nanosecond // for each rank beyond exchangeFew
	exchangeFew  = 16

	exchangePort = 0.94 // of a port's rate, all peers at once
	exchangeNIC  = 0.94 // of a GPU's part of the NICs
	oneNIC       = 0.90 // of it, to one peer

	// Channels fill: until messages are long a share of the time is added, with an end.
	exchangeFill     = 0.22
	exchangeFillMost = 130 * time.Microsecond

	// A Send to one peer has few channels until it is longer than onePeerFull: so much for all ranks of a node together.
	onePeerRate = 680 * GBps
	onePeerFull = 64 * mib
)

// addExchange adds the one way in which a collective of Sends and Recvs is done.
func (p *Predictor) addExchange() {
	t, c := p.sys.t, p.job.Collective
	p.ways = append(p.ways, way{
		algorithm: "P2P", protocol: simple, gpus: t.Ranks,
		estimate: func(bytes float64) float64 { return p.exchange(t, c, bytes).Seconds() },
		simulate: func(bytes int64) (time.Duration, error) { return p.exchange(t, c, float64(bytes)), nil },
	})
}

// exchange returns how long an operation takes whose longest buffer has so many bytes.
func (p *Predictor) exchange(t Topology, c op.Collective, bytes float64) time.Duration {
	n, d := float64(t.Ranks), float64(t.domain())
	nic := float64(t.Uplink) / d // a GPU's part
	base := exchangeBase
	switch {
	case t.domains() > 1 && c == op.SendRecv:
		base = exchangeOne + p.sys.net
	case t.domains() > 1:
		base = exchangeNet + p.sys.net
	}
	base += time.Duration(max(0, p.job.PerProcess-1)) * exchangeEach
	if c != op.SendRecv {
		base += time.Duration(max(0, t.Ranks-exchangeFew)) * exchangeRank
	}
	var s float64
	switch {
	case c == op.SendRecv && t.domains() > 1: // the last rank of a domain sends to the next one
		s = bytes / (nic * oneNIC)
	case c == op.SendRecv:
		few, port := float64(onePeerRate)/d, float64(t.Port)*exchangePort
		if p.sys.arch.pairLinks > 0 { // without a switch only the links to that GPU
			port *= p.sys.arch.pairLinks
		}
		s = max(bytes/port, min(bytes/few, onePeerFull/few))
	default: // of Gather and Scatter the root's port and NIC decide, and of AllToAll any
		inside, outside := bytes*(d-1)/n, bytes*(n-d)/n
		s = inside / (float64(t.Port) * exchangePort)
		if outside > 0 {
			s = max(s, outside/(nic*exchangeNIC))
		}
		s += min(exchangeFill*s, exchangeFillMost.Seconds())
	}
	return base + time.Duration(math.Round(s*1e9))
}

// exchanged says whether a collective is made of Sends and Recvs.
func exchanged(c op.Collective) bool {
	return c == op.AllToAll || c == op.Gather || c == op.Scatter || c == op.SendRecv
}
