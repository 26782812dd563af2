package predict

import (
	"fmt"
	"time"
)

// A Topology is a machine of equal ranks in equal domains. NVLink, shared memory or another
// fast fabric joins the ranks of a domain (a node, a rack), and a network joins domains. Every
// rank has a port into its domain's fabric that sends and receives at the same time, in each
// direction at the full rate; every domain likewise has an uplink. A port or uplink serves one
// message after the other, in the order in which they are ready.
type Topology struct {
	Ranks  int
	Domain int // ranks of a domain; consecutive ones share it. 0: one domain

	Port          BytesPerSec   // a rank's injection and ejection rate
	Latency       time.Duration // of a message within a domain, in addition to its transfer
	Uplink        BytesPerSec   // a domain's rate into the network, all its NICs together
	UplinkLatency time.Duration // of a message between domains
}

func (t Topology) validate() error {
	switch {
	case t.Ranks < 1:
		return fmt.Errorf("topology: %d ranks; want at least 1", t.Ranks)
	case t.Domain < 0 || t.Domain > 0 && t.Ranks%t.Domain != 0:
		return fmt.Errorf("topology: %d ranks in domains of %d; the domains must be equal", t.Ranks, t.Domain)
	case t.Port <= 0:
		return fmt.Errorf("topology: a port of %g bytes/s; want more than 0", float64(t.Port))
	case t.domains() > 1 && t.Uplink <= 0:
		return fmt.Errorf("topology: %d domains without an uplink rate", t.domains())
	case t.Latency < 0 || t.UplinkLatency < 0:
		return fmt.Errorf("topology: a latency is negative")
	}
	return nil
}

// domain returns the number of ranks per domain.
func (t Topology) domain() int {
	if t.Domain == 0 {
		return t.Ranks
	}
	return t.Domain
}

func (t Topology) domains() int { return t.Ranks / t.domain() }

// BytesPerSec is a bandwidth. GBps is the unit of the hardware database.
type BytesPerSec float64

// GBps is 1e9 bytes a second.
const GBps BytesPerSec = 1e9

// perByte returns the seconds per byte; a rate of 0 costs nothing.
func (r BytesPerSec) perByte() float64 {
	if r <= 0 {
		return 0
	}
	return 1 / float64(r)
}
