package schedule

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// Check proves a schedule by running it on symbols: for every channel and the
// given number of windows that
//
//   - every step is well formed and stays within its buffers;
//   - each connection is used by one lane on either side, and each message is
//     received as what it was sent;
//   - it comes to its end, with all messages received;
//   - no memory is read before it is written, lanes of a rank are ordered by
//     messages where one writes what the other uses (up to 256 lanes in all);
//   - every output block is the reduction of exactly what it should be, in
//     place as well as out of place, and AllReduce gives all the same bits,
//     Ordered those of a reduction in the order of the ranks;
//   - for the algorithms of this package, the bytes moved are those of Volume.
//
// The steps of a lane, and which lane uses a connection, do not depend on
// timing. So what is read from where is the same in every run, and if one run
// ends, all do (Kahn networks): one run is a proof for the given ranks.
func Check(s *Schedule, o CheckOptions) error {
	if err := s.sane(); err != nil {
		return err
	}
	places := []Place{OutOfPlace, InPlace}
	if o.Place != AnyPlace {
		places = []Place{o.Place}
	}
	for _, place := range places {
		if _, _, ok := s.overlay(0); place == InPlace && !ok {
			continue
		}
		for c := range s.Channels {
			if err := checkChannel(s, o, place, c); err != nil {
				where := fmt.Sprintf("schedule: %v %s of %d ranks, channel %d", s.Collective, s.Algorithm, s.Ranks, c)
				if place == InPlace {
					where += ", in place"
				}
				return fmt.Errorf("%s: %w", where, err)
			}
		}
	}
	return checkVolume(s)
}

func checkChannel(s *Schedule, o CheckOptions, place Place, channel int) error {
	m, err := newMachine(s, o, place, channel)
	if err != nil {
		return err
	}
	if o.ZeroCopy && m.track == nil {
		return fmt.Errorf("%d lanes are too many to check zero copy; up to %d can be", len(m.lanes), clockLanes)
	}
	if err := m.run(); err != nil {
		return err
	}
	bad, err := m.verify()
	if err != nil && s.Ranks <= 256 && s.Blocks <= 256 {
		// Once more, remembering every reduction, to say what is wrong.
		again, _ := newMachine(s, o, place, channel)
		again.ops = make(map[uint64][2]uint64)
		if again.run() == nil {
			err = fmt.Errorf("%w: %s", err, again.explain(bad))
		}
	}
	return err
}

// A place in the output where the value is wrong.
type wrong struct{ rank, window, block int }

// verify compares every output with what it must be.
func (m *machine) verify() (wrong, error) {
	s := m.s
	sums := make([]uint64, max(s.Blocks, s.Ranks))
	if s.Collective.Reduces() {
		for b := range s.Blocks {
			for r := range s.Ranks {
				sums[b] += leaf(r, b).sum
			}
		}
	}
	var first []value
	for r := range s.Ranks {
		n := s.OutputBlocks(r)
		for w := range m.windows {
			for b := range n {
				got := m.ranks[r].cells[m.ranks[r].index(w, m.ranks[r].output+b)]
				want, reduced, from := s.want(r, b)
				switch {
				case reduced && s.Ordered:
					if want = s.inOrder(from); got.sum == want.sum && got != want {
						return wrong{r, w, b}, fmt.Errorf("rank %d, window %d: output block %d is not reduced in the order of the ranks", r, w, b)
					}
				case reduced:
					want = value{sums[from], got.tree}
				}
				if got != want {
					return wrong{r, w, b}, fmt.Errorf("rank %d, window %d: output block %d is wrong", r, w, b)
				}
			}
		}
		if s.Collective != op.AllReduce {
			continue
		}
		got := m.ranks[r].cells[m.ranks[r].output : m.ranks[r].output+n]
		if r == 0 {
			first = got
		} else if i := firstDifferent(first, got); i >= 0 {
			return wrong{r, 0, i}, fmt.Errorf("rank %d: output block %d is reduced in another order than on rank 0: results would differ in bits", r, i)
		}
	}
	return wrong{}, nil
}

// inOrder is block b of all ranks' inputs, reduced in the order of the ranks.
func (s *Schedule) inOrder(b int) value {
	v := leaf(0, b)
	for r := 1; r < s.Ranks; r++ {
		v = reduce(v, leaf(r, b))
	}
	return v
}

// explain says how often which rank's contribution is in a wrong block.
func (m *machine) explain(at wrong) string {
	k := &m.ranks[at.rank]
	v := k.cells[k.index(at.window, k.output+at.block)]
	if v == (value{}) {
		return "it was never written"
	}
	type source struct{ rank, block int }
	leaves := make(map[uint64]source)
	for r := range m.s.Ranks {
		for b := range m.s.InputBlocks(r) {
			leaves[leaf(r, b).tree] = source{r, b}
		}
	}
	counts := make(map[source]int)
	var walk func(tree uint64)
	walk = func(tree uint64) {
		if l, ok := leaves[tree]; ok {
			counts[l]++
		} else if op, ok := m.ops[tree]; ok && len(counts) < 1<<16 {
			walk(op[0])
			walk(op[1])
		}
	}
	walk(v.tree)
	keys := make([]source, 0, len(counts))
	for l := range counts {
		keys = append(keys, l)
	}
	slices.SortFunc(keys, func(a, b source) int {
		if a.block != b.block {
			return a.block - b.block
		}
		return a.rank - b.rank
	})
	text := "it is made of"
	for i, l := range keys {
		if i == 64 {
			return text + " …"
		}
		text += fmt.Sprintf(" %d×[rank %d block %d]", counts[l], l.rank, l.block)
	}
	return text
}

// firstDifferent is the index where two lists of one length differ, or -1.
func firstDifferent(a, b []value) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// want is what block b of rank r's output must be: a single contribution, or
// (reduced) the reduction of block b of what every rank has.
func (s *Schedule) want(r, b int) (single value, reduced bool, from int) {
	switch s.Collective {
	case op.AllReduce, op.Reduce:
		return value{}, true, b
	case op.ReduceScatter:
		return value{}, true, r
	case op.Broadcast:
		return leaf(s.Root, b), false, 0
	case op.AllGather, op.Gather:
		return leaf(b, 0), false, 0
	case op.AllToAll:
		return leaf(b, r), false, 0
	case op.Scatter:
		return leaf(s.Root, r), false, 0
	}
	return leaf(mod(r-1, s.Ranks), 0), false, 0
}
