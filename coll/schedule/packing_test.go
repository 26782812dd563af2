package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

// bothWays are links of a capacity in both directions.
func bothWays(pairs ...[3]int) []Link {
	var links []Link
	for _, p := range pairs {
		links = append(links, Link{p[0], p[1], p[2]}, Link{p[1], p[0], p[2]})
	}
	return links
}

// cubeMesh is the NVLink graph of a DGX-1 with V100s: six links a GPU, as
// nvidia-smi topo -m shows it.
var cubeMesh = bothWays(
	[3]int{0, 1, 1}, [3]int{0, 2, 1}, [3]int{0, 3, 2}, [3]int{0, 4, 2}, [3]int{1, 2, 2}, [3]int{1, 3, 1}, [3]int{1, 5, 2}, [3]int{2, 3, 2},
	[3]int{2, 6, 1}, [3]int{3, 7, 1}, [3]int{4, 5, 1}, [3]int{4, 6, 1}, [3]int{4, 7, 2}, [3]int{5, 6, 2}, [3]int{5, 7, 1}, [3]int{6, 7, 2})

// use is how many messages a schedule's channels send over each link.
func use(s *Schedule) capacities {
	load := newCapacities(s.Ranks)
	for r := range s.Ranks {
		for _, l := range s.Program(r).Lanes {
			for _, st := range l.Steps {
				if st.Send >= 0 {
					load[r][st.Send]++
				}
			}
		}
	}
	return load
}

// TestPackedRate: channels that all links can carry at once, in units of a
// link, for graphs where the optimum is known.
func TestPackedRate(t *testing.T) {
	half := bothWays([3]int{0, 1, 3}, [3]int{1, 2, 2}, [3]int{0, 2, 2}) // flow 4 from 0 to 2, 5 to 1
	for _, tt := range []struct {
		name     string
		n        int
		links    []Link
		channels int
		c        op.Collective
		want     ratio // channels for the most load of a unit of capacity
	}{
		{"pair", 2, bothWays([3]int{0, 1, 4}), 0, op.Broadcast, ratio{1, 1}},
		{"line", 3, bothWays([3]int{0, 1, 2}, [3]int{1, 2, 3}), 0, op.Broadcast, ratio{2, 1}},
		{"triangle", 3, half, 0, op.Broadcast, ratio{4, 1}},
		{"triangle, as many as reach it", 3, half, 4, op.Broadcast, ratio{4, 1}},
		{"triangle, one tree", 3, half, 1, op.Broadcast, ratio{2, 1}},
		{"cube mesh", 8, cubeMesh, 0, op.Broadcast, ratio{6, 1}},
		{"cube mesh", 8, cubeMesh, 0, op.Reduce, ratio{6, 1}},
		{"cube mesh, both ways", 8, cubeMesh, 0, op.AllReduce, ratio{36, 11}}, // of 24/7
		{"complete", 6, complete1(6), 0, op.AllReduce, ratio{3, 1}},
		{"ring both ways", 5, bothWays([3]int{0, 1, 1}, [3]int{1, 2, 1}, [3]int{2, 3, 1}, [3]int{3, 4, 1}, [3]int{4, 0, 1}), 0, op.AllReduce, ratio{5, 4}},
		{"ring both ways", 5, bothWays([3]int{0, 1, 1}, [3]int{1, 2, 1}, [3]int{2, 3, 1}, [3]int{3, 4, 1}, [3]int{4, 0, 1}), 0, op.Broadcast, ratio{2, 1}},
	} {
		s, err := New(tt.c, PackedTrees, Options{Ranks: tt.n, Links: tt.links, Channels: tt.channels})
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(s, CheckOptions{ZeroCopy: true}); err != nil {
			t.Error(err)
		}
		c, err := links(Options{Ranks: tt.n, Links: tt.links})
		if err != nil {
			t.Fatal(err)
		}
		rate, err := rate(s, c)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if rate.cmp(tt.want) != 0 {
			t.Errorf("%s: %v over %d channels at %d/%d; want %d/%d", tt.name, tt.c, s.Channels, rate.num, rate.den, tt.want.num, tt.want.den)
		}
	}
}

// complete1 is the complete graph.
func complete1(n int) []Link {
	var pairs [][3]int
	for u := range n {
		for v := range u {
			pairs = append(pairs, [3]int{u, v, 1})
		}
	}
	return bothWays(pairs...)
}

// rate is a schedule's channels for the most load of a unit of capacity.
func rate(s *Schedule, c capacities) (ratio, error) {
	worst := ratio{0, 1}
	load := use(s)
	for u := range load {
		for v, n := range load[u] {
			if n > 0 && c[u][v] == 0 {
				return worst, fmt.Errorf("rank %d sends to rank %d, where there is no link", u, v)
			}
			if n > 0 && (ratio{n, c[u][v]}).cmp(worst) > 0 {
				worst = ratio{n, c[u][v]}
			}
		}
	}
	return ratio{s.Channels * worst.den, worst.num}, nil
}

// TestPackedRandom: on random links Broadcast reaches the flow that bounds it,
// or all that its number of channels allows, and AllReduce a stated part.
func TestPackedRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	times := 60
	if !testing.Short() {
		times = 400
	}
	packed := 0
	least := 1.0
	for range times {
		n := 2 + rng.IntN(7)
		o := Options{Ranks: n, Root: rng.IntN(n), Links: randomLinks(rng, n)}
		c, err := links(o)
		if err != nil {
			continue
		}
		flow, _ := c.connectivity(o.Root, 1<<30)
		s, err := New(op.Broadcast, PackedTrees, o)
		if (err != nil) != (flow == 0) {
			t.Fatalf("New(%+v): %v, with a flow of %d", o, err, flow)
		}
		if err != nil {
			continue
		}
		packed++
		got, err := rate(s, c)
		if err != nil {
			t.Fatal(err)
		}
		if flow <= maxTrees && got.cmp(ratio{flow, 1}) != 0 {
			t.Errorf("New(%+v): rate %d/%d; want the flow %d", o, got.num, got.den, flow)
		}
		if s, err = New(op.AllReduce, PackedTrees, o); err != nil {
			continue
		}
		if got, err = rate(s, c); err != nil {
			t.Fatal(err)
		}
		least = min(least, float64(got.num)/float64(got.den)/bothWaysBound(c))
	}
	if packed < times/3 {
		t.Errorf("%d of %d random graphs could be packed", packed, times)
	}
	t.Logf("AllReduce reaches at least %.2f of its bound", least)
	if least < 0.8 {
		t.Errorf("AllReduce reaches %.2f of what is possible; want 0.8", least)
	}
}

// bothWaysBound is the theorem of Tutte and Nash-Williams (1961): trees that
// are used both ways are no more than the capacity between the parts of any
// partition, divided by one less than the number of parts. It is exact; here
// all partitions of few ranks are tried.
func bothWaysBound(c capacities) float64 {
	n := len(c)
	part := make([]int, n)
	best := -1.0
	var try func(i, parts int)
	try = func(i, parts int) {
		if i < n {
			for p := range parts + 1 {
				part[i] = p
				try(i+1, max(parts, p+1))
			}
			return
		}
		if parts < 2 {
			return
		}
		cut := 0
		for u := range n {
			for v := range u {
				if part[u] != part[v] {
					cut += min(c[u][v], c[v][u])
				}
			}
		}
		if b := float64(cut) / float64(parts-1); best < 0 || b < best {
			best = b
		}
	}
	try(0, 0)
	return best
}

// TestPackedChannels: for no number of channels is there a better packing than
// the one found; more links at the same load would be needed.
func TestPackedChannels(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 40 {
		n := 2 + rng.IntN(5)
		o := Options{Ranks: n, Links: randomLinks(rng, n), Channels: 1 + rng.IntN(6)}
		c, err := links(o)
		if err != nil {
			continue
		}
		s, err := New(op.Broadcast, PackedTrees, o)
		if err != nil {
			continue
		}
		if s.Channels != o.Channels {
			t.Fatalf("%d channels; want %d", s.Channels, o.Channels)
		}
		got, err := rate(s, c)
		if err != nil {
			t.Fatal(err)
		}
		// The most load is channels/rate. With any less, fewer units flow.
		load := ratio{s.Channels * got.den, got.num}
		less := ratio{load.num*1000 - load.den, load.den * 1000}
		if f, _ := c.scaled(less, s.Channels).connectivity(0, s.Channels); f >= s.Channels {
			t.Errorf("New(%+v) loads links %d/%d; less is possible", o, load.num, load.den)
		}
	}
}
