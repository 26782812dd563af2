package schedule

import (
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

// TestVolume: the figures of the algorithms' papers for 64 and 12 ranks, and
// that the bounds are reached.
func TestVolume(t *testing.T) {
	for _, tt := range []struct {
		c           op.Collective
		algorithm   string
		n           int
		total, most float64
	}{
		{op.AllReduce, Ring, 64, 126, 126. / 64},
		{op.AllReduce, Ring, 12, 22, 22. / 12},
		{op.AllReduce, Recursive, 64, 126, 126. / 64},
		{op.AllReduce, Recursive, 12, 22, 14./8 + 1},
		{op.AllReduce, RecursiveDoubling, 64, 64 * 6, 6},
		{op.AllReduce, RecursiveDoubling, 12, 8*3 + 2*4, 4},
		{op.AllReduce, Tree, 64, 126, 3},
		{op.AllReduce, DoubleTree, 64, 126, 2},
		{op.AllReduce, DoubleTree, 63, 124, 2},
		{op.AllReduce, OneShot, 64, 64, 1},
		{op.AllReduce, TwoShot, 64, 64, 1},
		{op.Broadcast, Ring, 64, 63, 1},
		{op.Broadcast, Tree, 64, 63, 2},
		{op.Broadcast, OneShot, 64, 1, 1},
		{op.Broadcast, TwoShot, 64, 2 - 1./64, 1},
		{op.Reduce, Tree, 64, 63, 1},
		{op.Reduce, TwoShot, 64, 63 + 63./64, 1},
		{op.AllGather, Ring, 64, 64 * 63, 63},
		{op.AllGather, Bruck, 12, 12 * 11, 11},
		{op.AllGather, OneShot, 64, 64, 1},
		{op.AllGather, Recursive, 64, 64 * 63, 63},
		{op.ReduceScatter, Bruck, 12, 12 * 11, 11},
		{op.ReduceScatter, Hierarchical, 64, 64 * 63, 63},
		{op.AllToAll, OneShot, 64, 64 * 63, 63},
		{op.AllToAll, Bruck, 64, 64 * 6 * 32, 6 * 32},
		{op.Gather, OneShot, 64, 63, 1},
		{op.Gather, Tree, 64, 6 * 32, 32},
		{op.Scatter, OneShot, 64, 63, 63},
		{op.Scatter, Tree, 64, 6 * 32, 63},
		{op.SendRecv, OneShot, 64, 64, 1},
	} {
		s := mustNew(t, tt.c, tt.algorithm, Options{Ranks: tt.n})
		st, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		unit := float64(s.Channels)
		if s.Collective.Vector() {
			unit *= float64(s.Blocks)
		}
		var total int
		for _, n := range st.Sent {
			total += n
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		if got := float64(total) / unit; !near(got, tt.total) {
			t.Errorf("%v %s of %d: total %v; want %v", tt.c, tt.algorithm, tt.n, got, tt.total)
		}
		if got := float64(slices.Max(st.Sent)) / unit; !near(got, tt.most) {
			t.Errorf("%v %s of %d: most %v; want %v", tt.c, tt.algorithm, tt.n, got, tt.most)
		}
		v, ok := Volume(tt.c, tt.algorithm, tt.n)
		if !ok || !near(v.Total, tt.total) || v.Most < tt.most-1e-9 {
			t.Errorf("Volume(%v, %s, %d) = %v, %v; want %v, %v or more", tt.c, tt.algorithm, tt.n, v, ok, tt.total, tt.most)
		}
	}
	if v, ok := Volume(op.Gather, Ring, 4); ok {
		t.Errorf("Volume(op.Gather, ring, 4) = %v; there is no such algorithm", v)
	}
}

// TestReceived: what all receive is what all send, once a receiver.
func TestReceived(t *testing.T) {
	everything(func(c op.Collective, a string) {
		s := mustNew(t, c, a, Options{Ranks: 7})
		st, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		want, got := 0, 0
		for r := range s.Ranks {
			got += st.Received[r]
			for _, l := range s.Program(r).Lanes {
				for _, step := range l.Steps {
					switch step.Send {
					case Nobody:
					case Everyone:
						want += int(step.Data.N) * (s.Ranks - 1)
					default:
						want += int(step.Data.N)
					}
				}
			}
		}
		if got != want && (a != CollNet || c == op.AllReduce) { // whose network makes more or less of them
			t.Errorf("%v %s: %d blocks received; %d sent", c, a, got, want)
		}
	})
}

// TestRounds: the longest chain of messages is as long as it should be.
func TestRounds(t *testing.T) {
	log := func(n int) int { return bits.Len(uint(n - 1)) } // rounded up
	for _, tt := range []struct {
		c         op.Collective
		algorithm string
		want      func(n int) int
	}{
		{op.AllReduce, Ring, func(n int) int { return 2 * (n - 1) }},
		{op.AllReduce, OneShot, func(int) int { return 1 }},
		{op.AllReduce, TwoShot, func(int) int { return 2 }},
		{op.AllReduce, Tree, func(n int) int { return 2 * (bits.Len(uint(n)) - 1) }},
		{op.AllReduce, RecursiveDoubling, func(n int) int {
			switch extra := n & (1<<(bits.Len(uint(n))-1) - 1); extra {
			case 0:
				return log(n)
			case 1: // its own partner waits for nobody else that is late
				return log(n)
			}
			return log(n) + 1
		}},
		{op.AllReduce, Recursive, func(n int) int {
			if n&(n-1) != 0 {
				return 2*(bits.Len(uint(n))-1) + 2
			}
			return 2 * log(n)
		}},
		{op.Broadcast, Ring, func(n int) int { return n - 1 }},
		{op.Broadcast, OneShot, func(int) int { return 1 }},
		{op.AllGather, Ring, func(n int) int { return n - 1 }},
		{op.AllGather, Bruck, log},
		{op.ReduceScatter, Bruck, log},
		{op.AllToAll, Bruck, log},
		{op.AllToAll, OneShot, func(int) int { return 1 }},
		{op.Gather, Tree, mostOnes},
		{op.Scatter, Tree, mostOnes},
		{op.SendRecv, OneShot, func(int) int { return 1 }},
	} {
		for _, n := range []int{2, 3, 7, 8, 9, 33} {
			st, err := mustNew(t, tt.c, tt.algorithm, Options{Ranks: n}).Stats()
			if err != nil {
				t.Fatal(err)
			}
			if st.Rounds != tt.want(n) {
				t.Errorf("%v %s of %d: %d rounds; want %d", tt.c, tt.algorithm, n, st.Rounds, tt.want(n))
			}
		}
	}
}

// mostOnes is the depth of a binomial tree: the most bits set in a role.
func mostOnes(n int) int {
	most := 0
	for v := range n {
		most = max(most, bits.OnesCount(uint(v)))
	}
	return most
}

// TestDoubleTree: no rank has two children in both trees but, for an even
// number of ranks, one; all are within reach of a logarithm.
func TestDoubleTree(t *testing.T) {
	for n := 2; n < 200; n++ {
		s := mustNew(t, op.AllReduce, DoubleTree, Options{Ranks: n})
		a, b := grow(Options{Ranks: n}, 0, 0, inOrder), grow(Options{Ranks: n}, 0, 1, inOrderTwin)
		both := 0
		for r := range n {
			if len(a.children[r]) > 2 || len(b.children[r]) > 2 {
				t.Fatalf("%d ranks: rank %d has more than two children", n, r)
			}
			if r > 0 && len(a.children[r]) > 0 && len(b.children[r]) > 0 {
				both++
			}
		}
		if both > 1-n%2 {
			t.Errorf("%d ranks: %d are inside both trees", n, both)
		}
		st, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if limit := 2 * (bits.Len(uint(n-1)) + 1); st.Rounds > limit {
			t.Errorf("%d ranks: %d rounds; want at most %d", n, st.Rounds, limit)
		}
	}
}

// TestWindowsOverlap: in pipelines the time of many windows grows by the steps
// of the busiest lane, not by the length of the whole pipe.
func TestWindowsOverlap(t *testing.T) {
	for _, tt := range []struct {
		c         op.Collective
		algorithm string
		each      int // steps of the busiest lane
	}{
		{op.Broadcast, Ring, 1}, {op.Reduce, Ring, 1}, {op.AllReduce, Tree, 3}, {op.AllReduce, DoubleTree, 2}, {op.Broadcast, Tree, 2}, {op.Reduce, Tree, 2},
	} {
		s := mustNew(t, tt.c, tt.algorithm, Options{Ranks: 31})
		time := func(windows int) int {
			m, err := newMachine(s, CheckOptions{Windows: windows, Slots: -1}, OutOfPlace, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.run(); err != nil {
				t.Fatal(err)
			}
			longest := 0
			for i := range m.lanes {
				longest = max(longest, int(m.lanes[i].time))
			}
			return longest
		}
		if got := time(101) - time(1); got != 100*tt.each {
			t.Errorf("%v %s: 100 more windows take %d steps; want %d", tt.c, tt.algorithm, got, 100*tt.each)
		}
	}
}
