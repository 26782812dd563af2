package predict

import (
	"time"

	"github.com/assay-hpc/assay/coll/op"
)

// An extent says how many of a machine's domains are simulated: all, or two smaller numbers
// from which the time of all is extrapolated on a straight line, since a simulation of a
// hundred thousand ranks takes minutes to hours. The line for rings is exact, the one for
// trees nearly so; tests compare both with simulations of all domains.
type extent struct{ all, large, small int } // large is 0 where all are simulated

const (
	// ringDomains and treeDomains are the largest numbers of domains that are all simulated.
	ringDomains = 8
	treeDomains = 64
	// treeRanks is about how many ranks the larger of the two simulations of trees has.
	treeRanks = 256
	// leastDomains is the least number of domains of the smaller simulation: trees of fewer
	// domains have no inner nodes.
	leastDomains = 8
)

// ringExtent returns the extent of rings. Their line is exact, so any two numbers of domains
// do.
func (t Topology) ringExtent() extent {
	if t.domains() <= ringDomains {
		return extent{all: t.domains()}
	}
	return extent{all: t.domains(), large: ringDomains, small: ringDomains / 2}
}

func (t Topology) treeExtent() extent {
	x := extent{all: t.domains()}
	if x.all > treeDomains {
		for x.small = leastDomains; 4*x.small*t.domain() <= treeRanks && 4*x.small <= treeDomains; {
			x.small *= 2
		}
		x.large = 2 * x.small
	}
	return x
}

// simulated returns the numbers of domains that are simulated.
func (x extent) simulated() []int {
	if x.large == 0 {
		return []int{x.all}
	}
	return []int{x.small, x.large}
}

// most returns the largest number of domains that is simulated.
func (x extent) most() int { return max(x.large, x.simulated()[0]) }

// of returns the same topology with another number of domains.
func (t Topology) of(domains int) Topology {
	t.Ranks, t.Domain = domains*t.domain(), t.domain()
	return t
}

// along extrapolates rings. In each step of a ring every rank moves a block, and each
// additional domain adds the same number of steps. So time is a straight line in the number of
// domains, as long as the size of blocks stays the same. It does in a pipelined chain, which
// moves all data in every step; otherwise (inParts) a smaller machine gets proportionally
// fewer bytes.
func (x extent) along(bytes int64, inParts bool, one func(domains int, bytes int64) (time.Duration, error)) (time.Duration, error) {
	if x.large == 0 {
		return one(x.all, bytes)
	}
	share := func(n int) int64 {
		if !inParts {
			return bytes
		}
		return int64(float64(bytes) / float64(x.all) * float64(n))
	}
	return x.line(float64(x.all), float64(x.small), float64(x.large), share, one)
}

// down extrapolates trees: time is a straight line in their depth. The data through the links
// of an inner node does not grow with the number of nodes.
func (x extent) down(bytes int64, one func(domains int, bytes int64) (time.Duration, error)) (time.Duration, error) {
	if x.large == 0 {
		return one(x.all, bytes)
	}
	return x.line(log2(x.all), log2(x.small), log2(x.large), func(int) int64 { return bytes }, one)
}

func (x extent) line(at, small, large float64, bytes func(int) int64, one func(domains int, bytes int64) (time.Duration, error)) (time.Duration, error) {
	a, err := one(x.small, bytes(x.small))
	if err != nil {
		return 0, err
	}
	b, err := one(x.large, bytes(x.large))
	return b + time.Duration((at-large)/(large-small)*float64(b-a)), err
}

// inParts reports whether a collective's ring moves a block for each rank.
func inParts(c op.Collective) bool {
	return c == op.AllReduce || c == op.AllGather || c == op.ReduceScatter
}
