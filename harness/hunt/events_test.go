package hunt

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// outage is what happens to a measurement that begins at a time and takes a while if nothing comes
// through for down seconds in every ones.
func outage(at, takes, every, down float64, f *Flow, s *Sample) {
	var gone float64
	for first := float64(int(at/every)) * every; first < at+takes; first += every {
		gone += max(0, min(first+down, at+takes)-max(first, at))
	}
	switch {
	case gone == 0:
	case gone > 0.8*takes:
		s.Tries, s.Err = 3, errors.New("nothing came")
	default:
		// Behind an outage TCP waits until it sends again.
		f.Value *= max(0.01, 1-2*(gone+0.1)/takes)
		f.Packets.Lost, f.Packets.InRow = 8, 8
	}
}

// An eventFault does something to measurements.
type eventFault struct {
	name string
	pair bool
	rare bool // it takes some minutes
	kind Kind
	do   func(c *cluster, a, b int) func(from, to int, f *Flow, s *Sample, rng *rand.Rand)
}

// eventFaults are what comes and goes, and what concerns a path. a is the node, or the first of two.
var eventFaults = []eventFault{
	{"dead 1 s of 5", false, true, Flapping, flap(5, 1)},
	{"dead 50 ms of 10 s", false, true, Flapping, flap(10, 0.05)},
	{"dead 300 ms of 7 s", false, true, Flapping, flap(7, 0.3)},
	{"dead 50 ms of 2 s", false, false, Flapping, flap(2, 0.05)},
	{"5 ms later", false, false, Late, func(_ *cluster, a, _ int) func(int, int, *Flow, *Sample, *rand.Rand) {
		return func(from, to int, _ *Flow, s *Sample, _ *rand.Rand) {
			if from == a || to == a {
				s.RTT += 5 * time.Millisecond
			}
		}
	}},
	{"2 % twice", false, false, Duplicating, func(_ *cluster, a, _ int) func(int, int, *Flow, *Sample, *rand.Rand) {
		return func(from, _ int, f *Flow, _ *Sample, rng *rand.Rand) {
			if from == a && rng.Float64() < 0.7 {
				f.Packets.Twice = 1
			}
		}
	}},
	{"0.2 % lost", false, true, Lossy, func(_ *cluster, a, _ int) func(int, int, *Flow, *Sample, *rand.Rand) {
		return func(_, to int, f *Flow, _ *Sample, rng *rand.Rand) {
			if to == a && rng.Float64() > math.Pow(0.998, float64(f.Packets.Sent)) {
				f.Packets.Lost = max(1, f.Packets.Sent/500)
			}
		}
	}},
	{"a long tail", false, false, Late, func(_ *cluster, a, _ int) func(int, int, *Flow, *Sample, *rand.Rand) {
		return func(from, to int, _ *Flow, s *Sample, rng *rand.Rand) {
			if (from == a || to == a) && rng.Float64() < 0.7 {
				s.Tail += 5 * time.Millisecond
			}
		}
	}},
	{"no small packet heard of at times", false, true, Flapping, func(_ *cluster, a, _ int) func(int, int, *Flow, *Sample, *rand.Rand) {
		return func(from, to int, f *Flow, _ *Sample, rng *rand.Rand) {
			if (from == a || to == a) && rng.Float64() < 0.15 {
				f.Packets = Packets{Silent: true}
			}
		}
	}},
	{"a path that loses everything", true, false, Failing, func(_ *cluster, a, b int) func(int, int, *Flow, *Sample, *rand.Rand) {
		return func(from, to int, _ *Flow, s *Sample, _ *rand.Rand) {
			if from == a && to == b {
				s.Err = errors.New("no answer")
			}
		}
	}},
	{"a path at half rate", true, false, SlowPath, func(_ *cluster, a, b int) func(int, int, *Flow, *Sample, *rand.Rand) {
		return func(from, to int, f *Flow, _ *Sample, _ *rand.Rand) {
			if from == a && to == b {
				f.Value *= 0.5
			}
		}
	}},
}

func flap(every, down float64) func(*cluster, int, int) func(int, int, *Flow, *Sample, *rand.Rand) {
	return func(c *cluster, a, _ int) func(int, int, *Flow, *Sample, *rand.Rand) {
		start := every * c.rng.Float64()
		return func(from, to int, f *Flow, s *Sample, _ *rand.Rand) {
			if from == a || to == a {
				outage(c.second+start, c.window, every, down, f, s)
			}
		}
	}
}

// TestFilters: whose small packets are never heard of has a filter, and no fault.
func TestFilters(t *testing.T) {
	for name, silent := range map[string]func(from, to int, first bool) bool{
		"everywhere":            func(_, _ int, _ bool) bool { return true },
		"a node takes none":     func(_, to int, first bool) bool { return to == 1 && first },
		"a node sends none":     func(from, _ int, first bool) bool { return from == 1 && first },
		"a node answers none":   func(from, _ int, first bool) bool { return from == 1 && !first },
		"from one to the other": func(from, to int, first bool) bool { return from == 1 && to == 2 && first },
		"between two halves":    func(from, to int, _ bool) bool { return from%2 != to%2 },
	} {
		for _, n := range []int{4, 8, 32} {
			for seed := range uint64(seeds(t, 20)) {
				c := newCluster(n, seed)
				c.outside = func(from, to int, f *Flow, s *Sample, _ *rand.Rand) {
					if silent(from, to, f == &s.Flow) {
						f.Packets = Packets{Silent: true}
					}
				}
				if r := run(t, c, Options{Seed: seed}); len(r.Suspects) > 0 || r.Verdict != Clean {
					t.Errorf("%s, %d nodes, seed %d: %s", name, n, seed, describe(r))
				}
			}
		}
	}
}

// TestEvents: what comes and goes is found, and its place named.
func TestEvents(t *testing.T) {
	for _, tt := range eventFaults {
		for _, n := range middle(t, 4, 8, 64) {
			if tt.pair && n >= fewNodes {
				continue // each pair is measured rarely
			}
			right, most, of := 0, 0, int(seeds(t, 50))
			for seed := range uint64(of) {
				c := newCluster(n, seed)
				a := c.rng.IntN(n)
				b := (a + 1 + c.rng.IntN(n-1)) % n
				c.outside = tt.do(c, a, b)
				o := Options{Seed: seed}
				if tt.rare {
					o.Watch = func() bool { return c.second < 300 }
				}
				r := run(t, c, o)
				most = max(most, r.Rounds)
				good := len(r.Suspects) == 1 && len(r.Dead) == 0 && r.Suspects[0].Kind == tt.kind && (r.Suspects[0].Peers != nil) == tt.pair
				if good {
					who := slices.Concat(r.Suspects[0].Nodes, r.Suspects[0].Peers)
					slices.Sort(who)
					want := []int{a}
					if tt.pair {
						want = []int{min(a, b), max(a, b)}
					}
					good = slices.Equal(who, want)
				}
				if good {
					right++
				} else if t.Logf("%s, %d nodes, seed %d, %d and %d: %s", tt.name, n, seed, a, b, describe(r)); len(r.Suspects) > 1 {
					t.Errorf("%s, %d nodes, seed %d: accuses more than there is", tt.name, n, seed)
				}
			}
			t.Logf("%s, %d nodes: %d of %d, at most %d rounds", tt.name, n, right, of, most)
			if right < of-of/10 {
				t.Errorf("%s, %d nodes: %d of %d", tt.name, n, right, of)
			}
		}
	}
}

// TestPathBeforeItsNode: what is seen on one path alone is not a fault of the node at its end, even
// while there is only one disturbance of the path, which may be anybody's.
func TestPathBeforeItsNode(t *testing.T) {
	h := &hunt{o: Options{Alpha: 0.01, MaxRounds: 72}, rounds: 60}
	for name, tt := range map[string]struct {
		path, node count
		want       int // index of the accused place; -1: none
	}{
		"one disturbance of the path":        {count{with: 7, of: 8, spells: 1}, count{with: 7, of: 54, spells: 5}, -1},
		"and one of another":                 {count{with: 7, of: 8, spells: 1}, count{with: 8, of: 54, spells: 5}, -1},
		"several of the path":                {count{with: 7, of: 8, spells: 2}, count{with: 7, of: 54, spells: 5}, 0},
		"each measurement of the path":       {count{with: 7, of: 7, spells: 1}, count{with: 7, of: 54, spells: 5}, 0},
		"on other paths of the node as well": {count{with: 7, of: 8, spells: 1}, count{with: 10, of: 54, spells: 5}, 1},
	} {
		all := []oddity{
			{place: place{4, 2, Sending}, symptom: Missing, count: tt.path, p: 1e-12},
			{place: place{2, anyNode, Receiving}, symptom: Missing, count: tt.node, p: 1e-8},
		}
		best, more := h.oddest(all, 10, 50)
		if tt.want < 0 && best != nil || tt.want >= 0 && best != &all[tt.want] || !more {
			t.Errorf("%s: %+v, more %v; want %d", name, best, more, tt.want)
		}
	}
}
