package flip

import (
	"github.com/assay-hpc/assay/coll/op"
)

// MaxRanks is how many ranks a Check has at most.
const MaxRanks = 8

// Slots of a rank's words. Where data are only moved, word d is about the part that goes to rank d (word 0
// alone where all get the same), and word Came+s about what has come from rank s. Of a reduction, word s is
// about the piece of rank s's input that has come once more, behind the operation.
const (
	Came  = MaxRanks
	Given = MaxRanks + iota - 1 // the piece of the rank's own input
	Again                       // the piece of the result, as the rank itself makes it of all inputs
	Got                         // the same piece of what the operation has written
	Whole                       // all that the operation has written
	Slots = 2 * MaxRanks
)

// Words are the checksums of all ranks.
type Words [MaxRanks][Slots]uint64

// None is the class of a word that says nothing.
const None = 255

// Classes say which words must be equal: those with the same number.
type Classes [MaxRanks][Slots]uint8

// A Check is what is known of an operation whose words were exchanged.
type Check struct {
	Coll        op.Collective
	Ranks, Root int
	// Owner is the rank that reduces the piece, Itself if each rank reduces what it gets.
	Owner int
	// Passed: data reach a rank by way of others.
	Passed bool
	// Unordered: the operation does not add in the order that Again does, which is left out.
	Unordered bool
}

// same reports whether a collective sends the same to all.
func (c *Check) same() bool { return c.Coll == op.AllGather || c.Coll == op.Broadcast }

// sends and gets report which ranks' buffers there are.
func (c *Check) sends(r int) bool {
	return c.Coll != op.Broadcast && c.Coll != op.Scatter || r == c.Root
}

func (c *Check) gets(r int) bool { return c.Coll != op.Gather && c.Coll != op.Reduce || r == c.Root }

// pair returns the slots of what goes from s to r, at either; ok is false if nothing does.
func (c *Check) pair(s, r int) (goes, came int, ok bool) {
	if !c.sends(s) || !c.gets(r) {
		return 0, 0, false
	}
	if goes = r; c.same() || c.Coll == op.Gather {
		goes = 0
	}
	return goes, Came + s, true
}

// piece reports whether a rank has the piece of the result.
func (c *Check) piece(r int) bool {
	return c.gets(r) && (c.Coll != op.ReduceScatter || r == c.Owner)
}

// Classes returns the classes of the operation's words.
func (c *Check) Classes() (all Classes) {
	for r := range all {
		for i := range all[r] {
			all[r][i] = None
		}
	}
	if !c.Coll.Reduces() {
		for s := range c.Ranks {
			for r := range c.Ranks {
				if goes, came, ok := c.pair(s, r); ok {
					class := uint8(s*MaxRanks + goes)
					all[s][goes], all[r][came] = class, class
				}
			}
		}
		return all
	}
	for r := range c.Ranks {
		if !c.Unordered {
			all[r][Given] = uint8(r)
			for s := range c.Ranks {
				all[r][s] = uint8(s)
			}
			all[r][Again] = Again
			if c.piece(r) {
				all[r][Got] = Again
			}
		}
		if c.Coll == op.AllReduce {
			all[r][Whole] = Whole
		}
	}
	return all
}

// Blame returns who may be at fault; nil if the words agree. what says what was found.
func (c *Check) Blame(w *Words) (all []Suspect, what string) {
	if !c.Coll.Reduces() {
		bad := pairs(c.Ranks, func(s, r int) bool {
			goes, came, ok := c.pair(s, r)
			return ok && w[s][goes] != w[r][came]
		})
		if len(bad) == 0 {
			return nil, ""
		}
		return c.moved(bad), "what came is not what was sent"
	}
	trusted := make([]bool, c.Ranks)
	for r := range trusted {
		trusted[r] = !c.Unordered
	}
	if !c.Unordered {
		if bad := pairs(c.Ranks, func(s, r int) bool { return w[s][Given] != w[r][s] }); len(bad) > 0 {
			for _, p := range bad {
				trusted[p[1]] = false
			}
			again := Check{Coll: op.AllGather, Ranks: c.Ranks}
			all, what = again.moved(bad), "what came is not what was sent, when the inputs were exchanged once more"
		}
	}
	right, odd, known := c.witnesses(w, trusted)
	if len(odd) > 0 {
		all, what = set(all, odd...), "the ranks came to different sums of the same inputs"
	}
	if known {
		if more, text := c.result(w, right); len(more) > 0 {
			return set(all, more...), text
		}
	}
	if len(all) == 0 && c.Coll == op.AllReduce {
		if all = c.whole(w); len(all) > 0 {
			what = "the results of the ranks differ"
		}
	}
	return all, what
}

func pairs(n int, bad func(s, r int) bool) (all [][2]int) {
	for s := range n {
		for r := range n {
			if bad(s, r) {
				all = append(all, [2]int{s, r})
			}
		}
	}
	return all
}

// moved returns who may be at fault for parts that came wrong, each from one rank to another.
func (c *Check) moved(bad [][2]int) (all []Suspect) {
	from, to := map[int]bool{}, map[int]bool{}
	for _, p := range bad {
		from[p[0]], to[p[1]] = true, true
	}
	switch {
	case len(from) == 1 && len(to) > 1:
		all = []Suspect{{bad[0][0], Itself}}
		if c.Passed && len(to) < c.Ranks-1 { // some who came later than the fault
			all = nil
			for r := range to {
				all = set(all, Suspect{r, Itself}, Suspect{r, Anyone})
			}
		}
	case len(to) == 1 && len(from) > 1:
		all = []Suspect{{bad[0][1], Itself}}
	default:
		for _, p := range bad {
			switch {
			case p[0] == p[1]:
				all = set(all, Suspect{p[0], Itself})
			case c.Passed && c.Ranks > 2:
				all = set(all, Suspect{p[1], Itself}, Suspect{p[1], Anyone})
			default:
				all = set(all, Suspect{p[1], p[0]})
			}
		}
	}
	return all
}

// witnesses returns the checksum of the piece of the result as most ranks make it of all inputs, and who
// made another one. known is false if it cannot be told which is right.
func (c *Check) witnesses(w *Words, trusted []bool) (right uint64, odd []Suspect, known bool) {
	votes, n := map[uint64]int{}, 0
	for r := range c.Ranks {
		if trusted[r] {
			votes[w[r][Again]]++
			n++
		}
	}
	for v, k := range votes {
		if 2*k > n {
			right, known = v, true
		}
	}
	if !known && c.Ranks == 2 && n == 2 {
		right, known = c.second(w)
	}
	if !known && n == 0 {
		return 0, nil, false
	}
	for r := range c.Ranks {
		if trusted[r] && (!known || w[r][Again] != right) {
			odd = append(odd, Suspect{r, Itself})
		}
	}
	return right, odd, known
}

// second decides between two ranks that made different sums: the operation's own, if the other rank made
// it, is a second opinion.
func (c *Check) second(w *Words) (right uint64, known bool) {
	if c.Owner == Itself {
		if c.piece(0) && c.piece(1) && w[0][Got] == w[1][Got] {
			return w[0][Got], w[0][Got] == w[0][Again] || w[0][Got] == w[1][Again]
		}
		return 0, false
	}
	other := 1 - c.Owner
	for r := range 2 {
		if c.piece(r) && w[r][Got] == w[other][Again] {
			return w[other][Again], true
		}
	}
	return 0, false
}

// result returns who may be at fault for a piece of the result that is not the right one.
func (c *Check) result(w *Words, right uint64) (all []Suspect, what string) {
	var wrong []int
	have, others := 0, 0 // others: than the owner
	for r := range c.Ranks {
		if !c.piece(r) {
			continue
		}
		have++
		if w[r][Got] != right {
			wrong = append(wrong, r)
			if r != c.Owner {
				others++
			}
		}
	}
	if len(wrong) == 0 {
		return nil, ""
	}
	what = "the sum is wrong"
	switch {
	case c.Passed && len(wrong) == have: // each rank has added
		for r := range c.Ranks {
			all = append(all, Suspect{r, Itself})
		}
	case c.Passed, c.Owner == Itself:
		for _, r := range wrong {
			all = append(all, Suspect{r, Itself}, Suspect{r, Anyone})
		}
	case len(wrong) == have || others > 1: // so the owner has sent it
		all = []Suspect{{c.Owner, Itself}, {c.Owner, Anyone}}
		if have == 1 && wrong[0] != c.Owner { // a Reduce
			all = append(all, Suspect{wrong[0], c.Owner})
		}
	default:
		what = "the sum is right, and not everywhere"
		for _, r := range wrong {
			if r == c.Owner {
				all = append(all, Suspect{r, Itself})
			} else {
				all = append(all, Suspect{r, c.Owner})
			}
		}
	}
	return all, what
}

// whole returns the ranks whose result is not that of most.
func (c *Check) whole(w *Words) (all []Suspect) {
	votes := map[uint64]int{}
	for r := range c.Ranks {
		votes[w[r][Whole]]++
	}
	if len(votes) < 2 {
		return nil
	}
	for r := range c.Ranks {
		if 2*votes[w[r][Whole]] <= c.Ranks {
			all = append(all, Suspect{r, Itself})
			if c.Ranks > 2 {
				all = append(all, Suspect{r, Anyone})
			}
		}
	}
	return all
}
