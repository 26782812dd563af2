package colltest

import (
	"slices"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// Options configure Run. The zero value is what every engine should pass.
type Options struct {
	Ranks []int           // numbers of ranks; nil: 1 to 9, with -short 1, 2, 3 and 5
	Edges []int           // lengths in bytes around which counts are chosen, in addition to small ones: slots, windows, chunks
	Only  []op.Collective // nil is all
}

func (o Options) ranks(short bool) []int {
	switch {
	case o.Ranks != nil:
		return o.Ranks
	case short:
		return []int{1, 2, 3, 5}
	}
	return []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
}

// defaultEdges are powers of two at which engines change their behavior: a page, a small
// message's bound, a slot, a pipeline of slots.
var defaultEdges = []int{4 << 10, 64 << 10, 512 << 10}

// plan returns the operations for n ranks, the same on every rank.
func (o Options) plan(n int, short bool) []operation {
	var ops []operation
	add := func(c op.Collective, t elem.Type, red elem.Op, count, root int) {
		for _, inPlace := range []bool{false, true} {
			if _, _, ok := c.InPlace(0); inPlace && !ok {
				continue
			}
			seed := mix(uint64(len(ops)) + uint64(n)<<32)
			ops = append(ops, operation{coll: c, t: t, op: red, count: count, root: root, inPlace: inPlace, seed: seed, answer: new(answer)})
		}
	}
	for c := range op.NumCollectives {
		if o.Only != nil && !slices.Contains(o.Only, c) {
			continue
		}
		everyType(c, n, short, add)
		o.everyCount(c, n, short, add)
		if c.Rooted() {
			for root := range n {
				add(c, elem.Float32, elem.Sum, 3*n+1, root)
			}
		}
	}
	return ops
}

type adder func(c op.Collective, t elem.Type, red elem.Op, count, root int)

// everyType adds all types and reductions at a few counts; with -short one of the counts each, in
// turn.
func everyType(c op.Collective, n int, short bool, add adder) {
	counts := []int{1, 17, 1021}
	k := 0
	for _, t := range elem.Types {
		for _, red := range elem.Ops {
			if !c.Reduces() && red != elem.Sum {
				continue
			}
			for i, count := range counts {
				if !short || i == k%len(counts) {
					add(c, t, red, count, k%n)
				}
			}
			k++
		}
	}
}

// everyCount adds many counts, with types of four bytes, one byte and two bytes.
func (o Options) everyCount(c op.Collective, n int, short bool, add adder) {
	small := []int{0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 33, 63, 65, 127, 129, n - 1, n, n + 1, n*n + 1}
	slices.Sort(small)
	for _, t := range []elem.Type{elem.Float32, elem.Int8, elem.BFloat16} {
		counts := slices.Compact(slices.Clone(small))
		for i, edge := range slices.Concat(defaultEdges, o.Edges) {
			if i > 0 && i < len(defaultEdges) && (short || t != elem.Float32) {
				continue
			}
			parts := c.Longest(n) // so that the whole buffer is at the edge, too, and not only a part
			for _, e := range []int{edge / t.Size(), edge / t.Size() / parts} {
				counts = append(counts, e-1, e, e+1)
			}
		}
		slices.Sort(counts)
		for i, count := range slices.Compact(counts) {
			if count >= 0 {
				add(c, t, elem.Sum, count, i%n)
			}
		}
	}
}
