// Package hunt finds the nodes of a cluster that are slower than the rest, by more than the
// noise. The number of rounds grows with the logarithm of the cluster's size. It measures nothing
// itself: a [Probe] measures disjoint groups of nodes, all at once, and hunt decides which groups
// to measure, how often, and what follows from the values.
//
// # How it works
//
// A round pairs all nodes at random (few nodes: round-robin), so that each round measures every
// node with another partner. A slow node is slow with every partner; its partners are slow only
// once. In each round a node's value has a rank among those of the other nodes of the same round.
// The ranks of all rounds together give the probability of these values for a node that is no
// slower than the rest: docs/scale.md describes the test. No value is compared with a fixed
// number.
//
// Each node is tested twice, each time with an error probability that holds for the whole hunt.
// It is accused when "it is at most Least slower than the rest" is refuted, and cleared when "it
// is slower by Find or more" is refuted. Rounds continue until every node is accused or cleared,
// or until MaxRounds. Nodes that are still neither are reported as undecided, never as suspects.
//
// Where the share of retransmitted packets is known, the same tests are applied to it: bandwidth
// alone does not show a few lost packets that TCP sends again.
//
// To ranks a fault that comes and goes is an outlier, and so is a path to those of a node. So each
// measurement has symptoms besides (see [Symptom]), which are counted by node, direction and pair, and
// compared with the rest. Among few nodes the values of each way from a node to another are tested
// as those of nodes are.
//
// If most nodes of a switch are accused, they are measured among themselves: if they are well
// there, the path to the others is slow.
//
// The package is pure: the same seed and the same answers of the probe give the same rounds and
// the same report.
package hunt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A Flow is a measurement in one direction.
type Flow struct {
	// Value is a bandwidth, in any unit, which is the same throughout.
	Value float64
	// Resent is the share of packets that had to be sent again; 0: none, or not known.
	Resent float64
	// Packets is what became of small packets before the measurement.
	Packets Packets
}

// A Sample is what a group measured in a round.
type Sample struct {
	// Flow is the group's value. For a pair with Back it is from the first node to the second.
	Flow
	// Back is from a pair's second node to its first. Without it Flow is for both directions
	// together.
	Back *Flow
	// RTT is the median time of a round trip without load, and Tail what a hundredth of them exceeds;
	// 0: not known.
	RTT, Tail time.Duration
	// Tries is how often the measurement was begun; 0: once.
	Tries int
	// Dead are nodes that did not answer, or reported that they cannot continue. They are left
	// out from then on, and the group's values do not count.
	Dead []int
	// Err is the reason for a missing value, or for Dead. If it is set without Dead, hunt
	// determines which node makes its groups fail.
	Err error
}

// A Probe measures all groups at once and returns a Sample of each. If it is to be quiet, it sends
// small packets alone, and the samples have no values. An error ends the hunt.
type Probe func(ctx context.Context, groups [][]int, quiet bool) ([]Sample, error)

// Options of a hunt. The zero value is usable.
type Options struct {
	// Alpha bounds the probability of accusing a node that is at most Least slower than the rest;
	// Beta bounds that of clearing a node that is Find slower. 0 means 0.01.
	Alpha, Beta float64
	// Least is a difference that never justifies an accusation, as a share of the rest's value (0
	// means 0.05). Find is a difference that must not go unnoticed (0 means 0.10). If nodes
	// differ more among themselves, both grow: Report.Least and Report.Find are the final values.
	Least, Find float64
	// MaxRounds bounds the rounds; 0 means 48, plus 8 for each doubling of the number of nodes, and
	// four times as many while a suspicion is followed.
	MaxRounds int
	// GroupSize is the number of nodes in a group; 0 means 2, a pair. Larger groups are for
	// collectives, and have no directions.
	GroupSize int
	// Switch assigns each node to a switch (rack, rail group), by arbitrary numbers. Without it
	// nodes with adjacent numbers are taken to be near one another, where that matters.
	Switch []int
	// Groups assign each node to other groups that are known, larger and smaller ones (pods, NVLink
	// domains, trays), by arbitrary numbers, the largest first.
	Groups [][]int
	// Seed chooses the pairs.
	Seed uint64
	// LateBy is by how much longer round trips must take to be late (0 means 100 µs), and HeldBy a
	// single packet to be held up (0 means 5 ms).
	LateBy, HeldBy time.Duration
	// Watch, if not nil, reports before each round whether the hunt goes on although all is
	// decided: with quiet rounds, for what is rare.
	Watch func() bool
	// Progress, if not nil, is called before each round.
	Progress func(round, undecided int)
}

func (o Options) check(nodes int) (Options, error) {
	def := func(v *float64, d float64) {
		*v = cmp.Or(*v, d)
	}
	def(&o.Alpha, 0.01)
	def(&o.Beta, 0.01)
	def(&o.Least, 0.05)
	def(&o.Find, 0.10)
	o.LateBy, o.HeldBy = cmp.Or(o.LateBy, 100*time.Microsecond), cmp.Or(o.HeldBy, 5*time.Millisecond)
	o.GroupSize = cmp.Or(o.GroupSize, 2)
	o.MaxRounds = cmp.Or(o.MaxRounds, 48+8*log2(nodes))
	in := func(v, high float64) bool { return v > 0 && v <= high }
	switch {
	case nodes < 1 || nodes > 1<<20:
		return o, fmt.Errorf("a hunt among %d nodes; 1 to %d are possible", nodes, 1<<20)
	case !in(o.Alpha, 0.5) || !in(o.Beta, 0.5):
		return o, fmt.Errorf("error probabilities %v and %v; each must be above 0 and at most 0.5", o.Alpha, o.Beta)
	case !in(o.Least, 0.9) || !in(o.Find, 0.95) || o.Find <= o.Least:
		return o, fmt.Errorf("differences of %v (never accused) and %v (to be found); the second must be the larger one, both between 0 and 0.95", o.Least, o.Find)
	case o.MaxRounds < 1:
		return o, fmt.Errorf("at most %d rounds; there must be one at least", o.MaxRounds)
	case o.GroupSize < 2:
		return o, fmt.Errorf("groups of %d nodes; 2 are the fewest", o.GroupSize)
	case slices.ContainsFunc(o.Groups, func(of []int) bool { return len(of) != nodes }):
		return o, fmt.Errorf("not each group is of %d nodes", nodes)
	case o.Switch != nil && len(o.Switch) != nodes:
		return o, fmt.Errorf("the switches of %d nodes are given, of %d", len(o.Switch), nodes)
	}
	return o, nil
}

// log2 returns the binary logarithm of n, rounded up.
func log2(n int) int { return int(math.Ceil(math.Log2(float64(max(n, 1))))) }

// A hunt is the state of one Run.
type hunt struct {
	o     Options
	n     int
	probe Probe
	rng   *rand.Rand

	alive   []bool
	dead    []Death
	strikes map[int][]int // node → partners in its groups, since it last succeeded
	rounds  int
	flows   int
	all     evidence // of rounds among all nodes
	inside  evidence // of rounds inside switches
	plan    *planner

	events     []event
	numbers    map[place]int
	numbered   []place
	patient    bool // MaxRounds is not the user's
	looks      int
	odd        []oddity // places that have symptoms
	pairs      bool     // ways between nodes are judged by their values, too
	suspicious bool     // more measurements may accuse one more

	verdicts            // from all evidence so far
	loss      verdicts  // the same for retransmitted packets
	suspects  []Suspect // paths that excuse nodes
	excused   map[int]bool
	lastError error

	slowGroups map[int]bool // nodes of groups that are slow themselves
}

// Run hunts among nodes 0 to nodes-1. With an error it also returns a report, of what was found
// until then.
func Run(ctx context.Context, nodes int, probe Probe, o Options) (*Report, error) {
	patient := o.MaxRounds == 0
	o, err := o.check(nodes)
	if err != nil {
		return nil, err
	}
	o.Switch = numbered(o.Switch)
	h := &hunt{
		o: o, n: nodes, probe: probe,
		rng:     rand.New(rand.NewPCG(o.Seed, 0x68756e74)),
		alive:   slices.Repeat([]bool{true}, nodes),
		strikes: map[int][]int{}, numbers: map[place]int{}, slowGroups: map[int]bool{}, patient: patient, pairs: true,
	}
	h.plan = newPlanner(h.rng, nodes, o)
	err = h.search(ctx)
	if err == nil {
		err = h.explain(ctx)
	}
	if err == nil {
		err = h.watch(ctx)
	}
	return h.report(), err
}

// search measures and evaluates the results, at growing intervals, until every node is accused or
// cleared.
func (h *hunt) search(ctx context.Context) error {
	waiting := false // only for switches to meet
	for look := 1; ; look++ {
		// Each look has a quarter more strata to compare.
		l := h.stratum()
		strata := len(h.all.rounds) / l
		until := l * max(minStrata, strata+max(1, strata/4))
		for len(h.all.rounds) < until && h.rounds < h.mostRounds() && len(h.living()) >= 2 {
			groups := h.plan.next(h.living())
			if err := h.round(ctx, &h.all, groups, false); err != nil {
				return err
			}
			if waiting && h.plan.met() && len(h.all.rounds)%l == 0 {
				break
			}
		}
		h.judge(look, 1-lossPart-eventPart)
		h.judgeLoss(look)
		h.judgeEvents(look)
		h.looks = look
		h.plan.settled = len(h.undecided()) == 0
		waiting = h.plan.settled && h.strikesExplained() && h.enoughEvidence() && h.lossDecided() && h.eventsDecided()
		if len(h.living()) < 2 || waiting && h.plan.met() || h.rounds >= h.mostRounds() {
			return nil
		}
	}
}

// strikesExplained reports whether all failures are those of accused pairs, or of nodes that come and
// go.
func (h *hunt) strikesExplained() bool {
	for node, partners := range h.strikes {
		pair := slices.ContainsFunc(h.odd, func(o oddity) bool { return o.symptom == Failed && (o.a == node || o.b == node) })
		if !pair && !h.oddNode(node) && slices.ContainsFunc(partners, func(other int) bool { return !h.oddNode(other) }) {
			return false
		}
	}
	return true
}

// mostRounds is how many rounds there are at most: more where a suspicion is followed.
func (h *hunt) mostRounds() int {
	if h.suspicious && h.patient {
		return patience * h.o.MaxRounds
	}
	return h.o.MaxRounds
}

// watch measures with small packets alone, for as long as is wanted.
func (h *hunt) watch(ctx context.Context) error {
	begun, judged := h.rounds, h.rounds
	judge := func() {
		h.looks++
		h.judgeEvents(h.looks)
		judged = h.rounds
	}
	for h.o.Watch != nil && len(h.living()) >= 2 && h.o.Watch() {
		if err := h.round(ctx, nil, h.plan.next(h.living()), true); err != nil {
			return err
		}
		if n := h.rounds - begun; n&(n-1) == 0 {
			judge()
		}
	}
	if judged < h.rounds {
		judge()
	}
	return nil
}

// rest returns the living nodes that are not accused: others are compared with these.
func (h *hunt) rest() (out []int) {
	for _, node := range h.living() {
		if h.accused[node] == nil {
			out = append(out, node)
		}
	}
	return out
}

// stratum is how many rounds are compared as one: the fewer nodes are left, the more it takes.
func (h *hunt) stratum() int { return stratumRounds(max(len(h.rest()), 2), h.o.GroupSize) }

// minStrata is how many strata there must be before the first look. A fault that lasts for only
// one stratum is not attributed to a node.
const minStrata = 3

// minValues is the minimum number of values of a suspect, so that the kind of its fault can be
// determined.
const minValues = 8

func (h *hunt) enoughEvidence() bool {
	for _, accused := range []map[int]*charge{h.accused, h.loss.accused} {
		for node := range accused {
			if h.all.count[node] < minValues {
				return false
			}
		}
	}
	return true
}

func (h *hunt) living() (out []int) {
	for i, ok := range h.alive {
		if ok {
			out = append(out, i)
		}
	}
	return out
}

// round measures groups, and records the results.
func (h *hunt) round(ctx context.Context, e *evidence, groups [][]int, quiet bool) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("hunt: round %d: %w", h.rounds+1, context.Cause(ctx))
	}
	if h.o.Progress != nil {
		h.o.Progress(h.rounds+1, len(h.undecided()))
	}
	groups = slices.DeleteFunc(groups, h.hopeless)
	samples, err := h.probe(ctx, groups, quiet)
	if err != nil {
		return fmt.Errorf("hunt: round %d: %w", h.rounds+1, err)
	}
	if len(samples) != len(groups) {
		return fmt.Errorf("hunt: round %d: %d groups were to be measured, %d have a result", h.rounds+1, len(groups), len(samples))
	}
	h.rounds++
	if !quiet {
		e.next()
	}
	for i, s := range samples {
		g := groups[i]
		err := s.Err
		if err == nil && len(s.Dead) == 0 && !quiet {
			err = e.add(h.rounds, g, s)
		}
		if s.Err = err; len(s.Dead) == 0 {
			h.observe(g, s)
		}
		switch {
		case len(s.Dead) > 0:
			for _, node := range s.Dead {
				h.buried(node, g, err)
			}
		case err != nil:
			h.lastError = err
			h.failed(g, err)
		default:
			h.flows++
			if s.Back != nil {
				h.flows++
			}
			for _, node := range g {
				delete(h.strikes, node)
			}
		}
	}
	return nil
}

// buried removes a node from the rest of the hunt.
func (h *hunt) buried(node int, group []int, why error) {
	if node < 0 || node >= h.n || !h.alive[node] || !slices.Contains(group, node) {
		return
	}
	if why == nil {
		why = errors.New("it did not answer")
	}
	h.alive[node] = false
	h.dead = append(h.dead, Death{Node: node, Round: h.rounds, Reason: why.Error()})
}

// failed records that a group failed without naming the node at fault. The node at fault fails
// with different partners, and never succeeds.
func (h *hunt) failed(group []int, why error) {
	for _, node := range group {
		for _, other := range group {
			if other != node && !slices.Contains(h.strikes[node], other) {
				h.strikes[node] = append(h.strikes[node], other)
			}
		}
	}
	for _, node := range group {
		// With more partners than one group has, the fault is not theirs. Who is dead for a moment
		// alone fails with few.
		if len(h.strikes[node]) > h.o.GroupSize-1+min(1, len(h.living())/6) {
			h.buried(node, group, fmt.Errorf("every group that it was in failed: %w", why))
		}
	}
}
