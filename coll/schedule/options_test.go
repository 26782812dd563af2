package schedule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/golden"
)

func TestNewErrors(t *testing.T) {
	for _, tt := range []struct {
		c         op.Collective
		algorithm string
		o         Options
		want      string
	}{
		{op.NumCollectives, Ring, Options{Ranks: 2}, "no collective number 9"},
		{op.AllToAll, Ring, Options{Ranks: 2}, `AllToAll has no algorithm "ring"; it has one-shot, bruck`},
		{op.AllReduce, "rings", Options{Ranks: 2}, `no algorithm "rings"; it has ring, tree`},
		{op.AllReduce, Ring, Options{}, "0 ranks; there may be 1 to 16384"},
		{op.AllReduce, Ring, Options{Ranks: -1}, "-1 ranks"},
		{op.Broadcast, Ring, Options{Ranks: 4, Root: 4}, "root 4 is not one of the 4 ranks"},
		{op.AllReduce, Ring, Options{Ranks: 4, Channels: -1}, "-1 channels"},
		{op.AllReduce, DoubleTree, Options{Ranks: 4, Channels: MaxChannels}, "2048 channels; there may be 1024"},
		{op.AllReduce, Ring, Options{Ranks: 3, Rings: [][]int{{0, 1, 2}, {0, 2, 2}}}, "ring 1: rank 2 is there twice"},
		{op.AllReduce, Ring, Options{Ranks: 3, Rings: [][]int{{0, 1}}}, "ring 0: rank 2 is missing"},
		{op.AllReduce, Ring, Options{Ranks: 3, Rings: [][]int{{}}}, "ring 0: group 0 is empty"},
		{op.AllReduce, Hierarchical, Options{Ranks: 3}, "needs Options.Groups"},
		{op.Broadcast, Hierarchical, Options{Ranks: 3}, "needs Options.Groups"},
		{op.AllReduce, Hierarchical, Options{Ranks: 3, Groups: [][]int{{0, 3}}}, "groups: rank 3 is not one of the 3 ranks"},
		{op.AllReduce, Hierarchical, Options{Ranks: 3, Groups: [][]int{{0, 1, 2}, {}}}, "groups: group 1 is empty"},
		{op.AllReduce, Tree, Options{Ranks: 3, Groups: [][]int{{0, 1}}}, "groups: rank 2 is missing"},
	} {
		s, err := New(tt.c, tt.algorithm, tt.o)
		if err == nil || s != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New(%v, %q, %+v) = %v, %v; want an error with %q", tt.c, tt.algorithm, tt.o, s, err, tt.want)
		}
	}
}

// TestChannels: how many there are.
func TestChannels(t *testing.T) {
	order := []int{2, 1, 0}
	for _, tt := range []struct {
		algorithm string
		o         Options
		want      int
	}{
		{Ring, Options{Ranks: 3}, 1},
		{Ring, Options{Ranks: 3, Rings: [][]int{order, order}}, 2},
		{Ring, Options{Ranks: 3, Rings: [][]int{order, order}, Channels: 5}, 5},
		{Tree, Options{Ranks: 3}, 1},
		{DoubleTree, Options{Ranks: 3}, 2},
		{DoubleTree, Options{Ranks: 3, Channels: 4}, 8},
	} {
		if s := mustNew(t, op.AllReduce, tt.algorithm, tt.o); s.Channels != tt.want {
			t.Errorf("New(op.AllReduce, %q, %+v) has %d channels; want %d", tt.algorithm, tt.o, s.Channels, tt.want)
		}
	}
}

// TestMaxSpan: it is what the widest step moves.
func TestMaxSpan(t *testing.T) {
	everything(func(c op.Collective, a string) {
		for n := 1; n <= 40; n++ {
			for _, o := range variants(c, a, n) {
				s := mustNew(t, c, a, o)
				widest := 0
				for r := range n {
					widest = max(widest, s.widest(r))
				}
				if s.MaxSpan != widest {
					t.Errorf("New(%v, %q, %+v).MaxSpan = %d; want %d", c, a, o, s.MaxSpan, widest)
				}
			}
		}
	})
}

// TestPure: a program is the same each time, and is not shared.
func TestPure(t *testing.T) {
	everything(func(c op.Collective, a string) {
		s := mustNew(t, c, a, Options{Ranks: 6})
		before := s.String()
		for r := range s.Ranks {
			for _, l := range s.Program(r).Lanes {
				clear(l.Steps)
			}
		}
		if s.String() != before {
			t.Errorf("%v %s: changing a program changes the next", c, a)
		}
	})
}

// TestNamesUnique: no collective has two algorithms of one name.
func TestNamesUnique(t *testing.T) {
	seen := make(map[string]bool)
	everything(func(c op.Collective, a string) {
		if seen[fmt.Sprint(c, a)] {
			t.Errorf("%v has %s twice", c, a)
		}
		seen[fmt.Sprint(c, a)] = true
	})
	if got := Algorithms(op.NumCollectives); got != nil {
		t.Errorf("Algorithms(op.NumCollectives) = %v; want none", got)
	}
}

// TestGolden prints every algorithm for four ranks.
func TestGolden(t *testing.T) {
	for c := range op.NumCollectives {
		var b strings.Builder
		for _, a := range Algorithms(c) {
			o := Options{Ranks: 4, Root: 1, Groups: nil}
			if !c.Rooted() {
				o.Root = 0
			}
			if a == Hierarchical {
				o.Groups = chop(4, 2)
			}
			b.WriteString(mustNew(t, c, a, o).String())
			b.WriteString("\n")
		}
		golden.Check(t, strings.ToLower(c.String())+".txt", b.String())
	}
}
