package hunt

import "math"

// Packet loss is tested like slowness. The value is how well a node's packets arrive: the
// reciprocal of (share of packets sent again + lossyShare), so that differences below lossyShare
// do not count. With lossLeast a node is accused only if it loses more than 2 × what the rest lose
// + lossyShare. With lossFind a loss of 4 × what the rest lose + 3 × lossyShare is certain to be
// found.
const (
	lossLeast = 0.5
	lossFind  = 0.75
	// lossPart is the share of the error probabilities for these tests
	lossPart = 0.1
)

// judgeLoss is judge for retransmitted packets, where their share is known.
func (h *hunt) judgeLoss(look int) {
	if h.alone() || !h.all.loses() {
		return
	}
	s := *h
	s.verdicts, s.loss = h.loss, verdicts{}
	s.o.Least, s.o.Find, s.o.Switch = lossLeast, lossFind, nil
	s.pairs, s.plan = false, &planner{} // only bandwidth reveals slow paths
	s.all = h.all.losses()
	s.judge(look, lossPart)
	h.loss = s.verdicts
}

// lossDecided reports whether each node is accused or cleared of losing packets. If losses vary
// so much that this takes half of all rounds, it gives up.
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

// losses returns the evidence with values that state how well packets arrive.
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
