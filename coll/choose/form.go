package choose

import (
	"math/bits"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

// A form is the cost of an algorithm in closed form, for n ranks in g groups of l: how many
// messages follow one another (steps), how many the busiest rank sends and receives
// (messages), and how often the vector passes through its port (bytes). The fields with net
// are the same for messages between groups, where a group shares one port. Pipelined
// algorithms work on many windows at once: steps are then the depth of the pipeline.
//
// The forms are those of Thakur, Rabenseifner and Gropp, "Optimization of
// collective communication operations in MPICH", 2005, for the classical
// algorithms; the others follow from their schedules (coll/schedule).
type form struct {
	steps, messages, bytes          float64
	netSteps, netMessages, netBytes float64
	reduced                         float64 // how often the vector is combined at the busiest rank
	pipelined                       bool
}

// shape is what forms depend on.
type shape struct{ n, g, l, logN, logG, logL float64 }

func newShape(ranks, groups int) shape {
	n, g := float64(ranks), float64(groups)
	return shape{n, g, n / g, log2(ranks), log2(groups), log2((ranks + groups - 1) / groups)}
}

// log2 is the depth of a balanced binary tree of n nodes.
func log2(n int) float64 { return float64(bits.Len(uint(n - 1))) }

// share is (a-1)/a: the share of all ranks' data that one rank does not have.
func share(a float64) float64 { return (a - 1) / a }

// forms by collective and the name of the algorithm in coll/schedule. Algorithms without a
// form are never picked. For collectives that reduce nothing, reduced is ignored.
var forms = [op.NumCollectives]map[string]func(shape) form{
	op.AllReduce: {
		schedule.Ring:              func(s shape) form { return s.ring(2) },
		schedule.Tree:              func(s shape) form { return s.tree(2, 3, 3) },
		schedule.DoubleTree:        func(s shape) form { return s.tree(2, 2, 2) },
		schedule.Recursive:         func(s shape) form { return s.halving(2) },
		schedule.RecursiveDoubling: recursiveDoublingForm,
		schedule.OneShot:           oneShotReduceForm,
		schedule.TwoShot:           func(s shape) form { return s.direct(2, 2*share(s.n)) },
		schedule.Hierarchical:      func(s shape) form { return s.hierarchical(2) },
	},
	op.ReduceScatter: parted,
	op.AllGather:     parted,
	op.Reduce:        rooted(func(s shape) form { f := s.direct(1, s.n-1); f.reduced = s.n - 1; return f }),
	op.Broadcast:     rooted(shape.multicast),
	op.AllToAll: {
		schedule.OneShot: oneEach,
		schedule.Bruck: func(s shape) form {
			return form{
				steps: s.logL, messages: s.logN, bytes: s.logN / 2, netSteps: s.logG, netMessages: s.logG, netBytes: s.l * s.logG / 2,
			}
		},
	},
	op.Gather:  {schedule.OneShot: oneEach, schedule.Tree: binomialForm},
	op.Scatter: {schedule.OneShot: oneEach, schedule.Tree: binomialForm},
	op.SendRecv: {
		schedule.OneShot: func(s shape) form {
			f := form{steps: 1, messages: 1, bytes: 1}
			if s.g > 1 {
				f.netSteps, f.netMessages, f.netBytes = 1, 1, 1
			}
			return f
		},
	},
}

// parted are the forms of collectives that assemble or split a vector of all ranks' parts.
var parted = map[string]func(shape) form{
	schedule.Ring:         func(s shape) form { return s.ring(1) },
	schedule.Recursive:    func(s shape) form { return s.halving(1) },
	schedule.Bruck:        bruckForm,
	schedule.OneShot:      oneEach,
	schedule.Hierarchical: func(s shape) form { return s.hierarchical(1) },
}

// rooted returns the forms of collectives to or from a root.
func rooted(oneShot func(shape) form) map[string]func(shape) form {
	return map[string]func(shape) form{
		schedule.Ring:         shape.chain,
		schedule.Tree:         func(s shape) form { return s.tree(1, 2, 2) },
		schedule.DoubleTree:   func(s shape) form { return s.tree(1, 1.5, 1) },
		schedule.OneShot:      oneShot,
		schedule.TwoShot:      func(s shape) form { return s.direct(2, 2*share(s.n)) },
		schedule.Hierarchical: func(s shape) form { return s.tree(1, 2, 2) },
	}
}

func oneEach(s shape) form { return s.direct(1, share(s.n)) }

// ring has passes times n-1 steps, each of which moves a share. With several groups every step
// waits for the slowest link, which is one between groups.
func (s shape) ring(passes float64) form {
	steps, bytes := passes*(s.n-1), passes*share(s.n)
	f := form{steps: steps, messages: steps, bytes: bytes, reduced: share(s.n)}
	if s.g > 1 {
		f.steps, f.netSteps, f.netMessages, f.netBytes = 0, steps, steps, bytes
	}
	return f
}

// chain is a ring that all data passes once, window by window.
func (s shape) chain() form {
	f := form{steps: s.n - s.g, messages: 1, bytes: 1, reduced: 1, pipelined: true}
	if s.g > 1 {
		f.netSteps, f.netMessages, f.netBytes = s.g-1, 1, 1
	}
	return f
}

// tree goes up, down or both (passes). If there are several groups, it is a chain within each.
func (s shape) tree(passes, bytes, messages float64) form {
	f := form{steps: passes * s.logN, messages: messages, bytes: bytes, reduced: min(2, s.n-1), pipelined: true}
	if s.g > 1 {
		f.steps, f.netSteps, f.netMessages, f.netBytes = passes*(s.l-1), passes*s.logG, messages, bytes
		if s.g == 2 {
			f.netBytes = max(1, bytes/2)
		}
	}
	return f
}

// halving is recursive halving or doubling (passes 1) or both.
func (s shape) halving(passes float64) form {
	return form{
		steps: passes * s.logL, messages: passes * s.logN, bytes: passes * share(s.n), reduced: share(s.n),
		netSteps: passes * s.logG, netMessages: passes * s.logG, netBytes: passes * s.l * share(s.g),
	}
}

func recursiveDoublingForm(s shape) form {
	return form{
		steps: s.logL, messages: s.logN, bytes: s.logN, reduced: s.logN,
		netSteps: s.logG, netMessages: s.logG, netBytes: s.l * s.logG,
	}
}

func bruckForm(s shape) form {
	return form{
		steps: s.logL, messages: s.logN, bytes: share(s.n) + 1, reduced: share(s.n),
		netSteps: s.logG, netMessages: s.logG, netBytes: s.l * share(s.g),
	}
}

// direct sends from all ranks to all ranks, to each its part, in the given number of rounds.
func (s shape) direct(rounds, bytes float64) form {
	f := form{steps: rounds, messages: rounds * (s.n - 1), bytes: bytes, reduced: share(s.n)}
	if s.g > 1 {
		f.netSteps, f.netMessages, f.netBytes = rounds, rounds*(s.n-s.l), bytes*s.l*(s.n-s.l)/(s.n-1)
	}
	return f
}

// multicast is one message that all others read.
func (s shape) multicast() form {
	f := form{steps: 1, messages: 1, bytes: 1}
	if s.g > 1 {
		f.netSteps, f.netMessages, f.netBytes = 1, s.n-s.l, s.n-s.l
	}
	return f
}

// oneShotReduceForm has every rank read and combine what all others sent.
func oneShotReduceForm(s shape) form {
	f := s.multicast()
	f.messages, f.bytes, f.reduced = s.n-1, s.n-1, s.n-1
	if s.g > 1 {
		f.netMessages, f.netBytes = s.n-s.l, s.l*(s.n-s.l)
	}
	return f
}

// hierarchical is a ring or halving within groups, and one between groups for each rank's
// share; with passes 2, both are done in both directions.
func (s shape) hierarchical(passes float64) form {
	return form{
		steps: passes * (s.l - 1), messages: passes * (s.l - 1), bytes: passes * share(s.l), reduced: share(s.n),
		netSteps: passes * (s.g - 1), netMessages: passes * (s.g - 1), netBytes: passes * share(s.g),
	}
}

func binomialForm(s shape) form {
	return form{
		steps: s.logL, messages: s.logN, bytes: share(s.n) + s.logN/4,
		netSteps: s.logG, netMessages: s.logG, netBytes: share(s.g),
	}
}
