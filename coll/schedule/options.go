package schedule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/op"
)

// Options describe the ranks that a schedule is for, and what is known of the machine.
type Options struct {
	Ranks int // number of ranks, at least 1
	Root  int // of a rooted collective

	// Channels is the number of channels to use; 0 means the algorithm's own number: one per
	// ring, else 1. The double tree uses two channels for each one requested, because each of its
	// trees carries half the data.
	Channels int

	// Rings are orders of all ranks, for "ring": channel c uses Rings[c mod len(Rings)]. Without
	// any, the ring is 0, 1, 2, ….
	Rings [][]int

	// Groups are the nodes: each rank is in one of them. "hierarchical" and "collnet" need them.
	// In the trees, if given, the tree runs between nodes, with a chain within each. The order
	// within a group is that of its ring or chain.
	Groups [][]int

	// InOrder asks for reductions in the order of the ranks, of algorithms that can: see InOrder.
	InOrder bool

	// NoMulticast says that a transport cannot send to Everyone. Such messages are sent to one
	// rank after the other instead.
	NoMulticast bool
}

// Limits of what New accepts: block numbers and values computed from them are int32. No real
// system comes near.
const (
	MaxRanks    = 1 << 14
	MaxChannels = 1 << 10
)

// MinSlots is the number of messages that a connection must be able to hold for schedules to be
// free of deadlock. One is not enough: in a ring where every rank has sent one message, each next
// step receives one and sends one, and would wait for a slot that only the same step of the next
// rank frees.
const MinSlots = 2

// The names of the algorithms.
const (
	Ring              = "ring"
	Tree              = "tree"
	DoubleTree        = "double-tree"
	Recursive         = "recursive"
	RecursiveDoubling = "recursive-doubling"
	Bruck             = "bruck"
	OneShot           = "one-shot"
	TwoShot           = "two-shot"
	Hierarchical      = "hierarchical"
	CollNet           = "collnet"
)

// A maker fills in Blocks, Channels and Program of a schedule for at least two
// ranks; the options are valid.
type maker func(s *Schedule, o Options) error

// algorithms are the algorithms of each collective, the basic one first.
var algorithms = [op.NumCollectives][]struct {
	name string
	make maker
}{
	op.AllReduce: {
		{Ring, ringAllReduce}, {Tree, treeMaker(heapTree)}, {DoubleTree, doubleTree}, {Recursive, recursiveAllReduce},
		{RecursiveDoubling, recursiveDoubling}, {OneShot, oneShotAllReduce}, {TwoShot, twoShotAllReduce},
		{Hierarchical, hierAllReduce}, {CollNet, collNetAllReduce},
	},
	op.Broadcast: {
		{Ring, ringBroadcast}, {Tree, treeMaker(heapTree)}, {DoubleTree, doubleTree}, {OneShot, oneShotBroadcast},
		{TwoShot, twoShotBroadcast}, {Hierarchical, hierTree},
	},
	op.Reduce: {
		{Ring, ringReduce}, {Tree, treeMaker(heapTree)}, {DoubleTree, doubleTree}, {OneShot, oneShotReduce},
		{TwoShot, twoShotReduce}, {Hierarchical, hierTree},
	},
	op.AllGather: {
		{Ring, ringAllGather}, {Recursive, recursiveAllGather}, {Bruck, bruckAllGather}, {OneShot, oneShotAllGather},
		{Hierarchical, hierAllGather}, {CollNet, collNetAllGather},
	},
	op.ReduceScatter: {
		{Ring, ringReduceScatter}, {Recursive, recursiveReduceScatter}, {Bruck, bruckReduceScatter},
		{OneShot, oneShotReduceScatter}, {Hierarchical, hierReduceScatter}, {CollNet, collNetReduceScatter},
	},
	op.AllToAll: {{OneShot, oneShotAllToAll}, {Bruck, bruckAllToAll}},
	op.Gather:   {{OneShot, oneShotGather}, {Tree, binomialGather}},
	op.Scatter:  {{OneShot, oneShotScatter}, {Tree, binomialScatter}},
	op.SendRecv: {{OneShot, sendRecv}},
}

// Algorithms returns the names of a collective's algorithms, the basic one first.
func Algorithms(c op.Collective) []string {
	if c >= op.NumCollectives {
		return nil
	}
	var names []string
	for _, a := range algorithms[c] {
		names = append(names, a.name)
	}
	return names
}

// New creates the schedule of an algorithm for a collective. It fails if the collective has no
// such algorithm, or if the options are invalid or lack what the algorithm needs. The schedule
// does not refer to the options.
func New(c op.Collective, algorithm string, o Options) (*Schedule, error) {
	if c >= op.NumCollectives {
		return nil, fmt.Errorf("schedule: there is no collective number %d", c)
	}
	i := slices.Index(Algorithms(c), algorithm)
	if i < 0 {
		return nil, fmt.Errorf("schedule: %v has no algorithm %q; it has %s", c, algorithm, strings.Join(Algorithms(c), ", "))
	}
	if err := o.validate(c); err != nil {
		return nil, fmt.Errorf("schedule: %v %s: %w", c, algorithm, err)
	}
	s := &Schedule{Collective: c, Algorithm: algorithm, Ranks: o.Ranks, Blocks: o.Ranks, Channels: max(1, o.Channels), MaxSpan: 1}
	s.Ordered = o.InOrder && InOrder(c, algorithm)
	if c.Rooted() {
		s.Root = o.Root
	}
	if o.Ranks == 1 {
		alone(s)
		return s, nil
	}
	if err := algorithms[c][i].make(s, o); err != nil {
		return nil, fmt.Errorf("schedule: %v %s: %w", c, algorithm, err)
	}
	if o.NoMulticast {
		s.unicast()
	}
	if s.Channels > MaxChannels {
		return nil, fmt.Errorf("schedule: %v %s: %d channels; there may be %d", c, algorithm, s.Channels, MaxChannels)
	}
	return s, nil
}

// Widest returns the largest number of blocks that a step of any collective moves, with any
// algorithm.
func Widest(o Options) int {
	most := 1
	for c := range op.NumCollectives {
		for _, a := range Algorithms(c) {
			if s, err := New(c, a, o); err == nil {
				most = max(most, s.MaxSpan)
			}
		}
	}
	return most
}

// alone is the schedule of every collective for a single rank: a copy.
func alone(s *Schedule) {
	s.lanes(func(int, int) ([][]Step, int) {
		return [][]Step{{do(Span{0, 1}).load(in(0)).store(out(0))}}, 0
	})
}

// ZeroCopySafe reports whether a rank that runs the algorithm of this package may send directly
// from its input and output buffers: whether it never overwrites data there before the receiver
// has read it. A transport that copies does not need this.
func ZeroCopySafe(c op.Collective, algorithm string, inPlace bool) bool {
	switch {
	case c == op.AllReduce && algorithm == RecursiveDoubling:
		return false
	case c == op.AllReduce && algorithm == OneShot:
		return !inPlace
	}
	return true
}

// InOrder reports whether an algorithm can reduce each element in the order of the ranks, (x0 op x1)
// op x2 …, as Options.InOrder asks, so that its bits depend on nothing else. Collectives that reduce
// nothing have only such algorithms.
func InOrder(c op.Collective, algorithm string) bool {
	return !c.Reduces() || algorithm == OneShot || algorithm == TwoShot
}

func (o Options) validate(c op.Collective) error {
	if o.Ranks < 1 || o.Ranks > MaxRanks {
		return fmt.Errorf("%d ranks; there may be 1 to %d", o.Ranks, MaxRanks)
	}
	if c.Rooted() && (o.Root < 0 || o.Root >= o.Ranks) {
		return fmt.Errorf("root %d is not one of the %d ranks", o.Root, o.Ranks)
	}
	if o.Channels < 0 || o.Channels > MaxChannels {
		return fmt.Errorf("%d channels; there may be up to %d, or 0 for the algorithm's own number", o.Channels, MaxChannels)
	}
	for i, r := range o.Rings {
		if err := partition([][]int{r}, o.Ranks); err != nil {
			return fmt.Errorf("ring %d: %w", i, err)
		}
	}
	if o.Groups != nil {
		if err := partition(o.Groups, o.Ranks); err != nil {
			return fmt.Errorf("groups: %w", err)
		}
	}
	return nil
}

// partition returns why groups are not a partition of the ranks 0 … n-1.
func partition(groups [][]int, n int) error {
	seen := make([]bool, n)
	left := n
	for i, g := range groups {
		if len(g) == 0 {
			return fmt.Errorf("group %d is empty", i)
		}
		for _, r := range g {
			if r < 0 || r >= n {
				return fmt.Errorf("rank %d is not one of the %d ranks", r, n)
			}
			if seen[r] {
				return fmt.Errorf("rank %d is there twice", r)
			}
			seen[r] = true
			left--
		}
	}
	if left > 0 {
		return fmt.Errorf("rank %d is missing", slices.Index(seen, false))
	}
	return nil
}
