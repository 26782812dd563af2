package hunt

import (
	"math/rand/v2"
	"slices"

	"github.com/assay-hpc/assay/internal/stat"
)

// fewNodes is the number of nodes below which pairs follow a round-robin. From this number on one
// round has enough other values to compare with.
const fewNodes = 16

// A planner decides which nodes are measured together.
type planner struct {
	rng      *rand.Rand
	nodes    int
	size     int
	switches [][]int // nodes by switch; nil where they are not known

	sweep    [][][]int // remaining rounds of a round-robin
	sweepOf  []int     // the nodes in it
	meetings [][][2]int
	meeting  int      // next index in meetings
	at       int      // how many others a switch meets at once
	again    [][2]int // switches that are to meet again
	repeated bool     // the last meeting was again
	turn     int
	settled  bool // nodes are decided: every round is a meeting
}

func newPlanner(rng *rand.Rand, nodes int, o Options) *planner {
	p := &planner{rng: rng, nodes: nodes, size: o.GroupSize, switches: bySwitch(o.Switch)}
	// With two switches there is no other path that shows what is usual between switches.
	if len(p.switches) >= 3 && p.size == 2 && nodes >= fewNodes {
		var inside [][2]int // each switch with itself
		for i := range p.switches {
			inside = append(inside, [2]int{i, i})
		}
		p.meetings = append(circle(len(p.switches)), inside)
		rng.Shuffle(len(p.meetings), func(i, j int) { p.meetings[i], p.meetings[j] = p.meetings[j], p.meetings[i] })
		p.at = max(1, min((len(p.meetings)+mostMeetings-1)/mostMeetings, nodes/len(p.switches)/leastOfSwitch))
	}
	return p
}

// numbered renumbers switches as 0, 1, … in the order of their first nodes.
func numbered(label []int) []int {
	if label == nil {
		return nil
	}
	number := map[int]int{}
	out := make([]int, len(label))
	for node, l := range label {
		if _, ok := number[l]; !ok {
			number[l] = len(number)
		}
		out[node] = number[l]
	}
	return out
}

// bySwitch returns the nodes of each switch, by its number.
func bySwitch(number []int) (out [][]int) {
	for node, i := range number {
		if i == len(out) {
			out = append(out, nil)
		}
		out[i] = append(out[i], node)
	}
	return out
}

// next returns a round among the living nodes.
func (p *planner) next(living []int) [][]int {
	p.turn++
	switch {
	case p.size > 2:
		return p.groups(living)
	case len(living) < fewNodes:
		return p.roundRobin(living)
	case p.meetings != nil && (p.turn%2 == 0 || p.settled):
		return p.meet(living)
	}
	return p.pairs(slices.Clone(living))
}

// pairs pairs nodes at random. With an odd number one node is left out.
func (p *planner) pairs(nodes []int) (out [][]int) {
	p.rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	for i := 0; i+1 < len(nodes); i += 2 {
		out = append(out, []int{nodes[i], nodes[i+1]})
	}
	return out
}

// groups returns random groups of the same size; a node that is left over waits. There are at
// least three groups, so that there is something to compare with.
func (p *planner) groups(living []int) (out [][]int) {
	nodes := slices.Clone(living)
	p.rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	size := groupSize(len(nodes), p.size)
	for ; len(nodes) >= size; nodes = nodes[size:] {
		out = append(out, nodes[:size:size])
	}
	return out
}

func groupSize(nodes, size int) int { return max(2, min(size, nodes/3)) }

// roundRobin pairs each node with each. Every pass has a new random order.
func (p *planner) roundRobin(living []int) [][]int {
	if len(p.sweep) == 0 || !slices.Equal(p.sweepOf, living) {
		names := slices.Clone(living)
		p.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		p.sweep, p.sweepOf = nil, slices.Clone(living)
		for _, round := range circle(len(names)) {
			var groups [][]int
			for _, m := range round {
				groups = append(groups, []int{names[m[0]], names[m[1]]})
			}
			p.sweep = append(p.sweep, groups)
		}
		p.rng.Shuffle(len(p.sweep), func(i, j int) { p.sweep[i], p.sweep[j] = p.sweep[j], p.sweep[i] })
	}
	if len(p.sweep) == 0 {
		return nil
	}
	round := p.sweep[0]
	p.sweep = p.sweep[1:]
	return round
}

// meet pairs all nodes of a switch with those of one other switch at once, or of a few others where
// there are many switches. That loads the paths between them, which random pairs do not.
func (p *planner) meet(living []int) (out [][]int) {
	var round [][2]int
	at := p.at
	if p.repeated = len(p.again) > 0 && (p.allMet() || !p.repeated); p.repeated {
		round, at = p.takeAgain(), 1
	} else {
		for range at {
			round = append(round, p.meetings[p.meeting%len(p.meetings)]...)
			p.meeting++
		}
	}
	alive := map[int]bool{}
	for _, node := range living {
		alive[node] = true
	}
	free := make([][]int, len(p.switches))
	for i, nodes := range p.switches {
		free[i] = p.shuffled(nodes, alive)
	}
	for _, m := range round {
		a, b := m[0], m[1]
		if a == b {
			n := (len(p.switches[a]) + at - 1) / at
			n = min(n+n%2, len(free[a])/2*2)
			out = append(out, p.pairs(free[a][:n])...)
			free[a] = free[a][n:]
			continue
		}
		n := (min(len(p.switches[a]), len(p.switches[b])) + at - 1) / at
		n = min(n, len(free[a]), len(free[b]))
		for i := range n {
			out = append(out, []int{free[a][i], free[b][i]})
		}
		free[a], free[b] = free[a][n:], free[b][n:]
	}
	return append(out, p.pairs(slices.Concat(free...))...)
}

// takeAgain takes as many pairs of switches that are to meet again as can do so at once. If the nodes of
// a switch are to meet one another, so do those of others, to compare with.
func (p *planner) takeAgain() (round [][2]int) {
	busy, inside := map[int]bool{}, false
	p.again = slices.DeleteFunc(p.again, func(m [2]int) bool {
		if busy[m[0]] || busy[m[1]] {
			return false
		}
		busy[m[0]], busy[m[1]] = true, true
		round, inside = append(round, m), inside || m[0] == m[1]
		return true
	})
	for i := range p.switches {
		if inside && !busy[i] {
			round = append(round, [2]int{i, i})
		}
	}
	return round
}

// met reports whether every two switches have met (of very many: so many times), and none has to meet
// again.
func (p *planner) met() bool { return p.meetings == nil || p.allMet() && len(p.again) == 0 }

func (p *planner) allMet() bool { return p.meeting >= min(len(p.meetings), mostMeetings*p.at) }

const (
	// mostMeetings is how many rounds load paths between switches.
	mostMeetings = 96
	// leastOfSwitch is how many nodes of a switch, at least, load the path to another.
	leastOfSwitch = 4
)

// among pairs nodes within each block.
func (p *planner) among(blocks [][]int, living []int) (out [][]int) {
	alive := map[int]bool{}
	for _, node := range living {
		alive[node] = true
	}
	for _, b := range blocks {
		out = append(out, p.pairs(p.shuffled(b, alive))...)
	}
	return out
}

func (p *planner) shuffled(nodes []int, alive map[int]bool) (out []int) {
	for _, node := range nodes {
		if alive[node] {
			out = append(out, node)
		}
	}
	p.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// circle returns a tournament of n players by the circle method: one stays, the others move
// around it. With an odd number one is idle in each round.
func circle(n int) (rounds [][][2]int) {
	m := n + n%2 // with a place for the idle player
	for r := range m - 1 {
		var round [][2]int
		for i := range m / 2 {
			a, b := (r+i)%(m-1), (r-i+m-1)%(m-1)
			if i == 0 {
				b = m - 1
			}
			if a < n && b < n {
				round = append(round, [2]int{min(a, b), max(a, b)})
			}
		}
		if len(round) > 0 {
			rounds = append(rounds, round)
		}
	}
	return rounds
}

// stratumRounds returns how many rounds are compared as one, so that having the lowest values of
// all has a probability of at most 1/15, or 1/50 among few nodes.
func stratumRounds(nodes, size int) int {
	enough := 1.0 / 15
	if nodes < fewNodes {
		enough = 1.0 / 50
	}
	for l := 1; l < 64; l++ {
		mine, others := l, 0
		if size > 2 {
			groups := nodes / groupSize(nodes, size)
			others = l * (groups - 1)
		} else if nodes == 2 {
			others = l // the other direction
		} else {
			idle := nodes % 2 * ((l + nodes - 1) / nodes)
			mine = l - idle
			others = 2 * (mine*(nodes/2-1) + idle*(nodes/2))
		}
		if stat.RankTail(mine, others, 0) <= enough {
			return l
		}
	}
	return 1
}
