package knob

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

func mustFilter(v *vocabulary, s string) Filter {
	f, err := parseFilter(v, s)
	if notes(err) == nil && err != nil {
		panic(err)
	}
	return f
}

func TestFilter(t *testing.T) {
	const all = "ring tree double-tree recursive recursive-doubling bruck one-shot two-shot hierarchical collnet"
	for _, c := range []struct {
		text string
		c    op.Collective
		want string
	}{
		{"Ring", op.AllReduce, "ring"},
		{"Ring", op.ReduceScatter, "ring"},
		{"Ring", op.AllToAll, all},
		{"Ring;alltoall:bruck", op.AllToAll, "bruck"},
		{"ring, tree", op.AllReduce, "ring tree double-tree"},
		{"Double-Tree", op.AllReduce, "double-tree"},
		{"PAT", op.AllGather, "bruck"},
		{"^ring", op.AllReduce, "tree double-tree recursive recursive-doubling bruck one-shot two-shot hierarchical collnet"},
		{"CollnetDirect,CollnetChain", op.AllReduce, "collnet"},
		{"^CollnetChain,ring", op.AllReduce, "tree double-tree recursive recursive-doubling bruck one-shot two-shot hierarchical"},
		{"^NVLS", op.AllReduce, all},
		{"NVLS,Ring", op.AllReduce, "ring"},
		{"ring;allreduce:tree;broadcast:^tree,ring", op.AllReduce, "tree double-tree"},
		{"ring;allreduce:tree;broadcast:^tree,ring", op.AllGather, "ring"},
		{"ring;allreduce:tree;broadcast:^tree,ring", op.Broadcast, "recursive recursive-doubling bruck one-shot two-shot hierarchical collnet"},
		{"AllGather:bruck", op.AllGather, "bruck"},
		{"AllGather:bruck", op.AllReduce, all},
		{"NVLS", op.AllReduce, all},
		{"ring,", op.AllReduce, "ring"},
		{"ring;allreduce:NVLS,NVLSTree", op.AllReduce, all},
		{"ring;allreduce:NVLS,NVLSTree", op.Reduce, "ring"},
	} {
		f := mustFilter(&algorithms, c.text)
		var got []string
		for _, name := range strings.Fields(all) {
			if f.Allows(c.c, name) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("NCCL_ALGO=%s: %v may use %v; want %s", c.text, c.c, got, c.want)
		}
		if f.String() != c.text {
			t.Errorf("String() = %q; want %q", f.String(), c.text)
		}
		if f.Allows(c.c, "nvls") || f.Allows(op.NumCollectives, "ring") {
			t.Errorf("NCCL_ALGO=%s allows what is not there", c.text)
		}
	}
	if !(Filter{}).Allows(op.Reduce, "whatever") {
		t.Error("the zero filter denies")
	}
}

// TestVocabulary: NCCL_ALGO knows the algorithms that there are.
func TestVocabulary(t *testing.T) {
	there := map[string]bool{}
	for c := range op.NumCollectives {
		for _, name := range schedule.Algorithms(c) {
			there[name] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(there)), slices.Sorted(slices.Values(algorithms.names)); !slices.Equal(got, want) {
		t.Errorf("coll/schedule has %v; NCCL_ALGO knows %v", got, want)
	}
}

func TestFilterErrors(t *testing.T) {
	for text, want := range map[string]string{
		"rign":            "did you mean ring?",
		"allredoos:ring":  "did you mean allreduce?",
		"allreduce:;nope": "there is no algorithm",
		"allreduce:^nope": `there is no algorithm "nope"`,
	} {
		if _, err := parseFilter(&algorithms, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func TestAllowsAllocatesNothing(t *testing.T) {
	f := mustFilter(&algorithms, "ring;allreduce:^tree")
	if n := testing.AllocsPerRun(100, func() {
		if !f.Allows(op.AllReduce, "two-shot") {
			t.Fatal("denied")
		}
	}); n != 0 {
		t.Errorf("%v allocations; want 0", n)
	}
}

// FuzzFilter: an accepted filter leaves every collective something.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{"ring", "^ring,tree", "ring;allreduce:tree", ":", ";", "^", "nvls"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		filter, err := parseFilter(&algorithms, s)
		if err != nil && notes(err) == nil {
			return
		}
		for c := range op.NumCollectives {
			left := 0
			for _, name := range algorithms.names {
				if filter.Allows(c, name) {
					left++
				}
			}
			if left == 0 {
				t.Errorf("%q leaves nothing for %v", s, c)
			}
		}
	})
}
