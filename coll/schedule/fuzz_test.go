package schedule

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

// randomGroups cuts a random order of n ranks into random groups.
func randomGroups(rng *rand.Rand, n int) [][]int {
	order := rng.Perm(n)
	var groups [][]int
	for len(order) > 0 {
		k := 1 + rng.IntN(len(order))
		if rng.IntN(2) == 0 {
			k = min(k, 1+rng.IntN(4))
		}
		groups = append(groups, order[:k])
		order = order[k:]
	}
	return groups
}

// randomOptions are options of an algorithm for n ranks.
func randomOptions(rng *rand.Rand, c op.Collective, algorithm string, n int) Options {
	o := Options{Ranks: n, Channels: rng.IntN(4), NoMulticast: rng.IntN(4) == 0}
	if c.Rooted() {
		o.Root = rng.IntN(n)
	}
	for range rng.IntN(3) {
		o.Rings = append(o.Rings, rng.Perm(n))
	}
	if algorithm == Hierarchical || rng.IntN(2) == 0 {
		o.Groups = randomGroups(rng, n)
	}
	if algorithm == CollNet {
		o.Groups = randomGroups(rng, n)
		if c != op.AllReduce {
			o.Groups = regular(n, 1+rng.IntN(n))
		}
	}
	return o
}

// TestRandom: schedules for random ranks, roots, rings and groups.
func TestRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	times, largest := 8, 20
	if !testing.Short() {
		times, largest = 100, 40
	}
	everything(func(c op.Collective, a string) {
		for range times {
			n := 1 + rng.IntN(largest)
			o := randomOptions(rng, c, a, n)
			s, err := New(c, a, o)
			if err != nil {
				t.Fatalf("New(%v, %q, %+v): %v", c, a, o, err)
			}
			checkAll(t, s)
			if t.Failed() {
				t.Fatalf("of New(%v, %q, %+v)", c, a, o)
			}
		}
	})
}

// FuzzNew: whatever the options, New says what is wrong with them or makes a
// schedule that passes Check.
func FuzzNew(f *testing.F) {
	f.Add(uint8(0), uint8(0), 4, 0, 0, []byte{}, uint64(1))
	f.Add(uint8(1), uint8(6), 8, 3, 0, []byte{}, uint64(2))
	f.Add(uint8(0), uint8(7), 9, 0, 2, []byte{0, 1, 2, 0xff, 3, 4, 5, 6, 7, 8}, uint64(3))
	f.Add(uint8(4), uint8(4), 3, 9, -1, []byte{0, 0, 1}, uint64(4))
	f.Fuzz(func(t *testing.T, c, algorithm uint8, n, root, channels int, groups []byte, seed uint64) {
		if n > 24 && n <= MaxRanks || channels > 8 && channels <= MaxChannels {
			t.Skip("right, but it takes long")
		}
		names := append(Algorithms(op.Collective(c)), "no such algorithm")
		name := names[int(algorithm)%len(names)]
		o := Options{Ranks: n, Root: root, Channels: channels, NoMulticast: seed%5 == 0}
		for i, g := range slices.Collect(chunks(groups)) {
			if i == 0 {
				o.Groups = [][]int{}
			}
			o.Groups = append(o.Groups, g)
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		if n > 0 && n <= 24 {
			if seed%3 == 0 {
				o.Rings = [][]int{rng.Perm(n)}
			}
		}
		s, err := New(op.Collective(c), name, o)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "schedule: ") || s != nil {
				t.Fatalf("New(%v, %q, %+v) = %v, %v", op.Collective(c), name, o, s, err)
			}
			return
		}
		checkAll(t, s)
	})
}

// chunks cuts bytes at 0xff; each part is a group of ranks.
func chunks(b []byte) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		if len(b) == 0 {
			return
		}
		var g []int
		for _, x := range b {
			if x == 0xff {
				if !yield(g) {
					return
				}
				g = nil
				continue
			}
			g = append(g, int(x))
		}
		yield(g)
	}
}
