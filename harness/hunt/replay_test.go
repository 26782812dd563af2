package hunt

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// A plant is a fault in a replay: what it is, and the nodes that it concerns.
type plant struct {
	kind  string
	nodes []int // a node, or all of a switch
	peers []int // the other switch of a path
}

// outside is what happens to a direction besides.
type outside func(from, to int, f *Flow, s *Sample, rng *rand.Rand)

// replayKinds plant a fault at a node, or at its switch.
var replayKinds = map[string]func(c *cluster, node int) (plant, outside){
	"half rate":         steady(times(0.5), times(0.5)),
	"12 % slower":       steady(times(0.88), times(0.88)),
	"cable":             steady(nil, times(0.5)),
	"2 % loss":          steady(lossQuiet, lossQuiet),
	"busy CPU":          steady(scattered, scattered),
	"5 ms later":        eventual(eventFaultOf("5 ms later")),
	"2 % twice":         eventual(eventFaultOf("2 % twice")),
	"dead 1 s of 5":     eventual(flap(5, 1)),
	"dead 50 ms of 2 s": eventual(flap(2, 0.05)),
	"uplink": func(c *cluster, node int) (plant, outside) {
		bad := c.at[node]
		c.uplink[[2]int{bad, -1}], c.uplink[[2]int{-1, bad}] = 0.4, 0.4
		return plant{nodes: nodesOf(c.at, bad)}, nil
	},
	"path between switches": func(c *cluster, node int) (plant, outside) {
		a := c.at[node]
		b := (a + 1 + c.rng.IntN(slices.Max(c.at))) % (slices.Max(c.at) + 1)
		c.uplink[[2]int{a, b}] = 0.4
		return plant{nodes: nodesOf(c.at, a), peers: nodesOf(c.at, b)}, nil
	},
	"leaf": func(c *cluster, node int) (plant, outside) {
		nodes := nodesOf(c.at, c.at[node])
		for _, node := range nodes {
			c.faults[node] = fault{times(0.6), times(0.6)}
		}
		return plant{nodes: nodes}, nil
	},
	"tray": func(c *cluster, node int) (plant, outside) {
		p := plant{nodes: []int{node &^ 1, node | 1}}
		for _, node := range p.nodes {
			c.faults[node] = fault{times(0.7), times(0.7)}
		}
		return p, nil
	},
	"NVLink domain": func(c *cluster, node int) (plant, outside) {
		in := c.at[node]
		return plant{nodes: nodesOf(c.at, in)}, func(from, to int, f *Flow, _ *Sample, _ *rand.Rand) {
			if c.at[from] == in && c.at[to] == in {
				f.Value *= 0.5
			}
		}
	},
	// Routes follow from the destination, as on InfiniBand: one spine carries what goes to every eighth
	// node.
	"spine": func(c *cluster, node int) (plant, outside) {
		p := plant{}
		for i := node % spines; i < c.n; i += spines {
			p.nodes = append(p.nodes, i)
		}
		return p, func(from, to int, f *Flow, _ *Sample, _ *rand.Rand) {
			if c.at[from] != c.at[to] && to%spines == node%spines {
				f.Value *= 0.5
			}
		}
	},
}

const spines = 8

// names reports whether a suspect is what was planted. A spine's nodes may lack some that have faults of
// their own.
func (p plant) names(s Suspect) bool {
	if p.kind == "spine" {
		return s.Kind == Beyond && 4*len(s.Nodes) > 3*len(p.nodes) && !slices.ContainsFunc(s.Nodes, func(n int) bool { return !slices.Contains(p.nodes, n) })
	}
	if kind := map[string]Kind{"leaf": Slow, "tray": Slow, "NVLink domain": Inside, "uplink": SlowPath}[p.kind]; kind != "" && s.Kind != kind {
		return false
	}
	return slices.Equal(s.Nodes, p.nodes) && slices.Equal(s.Peers, p.peers)
}

func steady(send, receive func(*rand.Rand) (float64, float64)) func(*cluster, int) (plant, outside) {
	return func(c *cluster, node int) (plant, outside) {
		c.faults[node] = fault{send, receive}
		return plant{nodes: []int{node}}, nil
	}
}

// scattered is a host whose processors do something else now and then.
func scattered(rng *rand.Rand) (float64, float64) { return 0.55 + 0.45*rng.Float64(), 0 }

func eventual(do func(*cluster, int, int) func(int, int, *Flow, *Sample, *rand.Rand)) func(*cluster, int) (plant, outside) {
	return func(c *cluster, node int) (plant, outside) { return plant{nodes: []int{node}}, do(c, node, -1) }
}

func eventFaultOf(name string) func(*cluster, int, int) func(int, int, *Flow, *Sample, *rand.Rand) {
	i := slices.IndexFunc(eventFaults, func(f eventFault) bool { return f.name == name })
	return eventFaults[i].do
}

// bisect finds a slow node as a bisection does: it measures a group, and the halves of one that is
// slower than nine tenths of what is expected, down to pairs, whose nodes are then measured with
// those of pairs that are well. It returns the accused, and the rounds.
func bisect(t *testing.T, c *cluster, expected float64) (accused []int, rounds int) {
	measure := func(groups [][]int) (bad []bool) {
		rounds++
		samples, err := c.probe(context.Background(), groups, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			slow := s.Err != nil || s.Value < 0.9*expected
			if s.Back != nil {
				slow = slow || s.Back.Value < 0.9*expected
			}
			bad = append(bad, slow)
		}
		return bad
	}
	all := make([]int, c.n)
	for i := range all {
		all[i] = i
	}
	work, well := [][]int{all}, []int{}
	var last []int
	for len(work) > 0 {
		var next [][]int
		for i, bad := range measure(work) {
			switch g := work[i]; {
			case !bad:
				well = append(well, g...)
			case len(g) <= 3:
				last = append(last, g...)
			default:
				next = append(next, g[:len(g)/2], g[len(g)/2:])
			}
		}
		work = next
	}
	var pairs [][]int
	for i, node := range last {
		if i < len(well) {
			pairs = append(pairs, []int{node, well[i]})
		}
	}
	if len(pairs) > 0 {
		for i, bad := range measure(pairs) {
			if bad {
				accused = append(accused, pairs[i][0])
			}
		}
	}
	return accused, rounds
}

// TestReplay plants one to five faults of random kinds in clusters of 232 nodes (ASSAY_REPLAY_NODES)
// on switches of 8 and in trays of 2, and counts what is named, ASSAY_REPLAY times from the seed ASSAY_REPLAY_SEED on;
// ASSAY_REPLAY_KIND restricts them to a kind.
func TestReplay(t *testing.T) {
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return otherwise
	}
	n, trials := number("ASSAY_REPLAY_NODES", 232), number("ASSAY_REPLAY", int(seeds(t, 6)))
	kinds := make([]string, 0, len(replayKinds))
	for k := range replayKinds {
		if only := os.Getenv("ASSAY_REPLAY_KIND"); only != "" && k != only {
			continue
		}
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	type tally struct{ planted, named, bisected int }
	of := map[string]*tally{}
	for _, k := range kinds {
		of[k] = &tally{}
	}
	var seconds, bisectRounds []float64
	false1, falseOfBisection, hunts := 0, 0, 0
	for seed := range uint64(trials) {
		seed += uint64(number("ASSAY_REPLAY_SEED", 0))
		c := newCluster(n, seed)
		trays := make([]int, n)
		for i := range c.at {
			c.at[i], trays[i] = i/8, i/2
		}
		var plants []plant
		var all []outside
		used, spine := map[int]bool{}, -1
		for range 1 + c.rng.IntN(5) {
			node, kind := c.rng.IntN(n), kinds[c.rng.IntN(len(kinds))]
			if used[c.at[node]] || kind == "spine" && spine >= 0 || spine >= 0 && node%spines == spine {
				continue
			}
			if kind == "spine" {
				spine = node % spines
				if slices.ContainsFunc(plants, func(p plant) bool { return slices.ContainsFunc(p.nodes, func(n int) bool { return n%spines == spine }) }) {
					spine = -1
					continue
				}
			}
			p, o := replayKinds[kind](c, node)
			p.kind = kind
			used[c.at[p.nodes[0]]] = true
			if p.peers != nil {
				used[c.at[p.peers[0]]] = true
			}
			if o != nil {
				all = append(all, o)
			}
			plants = append(plants, p)
		}
		c.outside = func(from, to int, f *Flow, s *Sample, rng *rand.Rand) {
			for _, o := range all {
				o(from, to, f, s, rng)
			}
		}
		r := run(t, c, Options{Seed: seed, Switch: c.at, Groups: [][]int{trays}})
		hunts++
		seconds = append(seconds, c.second)
		fair := make([]bool, len(r.Suspects))
		for _, p := range plants {
			of[p.kind].planted++
			named := false
			for i, s := range r.Suspects {
				if p.names(s) {
					fair[i], named = true, true
				}
				fair[i] = fair[i] || p.peers != nil && slices.Equal(s.Nodes, p.peers) && slices.Equal(s.Peers, p.nodes)
			}
			if named {
				of[p.kind].named++
			} else {
				t.Logf("seed %d: %s at %v is not named; the hunt: %s", seed, p.kind, p.nodes, describe(r))
			}
		}
		for i, ok := range fair {
			if !ok {
				false1++
				t.Logf("seed %d: %s; planted %v", seed, r.Suspects[i], plants)
			}
		}
		c.second = 0
		accused, rounds := bisect(t, c, 50e9*0.95)
		bisectRounds = append(bisectRounds, float64(rounds))
		for _, p := range plants {
			if len(p.nodes) == 1 && slices.Contains(accused, p.nodes[0]) {
				of[p.kind].bisected++
			}
		}
		for _, node := range accused {
			if !slices.ContainsFunc(plants, func(p plant) bool {
				return slices.Contains(p.nodes, node) || p.peers != nil && slices.Contains(p.peers, node)
			}) {
				falseOfBisection++
			}
		}
	}
	planted, named := 0, 0
	for _, k := range kinds {
		t.Logf("%-24s planted %3d, named %3d; by bisection %3d", k, of[k].planted, of[k].named, of[k].bisected)
		if k == "path between switches" && n > 8*2*mostMeetings {
			continue // not all paths are loaded, and the report says so
		}
		planted, named = planted+of[k].planted, named+of[k].named
	}
	slices.Sort(seconds)
	slices.Sort(bisectRounds)
	t.Logf("%d nodes, %d hunts: %d of %d named, %d accused falsely; %.0f s in the median, %.0f at most; bisection: %d accused falsely, %.0f rounds in the median",
		n, hunts, named, planted, false1, seconds[len(seconds)/2], seconds[len(seconds)-1], falseOfBisection, bisectRounds[len(bisectRounds)/2])
	if float64(named) < 0.9*float64(planted) || float64(false1) > math.Max(1, 0.02*float64(hunts)) {
		t.Errorf("%d of %d named, %d accused falsely", named, planted, false1)
	}
}

// TestSpineBesideTray has a slow tray on a switch, one of whose other nodes is reached over a slow spine:
// what that node measures with the tray must not make it a suspect.
func TestSpineBesideTray(t *testing.T) {
	for seed := range seeds(t, 5) {
		c := newCluster(256, seed)
		trays := make([]int, c.n)
		for i := range c.at {
			c.at[i], trays[i] = i/8, i/2
		}
		spine, beyond := replayKinds["spine"](c, 107)
		tray, _ := replayKinds["tray"](c, 108)
		spine.kind, tray.kind, c.outside = "spine", "tray", beyond
		r := run(t, c, Options{Seed: seed, Switch: c.at, Groups: [][]int{trays}})
		if len(r.Suspects) != 2 || !slices.ContainsFunc(r.Suspects, spine.names) || !slices.ContainsFunc(r.Suspects, tray.names) {
			t.Errorf("seed %d: %s", seed, describe(r))
		}
	}
}
