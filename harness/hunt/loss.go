package hunt

import "math"

// A node that loses packets is asked after as one that is slow is. The value is
// how well its packets come through: the reciprocal of what is sent again, plus
// lossyShare, so that smaller differences do not count. So lossLeast says
// that a node must lose lossyShare more than the rest, and twice as much; and
// what is found for sure is three times lossyShare more, and four times as much.
const (
	lossLeast = 0.5
	lossFind  = 0.75
	// lossPart is the part of the error probabilities that these questions have.
	lossPart = 0.1
)

// judgeLoss is judge for what is sent again, where that is known.
func (h *hunt) judgeLoss(look int) {
	if h.alone() || !h.all.loses() {
		return
	}
	s := *h
	s.verdicts, s.loss = h.loss, verdicts{}
	s.o.Least, s.o.Find, s.o.Switch = lossLeast, lossFind, nil
	s.plan = &planner{} // of paths only bandwidth tells
	s.all = h.all.losses()
	s.judge(look, lossPart)
	h.loss = s.verdicts
}

// lossDecided reports whether each node is accused or cleared of losing packets.
// Where losses scatter so much that this takes half of all rounds, it is given up.
func (h *hunt) lossDecided() bool {
	return h.alone() || !h.all.loses() || 2*h.rounds >= h.o.MaxRounds || len(h.lossUndecided()) == 0
}

func (h *hunt) lossUndecided() (out []int) {
	for _, node := range h.living() {
		for _, d := range h.all.ways() {
			if !h.loss.accused[node].is(d) && !h.loss.cleared[d][node] {
				out = append(out, node)
				break
			}
		}
	}
	return out
}

// loses reports whether anything was sent again.
func (e *evidence) loses() bool {
	for _, round := range e.rounds {
		for i := range round {
			if round[i].resent > 0 {
				return true
			}
		}
	}
	return false
}

// losses is the evidence with how well packets come through as values.
func (e *evidence) losses() evidence {
	out := evidence{directed: e.directed, count: e.count, rounds: make([][]value, len(e.rounds))}
	for r, round := range e.rounds {
		out.rounds[r] = make([]value, len(round))
		for i, v := range round {
			v.x = -math.Log(lossyShare + v.resent)
			out.rounds[r][i] = v
		}
	}
	return out
}
