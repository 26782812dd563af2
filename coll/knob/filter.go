package knob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/words"
)

// A Filter says which algorithms, or protocols, each collective may use. The
// zero Filter allows all.
//
// Its syntax is NCCL's, of 2.24 and later: names separated by commas; a ^ in front means all
// others. Lists for single functions follow after semicolons, with the function's name before a
// colon: "ring,tree;allgather:bruck;broadcast:^tree". As in NCCL, a list without a function
// applies to AllReduce, Broadcast, Reduce, AllGather and ReduceScatter; the others, which NCCL
// builds from Send and Recv, are only restricted by name.
type Filter struct {
	text   string
	vocab  *vocabulary
	denied [op.NumCollectives]uint32 // by position in vocab.names
}

// A vocabulary is the set of words that a filter's list may contain.
type vocabulary struct {
	what   string              // "algorithm"
	names  []string            // names that run here
	alias  map[string][]string // NCCL's names for one or several of them
	absent []string            // NCCL's names for what cannot run here
}

// algorithms are the algorithms of coll/schedule.
var algorithms = vocabulary{
	what:   "algorithm",
	names:  []string{"ring", "tree", "double-tree", "recursive", "recursive-doubling", "bruck", "one-shot", "two-shot", "hierarchical", "collnet"},
	alias:  map[string][]string{"tree": {"tree", "double-tree"}, "pat": {"bruck"}, "collnetdirect": {"collnet"}, "collnetchain": {"collnet"}},
	absent: []string{"nvls", "nvlstree"},
}

var protocols = vocabulary{what: "protocol", names: []string{"ll", "simple"}, absent: []string{"ll128"}}

// tuned are the collectives to which a list without a function applies.
var tuned = []op.Collective{op.AllReduce, op.Broadcast, op.Reduce, op.AllGather, op.ReduceScatter}

func filter(v *vocabulary, field func(*Knobs) *Filter) kind {
	values := "a list of " + strings.Join(v.all(), ", ") + "; ^ before it: all others; function:list after a semicolon"
	return kind{values, func(k *Knobs, s string) error {
		f, err := parseFilter(v, s)
		if err == nil || notes(err) != nil {
			*field(k) = f
		}
		return err
	}}
}

// all returns the words that a list may contain.
func (v *vocabulary) all() []string {
	out := slices.Clone(v.names)
	for a := range v.alias {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return append(out, v.absent...)
}

// bits returns the set of names that a word of a list stands for, empty if it cannot run here.
func (v *vocabulary) bits(name string) (uint32, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	stands := v.alias[name]
	if stands == nil {
		stands = []string{name}
	}
	var set uint32
	for _, s := range stands {
		if i := slices.Index(v.names, s); i >= 0 {
			set |= 1 << i
		}
	}
	if set == 0 && !slices.Contains(v.absent, name) {
		return 0, fmt.Errorf("there is no %s %q (did you mean %s?)", v.what, name, words.Nearest(name, v.all()))
	}
	return set, nil
}

// list parses names separated by commas, and returns the set of those that they deny. A list that
// leaves nothing that runs here denies nothing: NCCL runs with NVLS alone, for example. The error is
// then a note.
func (v *vocabulary) list(s string) (denied uint32, err error) {
	every := uint32(1)<<len(v.names) - 1
	names, negate := strings.CutPrefix(strings.TrimSpace(s), "^")
	var set uint32
	for name := range strings.SplitSeq(names, ",") {
		if strings.TrimSpace(name) == "" { // as NCCL does
			continue
		}
		bits, err := v.bits(name)
		if err != nil {
			return 0, err
		}
		set |= bits
	}
	if !negate {
		set = every &^ set
	}
	if set == every {
		return 0, note{fmt.Sprintf("%q leaves no %s that runs here, and all may run", debug.Short(strings.TrimSpace(s), valueBytes), v.what), true}
	}
	return set, nil
}

func parseFilter(v *vocabulary, s string) (Filter, error) {
	f := Filter{text: s, vocab: v}
	var read error
	for part := range strings.SplitSeq(s, ";") {
		function, list, single := strings.Cut(part, ":")
		if !single {
			list = part
		}
		denied, err := v.list(list)
		if err != nil && notes(err) == nil {
			return Filter{}, err
		}
		read = cmp.Or(read, err)
		if !single {
			for _, c := range tuned {
				f.denied[c] = denied
			}
			continue
		}
		c, err := collective(function)
		if err != nil {
			return Filter{}, err
		}
		f.denied[c] = denied
	}
	return f, read
}

// collective returns the function with the given name in NCCL.
func collective(name string) (op.Collective, error) {
	name = strings.TrimSpace(name)
	var known []string
	for c := range op.NumCollectives {
		if strings.EqualFold(name, c.String()) {
			return c, nil
		}
		known = append(known, strings.ToLower(c.String()))
	}
	return 0, fmt.Errorf("there is no function %q (did you mean %s?); known are %s", name, words.Nearest(strings.ToLower(name), known), strings.Join(known, ", "))
}

// String is the text that the filter was made from, "" for the zero one.
func (f Filter) String() string { return f.text }

// Allows reports whether a collective may use an algorithm or protocol. Case does not matter. A
// name that the filter does not know is not allowed, unless it is the zero Filter.
func (f Filter) Allows(c op.Collective, name string) bool {
	if f.vocab == nil {
		return true
	}
	i := slices.IndexFunc(f.vocab.names, func(n string) bool { return strings.EqualFold(n, name) })
	return i >= 0 && c < op.NumCollectives && f.denied[c]&(1<<i) == 0
}
