package hunt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/coll/predict/scale/scaletest"
)

// sizes are those that every kind of fault is tried at; the largest ones take
// their time.
func sizes(t *testing.T) []int {
	if testing.Short() {
		return []int{2, 3, 8, 64}
	}
	return []int{2, 3, 4, 8, 64, 180, 4096}
}

// seeds is how many clusters are tried: a few of so many in a short run.
func seeds(t *testing.T, n int) uint64 {
	if testing.Short() {
		n = min(n, 3)
	}
	return uint64(n)
}

// middle is without the largest in a short run.
func middle(t *testing.T, list ...int) []int {
	if testing.Short() {
		return list[:len(list)-1]
	}
	return list
}

func run(t *testing.T, c *cluster, o Options) *Report {
	t.Helper()
	r, err := Run(context.Background(), c.n, c.probe, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// trials is how many clusters of a kind are tried: 50, but of 4,096 nodes two,
// since a trial takes seconds there.
func trials(n int) int {
	if n > 1000 {
		return 2
	}
	return 50
}

func describe(r *Report) string {
	s := fmt.Sprintf("%s after %d rounds, least %.3f, undecided %v, dead %v", r.Verdict, r.Rounds, r.Least, r.Undecided, r.Dead)
	for _, x := range r.Suspects {
		s += "\n\t" + x.String()
	}
	return s
}

func TestClean(t *testing.T) {
	for _, n := range sizes(t) {
		most := 0
		for seed := range seeds(t, trials(n)) {
			r := run(t, newCluster(n, seed), Options{Seed: seed})
			if r.Verdict != Clean {
				t.Errorf("%d nodes, seed %d: %s", n, seed, describe(r))
			}
			most = max(most, r.Rounds)
		}
		t.Logf("%d nodes: at most %d rounds", n, most)
	}
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault fault
		kind  Kind
		way   Direction
		from  int // nodes, at least
	}{
		{"half", fault{times(0.5), times(0.5)}, Slow, Both, 3},
		{"RDMA 2 % loss", fault{lossRDMA, lossRDMA}, Lossy, Both, 3},
		{"TCP 2 % loss", fault{lossTCP, lossTCP}, Lossy, Both, 3},
		{"2 % loss, made up for", fault{lossQuiet, lossQuiet}, Lossy, Both, 3},
		{"loses what it gets, made up for", fault{nil, lossQuiet}, Lossy, Receiving, 3},
		{"sending", fault{times(0.5), nil}, Slow, Sending, 3},
		{"receiving", fault{nil, times(0.5)}, Slow, Receiving, 3},
		{"loses what it sends", fault{lossRDMA, nil}, Lossy, Sending, 3},
		{"a tenth", fault{times(0.9), times(0.9)}, Slow, Both, 4},
	} {
		for _, n := range sizes(t) {
			if n < tt.from {
				continue
			}
			most := 0
			for seed := range seeds(t, trials(n)) {
				c := newCluster(n, seed)
				who := c.rng.IntN(n)
				c.faults[who] = tt.fault
				r := run(t, c, Options{Seed: seed})
				most = max(most, r.Rounds)
				if len(r.Suspects) != 1 || len(r.Dead) > 0 || len(r.Undecided) > 0 || !slices.Equal(r.Suspects[0].Nodes, []int{who}) ||
					r.Suspects[0].Direction != tt.way || r.Suspects[0].Kind != tt.kind || r.Ranking[0].Node != who {
					t.Errorf("%s, node %d of %d, seed %d: %s", tt.name, who, n, seed, describe(r))
				}
			}
			t.Logf("%s, %d nodes: at most %d rounds", tt.name, n, most)
		}
	}
}

// TestResends: where all connections lose, as TCP does on links that it fills, only
// who loses more is named.
func TestResends(t *testing.T) {
	for _, resends := range []float64{0.0004, 0.004, 0.03} {
		for _, n := range middle(t, 4, 8, 64, 180) {
			most := 0
			for seed := range seeds(t, 50) {
				c := newCluster(n, seed)
				c.resends = resends
				r := run(t, c, Options{Seed: seed})
				if most = max(most, r.Rounds); r.Verdict != Clean {
					t.Errorf("%g sent again by all of %d, seed %d: %s", resends, n, seed, describe(r))
				}
				if resends > 0.001 {
					continue // 2 % is not much more
				}
				c = newCluster(n, seed)
				who := c.rng.IntN(n)
				c.resends, c.faults[who] = resends, fault{lossQuiet, lossQuiet}
				r = run(t, c, Options{Seed: seed})
				if most = max(most, r.Rounds); !slices.Equal(accusedNodes(r), []int{who}) || r.Suspects[0].Kind != Lossy {
					t.Errorf("%g sent again by all of %d, 2 %% more by %d, seed %d: %s", resends, n, who, seed, describe(r))
				}
			}
			t.Logf("%g sent again by all of %d: at most %d rounds", resends, n, most)
		}
	}
}

// TestOneDirectionOfTwo: of two nodes the path can be told, not the end.
func TestOneDirectionOfTwo(t *testing.T) {
	for seed := range seeds(t, 50) {
		c := newCluster(2, seed)
		who := int(seed % 2)
		c.faults[who] = fault{times(0.5), nil}
		r := run(t, c, Options{Seed: seed})
		if len(r.Suspects) != 1 || r.Suspects[0].Kind != SlowPath || !slices.Equal(r.Suspects[0].Nodes, []int{who}) || !slices.Equal(r.Suspects[0].Peers, []int{1 - who}) || r.Note == "" {
			t.Errorf("seed %d: %s", seed, describe(r))
		}
	}
}

func TestTwoFaults(t *testing.T) {
	for _, n := range middle(t, 8, 64, 180) {
		for seed := range seeds(t, 50) {
			c := newCluster(n, seed)
			who := c.rng.Perm(n)[:2]
			slices.Sort(who)
			c.faults[who[0]] = fault{times(0.5), times(0.5)}
			c.faults[who[1]] = fault{nil, times(0.6)}
			r := run(t, c, Options{Seed: seed})
			got := accusedNodes(r)
			if !slices.Equal(got, who) || len(r.Suspects) != 2 {
				t.Errorf("nodes %v of %d, seed %d: %s", who, n, seed, describe(r))
			}
		}
	}
}

func accusedNodes(r *Report) (out []int) {
	for _, s := range r.Suspects {
		out = append(out, s.Nodes...)
	}
	slices.Sort(out)
	return out
}

// TestDead: who dies is named, in the round in which it does, and a slow node
// beside it is still found.
func TestDead(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, n := range middle(t, 3, 4, 8, 64, 180) {
			if silent && n < 4 {
				continue // with one partner left nobody can tell who of two fails
			}
			for seed := range seeds(t, 50) {
				c := newCluster(n, seed)
				c.silent = silent
				who := c.rng.Perm(n)[:2]
				c.dieAt[who[0]] = 1 + c.rng.IntN(8)
				if n >= 8 {
					c.faults[who[1]] = fault{times(0.5), times(0.5)}
				}
				r := run(t, c, Options{Seed: seed})
				if len(r.Dead) != 1 || r.Dead[0].Node != who[0] || r.Dead[0].Reason == "" {
					t.Fatalf("dead node %d of %d, seed %d, silent %v: %s", who[0], n, seed, silent, describe(r))
				}
				if n >= 8 && !slices.Equal(accusedNodes(r), who[1:]) || n < 8 && len(r.Suspects) > 0 {
					t.Errorf("slow node %d of %d, seed %d, silent %v: %s", who[1], n, seed, silent, describe(r))
				}
			}
		}
	}
}

// TestUplink: nodes of one switch are slow with all others and well among
// themselves, whether or not the switches are known.
func TestUplink(t *testing.T) {
	for _, known := range []bool{true, false} {
		for seed := range seeds(t, 20) {
			c := newCluster(64, seed)
			bad := c.rng.IntN(8)
			c.uplink[[2]int{bad, -1}], c.uplink[[2]int{-1, bad}] = 0.4, 0.4
			o := Options{Seed: seed}
			if known {
				o.Switch = c.at
			}
			r := run(t, c, o)
			if len(r.Suspects) != 1 || r.Suspects[0].Kind != SlowPath || r.Suspects[0].Direction != Both || r.Suspects[0].Peers != nil || !slices.Equal(r.Suspects[0].Nodes, nodesOf(c.at, bad)) {
				t.Errorf("switch %d, known %v, seed %d: %s", bad, known, seed, describe(r))
			}
		}
	}
}

// TestSwitchOfSlowNodes: if all nodes of one switch are slow, among themselves, too,
// it is slow, and no path.
func TestSwitchOfSlowNodes(t *testing.T) {
	for seed := range seeds(t, 10) {
		c := newCluster(64, seed)
		for _, node := range nodesOf(c.at, 3) {
			c.faults[node] = fault{times(0.5), times(0.5)}
		}
		r := run(t, c, Options{Seed: seed, Switch: c.at})
		if len(r.Suspects) != 1 || !slices.Equal(r.Suspects[0].Nodes, nodesOf(c.at, 3)) || r.Suspects[0].Kind != Slow {
			t.Errorf("seed %d: %s", seed, describe(r))
		}
	}
}

// TestPath: between two switches alone, in one direction, the path is slow.
func TestPath(t *testing.T) {
	for seed := range seeds(t, 20) {
		c := newCluster(64, seed)
		pair := c.rng.Perm(8)
		c.uplink[[2]int{pair[0], pair[1]}] = 0.4
		r := run(t, c, Options{Seed: seed, Switch: c.at})
		if len(r.Suspects) != 1 || r.Suspects[0].Kind != SlowPath || !slices.Equal(r.Suspects[0].Nodes, nodesOf(c.at, pair[0])) || !slices.Equal(r.Suspects[0].Peers, nodesOf(c.at, pair[1])) {
			t.Errorf("from switch %d to %d, seed %d: %s", pair[0], pair[1], seed, describe(r))
		}
	}
}

func nodesOf(at []int, which int) (out []int) {
	for node, s := range at {
		if s == which {
			out = append(out, node)
		}
	}
	return out
}

// TestGroups: collectives instead of pairs.
func TestGroups(t *testing.T) {
	for _, n := range middle(t, 16, 64, 180) {
		for seed := range seeds(t, 10) {
			c := newCluster(n, seed)
			who := c.rng.IntN(n)
			c.faults[who] = fault{times(0.5), times(0.5)}
			r := run(t, c, Options{Seed: seed, GroupSize: 4})
			if !slices.Equal(accusedNodes(r), []int{who}) {
				t.Errorf("node %d of %d, seed %d: %s", who, n, seed, describe(r))
			}
		}
	}
}

// TestNoise: nodes that differ a lot among themselves, and a network in which
// every third flow collides with another one, accuse nobody.
func TestNoise(t *testing.T) {
	for seed := range seeds(t, 20) {
		c := newCluster(64, seed)
		for i := range c.bias {
			c.bias[i] = math.Exp(0.03 * c.rng.NormFloat64())
		}
		if seed%2 == 0 {
			c.outlier = 0.3
		}
		if r := run(t, c, Options{Seed: seed}); len(r.Suspects) > 0 {
			t.Errorf("seed %d: %s", seed, describe(r))
		}
	}
}

func TestSameSeed(t *testing.T) {
	again := func() *Report {
		c := newCluster(64, 7)
		c.faults[5] = fault{lossTCP, nil}
		return run(t, c, Options{Seed: 3, Switch: c.at})
	}
	if a, b := again(), again(); !reflect.DeepEqual(a, b) {
		t.Errorf("two runs differ:\n%s\n%s", describe(a), describe(b))
	}
}

// TestScaleTable prints how rounds grow, and holds them to a logarithm.
func TestScaleTable(t *testing.T) {
	list := []int{4, 8, 16, 64, 180, 360}
	if !testing.Short() {
		list = append(list, 1024, 1440, 4096, 12500)
	}
	var rows [][]float64
	t.Log("nodes  rounds clean  rounds, one at half rate  measurements")
	for _, n := range list {
		clean := run(t, newCluster(n, 1), Options{})
		c := newCluster(n, 1)
		c.faults[n/3] = fault{times(0.5), times(0.5)}
		slow := run(t, c, Options{})
		t.Logf("%5d  %12d  %24d  %12d", n, clean.Rounds, slow.Rounds, slow.Measurements)
		rows = append(rows, []float64{float64(n), float64(clean.Rounds), float64(slow.Rounds), float64(slow.Measurements)})
		if limit := 24 + 2*log2(n); clean.Rounds > limit || slow.Rounds > limit+12 {
			t.Errorf("%d nodes: %d and %d rounds; at most %d and %d are the bound", n, clean.Rounds, slow.Rounds, limit, limit+12)
		}
		if !slices.Equal(accusedNodes(slow), []int{n / 3}) || clean.Verdict != Clean {
			t.Errorf("%d nodes: %s; %s", n, describe(clean), describe(slow))
		}
	}
	scaletest.Record(t, "hunt", []string{"nodes", "rounds", "rounds with a fault", "measurements"}, rows)
}

func TestErrors(t *testing.T) {
	fine := newCluster(4, 1).probe
	for _, tt := range []struct {
		nodes int
		probe Probe
		o     Options
	}{
		{0, fine, Options{}},
		{4, fine, Options{Alpha: 0.9}},
		{4, fine, Options{Least: 0.2, Find: 0.1}},
		{4, fine, Options{GroupSize: 1}},
		{4, fine, Options{MaxRounds: -1}},
		{4, fine, Options{Switch: []int{1}}},
		{4, fine, Options{Find: math.NaN()}},
		{4, func(context.Context, [][]int, bool) ([]Sample, error) { return nil, nil }, Options{}},
		{4, func(context.Context, [][]int, bool) ([]Sample, error) { return nil, errors.New("no network") }, Options{}},
	} {
		if _, err := Run(context.Background(), tt.nodes, tt.probe, tt.o); err == nil {
			t.Errorf("Run(%d nodes, %+v) is no error", tt.nodes, tt.o)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := newCluster(8, 1)
	r, err := Run(ctx, 8, func(ctx context.Context, groups [][]int, quiet bool) ([]Sample, error) {
		if c.round == 2 {
			cancel()
		}
		return c.probe(ctx, groups, quiet)
	}, Options{})
	if !errors.Is(err, context.Canceled) || r == nil || r.Rounds != 3 || r.Verdict != Undecided {
		t.Errorf("a hunt that was called off: %v, %+v", err, r)
	}
}

// FuzzOptions: whatever is asked for, a hunt ends, with a report that holds
// together.
func FuzzOptions(f *testing.F) {
	f.Add(8, 0.01, 0.01, 0.05, 0.1, 20, 2, uint64(1), uint8(3), uint8(0))
	f.Add(20, 0.5, 0.5, 0.01, 0.9, 40, 5, uint64(1), uint8(0), uint8(7))
	f.Fuzz(func(t *testing.T, n int, alpha, beta, least, find float64, rounds, size int, seed uint64, switches, dying uint8) {
		if n > 40 || rounds > 60 || n < 0 {
			return
		}
		o := Options{Alpha: alpha, Beta: beta, Least: least, Find: find, MaxRounds: rounds, GroupSize: size, Seed: seed}
		c := newCluster(max(n, 1), seed)
		if switches > 0 {
			for i := range n {
				o.Switch = append(o.Switch, i%int(switches)-2)
			}
		}
		for i := range int(dying) {
			c.dieAt[i] = i
		}
		c.silent = dying%2 == 1
		r, err := Run(t.Context(), n, c.probe, o)
		if r == nil {
			if err == nil {
				t.Fatal("neither a report nor an error")
			}
			return
		}
		if o.MaxRounds > 0 && r.Rounds > o.MaxRounds+maxAmong {
			t.Fatalf("%d rounds", r.Rounds)
		}
		for _, d := range r.Dead {
			if slices.Contains(accusedNodes(r), d.Node) && !slices.ContainsFunc(r.Suspects, func(s Suspect) bool { return s.Kind == SlowPath }) {
				t.Fatalf("node %d is dead and a suspect: %s", d.Node, describe(r))
			}
		}
	})
}
