package mesh

import (
	"fmt"
	"strings"
)

// A Pattern defines which ports measure with which.
type Pattern string

const (
	AllPairs  Pattern = "all-pairs" // each port with each port of the other hosts
	Rail      Pattern = "rail"      // each port with those of the same position on the other hosts
	Ring      Pattern = "ring"      // as rail, but only with the next host
	Bisection Pattern = "bisection" // as rail, but only with the host half the number of hosts further on, all at once
	Loopback  Pattern = "loopback"  // each port with each other port of its host
	Self      Pattern = "self"      // each port with itself
)

// Patterns are all of them.
func Patterns() []Pattern { return []Pattern{AllPairs, Rail, Ring, Bisection, Loopback, Self} }

// patternNames lists the patterns for human-readable text.
func patternNames() string {
	var names []string
	for _, p := range Patterns() {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

// A Pair is two ports that measure with each other, by index. A equals B only in the pattern Self.
type Pair struct{ A, B int }

// Schedule divides a pattern's pairs into rounds. Each pair is in one round, and no port is twice
// in a round, so that the pairs of a round can be measured at once. hosts contains the host of each
// port; the ports of a host are in the order of their rails. If there is only one host, each port
// is treated as a host of its own.
func Schedule(p Pattern, hosts []int) ([][]Pair, error) {
	groups := groupsOf(hosts)
	apart := groups
	if len(groups) == 1 {
		apart = singles(len(hosts))
	}
	switch p {
	case AllPairs:
		return tournament(apart, true), nil
	case Rail:
		return tournament(apart, false), nil
	case Ring:
		return ring(apart), nil
	case Bisection:
		return bisection(apart), nil
	case Loopback:
		return loopback(groups), nil
	case Self:
		return self(len(hosts)), nil
	}
	return nil, fmt.Errorf("there is no pattern %q; there are %s", p, patternNames())
}

// groupsOf returns the ports of each host; the hosts are in order of their first port.
func groupsOf(hosts []int) (groups [][]int) {
	at := map[int]int{}
	for port, host := range hosts {
		i, ok := at[host]
		if !ok {
			i = len(groups)
			at[host] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], port)
	}
	return groups
}

func singles(n int) (groups [][]int) {
	for i := range n {
		groups = append(groups, []int{i})
	}
	return groups
}

// circle is a tournament of n players by the circle method: one player stays, the others rotate
// around it. If n is odd, one player is idle in each round.
func circle(n int) (rounds [][]Pair) {
	m := n + n%2 // including an idle place
	for r := range m - 1 {
		pairs := []Pair{{r, m - 1}}
		for i := 1; i < m/2; i++ {
			pairs = append(pairs, Pair{(r + i) % (m - 1), (r - i + m - 1) % (m - 1)})
		}
		var round []Pair
		for _, p := range pairs {
			if p.A < n && p.B < n {
				round = append(round, Pair{min(p.A, p.B), max(p.A, p.B)})
			}
		}
		if len(round) > 0 {
			rounds = append(rounds, round)
		}
	}
	return rounds
}

// tournament lets the groups play against each other. When two groups meet, their ports are paired
// at once. With all, the ports of one side then move on by one until each port has met each port of
// the other side.
func tournament(groups [][]int, all bool) (rounds [][]Pair) {
	for _, meeting := range circle(len(groups)) {
		shifts := 1
		for _, m := range meeting {
			if all {
				shifts = max(shifts, len(groups[m.A]), len(groups[m.B]))
			}
		}
		for shift := range shifts {
			var round []Pair
			for _, m := range meeting {
				round = append(round, shifted(groups[m.A], groups[m.B], shift)...)
			}
			if len(round) > 0 {
				rounds = append(rounds, round)
			}
		}
	}
	return rounds
}

// shifted pairs the ports of two groups, with those of b shifted by some places.
func shifted(a, b []int, shift int) (pairs []Pair) {
	n := max(len(a), len(b))
	if shift >= n {
		return nil
	}
	for i := range n {
		if k := (i + shift) % n; i < len(a) && k < len(b) {
			pairs = append(pairs, Pair{a[i], b[k]})
		}
	}
	return pairs
}

// ring pairs each group with the next one. Every second edge of a ring can be used at once; the
// last edge of an odd ring needs a third round.
func ring(groups [][]int) (rounds [][]Pair) {
	n := len(groups)
	edges := n
	if n == 2 {
		edges = 1 // both directions are one pair
	}
	colors := make([][]Pair, 3)
	for i := range edges {
		if n < 2 {
			break
		}
		color := i % 2
		if i == n-1 && n%2 == 1 {
			color = 2
		}
		colors[color] = append(colors[color], shifted(groups[i], groups[(i+1)%n], 0)...)
	}
	return filled(colors)
}

// bisection pairs each group of the first half with a group of the second half.
func bisection(groups [][]int) (rounds [][]Pair) {
	half := len(groups) / 2
	var round []Pair
	for i := range half {
		round = append(round, shifted(groups[i], groups[half+i], 0)...)
	}
	return filled([][]Pair{round})
}

// loopback runs a tournament within each group, in all groups at once.
func loopback(groups [][]int) (rounds [][]Pair) {
	for _, g := range groups {
		for i, round := range circle(len(g)) {
			if i == len(rounds) {
				rounds = append(rounds, nil)
			}
			for _, p := range round {
				rounds[i] = append(rounds[i], Pair{g[p.A], g[p.B]})
			}
		}
	}
	return rounds
}

func self(n int) [][]Pair {
	var round []Pair
	for i := range n {
		round = append(round, Pair{i, i})
	}
	return filled([][]Pair{round})
}

// filled drops empty rounds.
func filled(rounds [][]Pair) (out [][]Pair) {
	for _, r := range rounds {
		if len(r) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// A flow is a measurement of data sent from one port to another. In a bidirectional test it covers
// both directions.
type flow struct{ From, To int }

// steps returns the sets of flows that are measured at once, in order. Each round has one step per
// direction, or a single step for both directions with both. With serial, each step has one flow.
func steps(rounds [][]Pair, both, serial bool) (out [][]flow) {
	for _, round := range rounds {
		var there, back []flow
		for _, p := range round {
			there = append(there, flow{p.A, p.B})
			if p.A != p.B && !both {
				back = append(back, flow{p.B, p.A})
			}
		}
		for _, step := range [][]flow{there, back} {
			switch {
			case len(step) == 0:
			case serial:
				for _, f := range step {
					out = append(out, []flow{f})
				}
			default:
				out = append(out, step)
			}
		}
	}
	return out
}
