package schedule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

// chop makes groups of the given sizes, over and over, of n ranks.
func chop(n int, sizes ...int) [][]int {
	var groups [][]int
	for r, i := 0, 0; r < n; i++ {
		var g []int
		for range sizes[i%len(sizes)] {
			if r < n {
				g = append(g, r)
				r++
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// regular makes groups of one size, at most so many.
func regular(n, size int) [][]int {
	for n%size != 0 {
		size--
	}
	return chop(n, size)
}

// complete adds what an algorithm needs to the options.
func complete(c op.Collective, algorithm string, o Options) Options {
	switch algorithm {
	case CollNet:
		if o.Groups == nil || c != op.AllReduce && !Regular(o.Groups) {
			o.Groups = regular(o.Ranks, 4)
		}
	case Hierarchical:
		if o.Groups == nil {
			o.Groups = chop(o.Ranks, 4)
		}
	}
	return o
}

func mustNew(t testing.TB, c op.Collective, algorithm string, o Options) *Schedule {
	t.Helper()
	s, err := New(c, algorithm, complete(c, algorithm, o))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// everything calls f for all algorithms of all collectives.
func everything(f func(c op.Collective, algorithm string)) {
	for c := range op.NumCollectives {
		for _, a := range Algorithms(c) {
			f(c, a)
		}
	}
}

// TestAll checks every algorithm for 1 to 64 ranks, in short for some of them:
// in place and out of place, zero copy where it is promised, with the fewest
// slots and without limit.
func TestAll(t *testing.T) {
	everything(func(c op.Collective, a string) {
		t.Run(fmt.Sprintf("%v/%s", c, a), func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= 64; n++ {
				if testing.Short() && n > 13 && n != 16 && n != 33 {
					continue
				}
				for _, o := range variants(c, a, n) {
					checkAll(t, mustNew(t, c, a, o))
				}
			}
		})
	})
}

// variants are options that matter to an algorithm.
func variants(c op.Collective, a string, n int) []Options {
	list := []Options{{Ranks: n}}
	if c.Rooted() {
		list = append(list, Options{Ranks: n, Root: n - 1}, Options{Ranks: n, Root: n / 3})
	}
	switch a {
	case OneShot, TwoShot:
		list = append(list, Options{Ranks: n, Root: n / 2, NoMulticast: true, Channels: 2},
			Options{Ranks: n, Root: n / 2, InOrder: true}, Options{Ranks: n, InOrder: true, NoMulticast: true, Channels: 2})
	case Ring:
		order := make([]int, n)
		for i := range order {
			order[i] = (n - i) % n
		}
		list = append(list, Options{Ranks: n, Root: n / 2, Rings: [][]int{order}, Channels: 2})
	case Tree, DoubleTree:
		if c.Vector() {
			list = append(list, Options{Ranks: n, Root: n / 2, Groups: chop(n, 3, 1, 4), Channels: 2})
		}
	case Hierarchical, CollNet:
		list = append(list, Options{Ranks: n, Root: n / 2, Groups: chop(n, 3, 1, 4)},
			Options{Ranks: n, Root: n / 2, Groups: chop(n, n)}, Options{Ranks: n, Groups: chop(n, 1)})
	}
	return list
}

func checkAll(t *testing.T, s *Schedule) {
	t.Helper()
	for _, place := range []Place{OutOfPlace, InPlace} {
		zero := ZeroCopySafe(s.Collective, s.Algorithm, place == InPlace)
		if err := Check(s, CheckOptions{Place: place, ZeroCopy: zero}); err != nil {
			t.Error(err)
		}
	}
	if err := Check(s, CheckOptions{Slots: -1, Windows: 2}); err != nil {
		t.Errorf("without limit of slots: %v", err)
	}
}

// TestLarge checks a sample of up to 1,440 ranks. All-pairs algorithms have n²
// connections, and stop at 360.
func TestLarge(t *testing.T) {
	sizes := []int{65, 72, 127, 128, 129, 144, 255, 256, 257, 360, 511, 512, 513, 1000, 1023, 1024, 1025, 1440}
	if testing.Short() {
		sizes = []int{72}
	}
	everything(func(c op.Collective, a string) {
		t.Run(fmt.Sprintf("%v/%s", c, a), func(t *testing.T) {
			for _, n := range sizes {
				o := Options{Ranks: n, Root: n / 3, Groups: chop(n, 72)}
				s := mustNew(t, c, a, o)
				if n > 360 && allPairs(c, a) {
					continue
				}
				for _, place := range []Place{OutOfPlace, InPlace} {
					if err := Check(s, CheckOptions{Windows: 2, Place: place}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	})
}

// allPairs reports whether every rank sends something else to every other.
func allPairs(c op.Collective, a string) bool {
	return a == TwoShot || a == OneShot && (c == op.AllToAll || c == op.ReduceScatter) || c == op.AllToAll
}

// TestNoMulticast: no schedule sends to Everyone where that is not possible.
func TestNoMulticast(t *testing.T) {
	everything(func(c op.Collective, a string) {
		st, err := mustNew(t, c, a, Options{Ranks: 7, NoMulticast: true}).Stats()
		if err != nil || st.Multi != 0 {
			t.Errorf("%v %s: %d messages to everyone, %v", c, a, st.Multi, err)
		}
	})
}

// TestRaces: lanes are proved free of races up to a number of lanes that covers
// every algorithm for 64 ranks.
func TestRaces(t *testing.T) {
	everything(func(c op.Collective, a string) {
		m, err := newMachine(mustNew(t, c, a, Options{Ranks: 64}), CheckOptions{}, OutOfPlace, 0)
		if err != nil {
			t.Fatal(err)
		}
		if m.sharing() && m.track == nil {
			t.Errorf("%v %s of 64 ranks has %d lanes; races are proved for %d", c, a, len(m.lanes), clockLanes)
		}
	})
}

// TestZeroCopySafe: where zero copy is not promised it is in fact not safe.
func TestZeroCopySafe(t *testing.T) {
	everything(func(c op.Collective, a string) {
		for _, inPlace := range []bool{false, true} {
			place := OutOfPlace
			if inPlace {
				place = InPlace
			}
			s := mustNew(t, c, a, Options{Ranks: 6})
			if _, _, ok := s.overlay(0); inPlace && !ok {
				continue
			}
			err := Check(s, CheckOptions{Place: place, ZeroCopy: true})
			if got, want := err == nil, ZeroCopySafe(c, a, inPlace); got != want {
				t.Errorf("%v %s, in place %v: zero copy is safe = %v (%v); ZeroCopySafe says %v", c, a, inPlace, got, err, want)
			}
		}
	})
}

// TestOneSlot: which algorithms need MinSlots, and not one, is as documented.
func TestOneSlot(t *testing.T) {
	s := mustNew(t, op.AllReduce, Ring, Options{Ranks: 4})
	err := Check(s, CheckOptions{Slots: 1})
	if err == nil || !strings.Contains(err.Error(), "deadlock with 1 slots") {
		t.Errorf("Check of a ring with one slot = %v; want a deadlock", err)
	}
	for _, a := range []string{Tree, DoubleTree, Recursive, RecursiveDoubling, OneShot, TwoShot} {
		if err := Check(mustNew(t, op.AllReduce, a, Options{Ranks: 11}), CheckOptions{Slots: 1}); err != nil {
			t.Errorf("with one slot: %v", err)
		}
	}
}
