package flip

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

func gpu(r int) string { return fmt.Sprint("GPU ", r) }

// A reduced is a random reduction of one element, and what a flipped bit makes of it.
type reduced struct {
	Reduction
	in    []uint64
	owner int
}

func random(r *rand.Rand, ranks int, t elem.Type, o elem.Op, owner int) *reduced {
	d := &reduced{in: make([]uint64, ranks), owner: owner}
	for i := range d.in {
		switch {
		case t == elem.Float32:
			d.in[i] = uint64(math.Float32bits(float32(math.Ldexp(1+r.Float64(), r.IntN(16)))))
		default:
			d.in[i] = r.Uint64() | 1
		}
	}
	d.Reduction = Reduction{
		Ranks: ranks, Type: t, Op: o, Has: ranks, Owner: func(int64) int { return owner },
		Input: func(rank int, _ int64) uint64 { return d.in[rank] },
	}
	return d
}

// results returns the wrong results if the ranks have these.
func (d *reduced) results(got []uint64) (all []Wrong) {
	want := d.fold(d.in)
	for r, g := range got {
		if g != want {
			all = append(all, Wrong{Rank: r, Got: g, Want: want})
		}
	}
	return all
}

// TestExplain: a bit of an addend, of a sum on its way, or of a result, flips. Who did that is among the
// suspects always, and the only one most often where factors are odd integers.
func TestExplain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, of := range []struct {
		t    elem.Type
		o    elem.Op
		sure float64 // of the trials
	}{{elem.Uint64, elem.Prod, 0.7}, {elem.Float32, elem.Sum, 0}, {elem.Int32, elem.Sum, 0}} {
		alone, trials := 0, 0
		for range 3000 {
			ranks := 2 + r.IntN(7)
			owner := r.IntN(ranks+1) - 1
			d := random(r, ranks, of.t, of.o, owner)
			if of.t.Size() == 4 {
				for i := range d.in {
					d.in[i] &= math.MaxUint32
				}
			}
			want, bit := d.fold(d.in), uint64(1)<<r.IntN(8*of.t.Size())
			got := slices.Repeat([]uint64{want}, ranks)
			at := max(owner, 0) // who adds
			if owner == Itself {
				at = r.IntN(ranks)
			}
			var s Suspect
			switch r.IntN(3) {
			case 0: // what came from another rank
				from := r.IntN(ranks)
				s = Suspect{at, from}
				if from == at {
					s.From = Itself
				}
				in := slices.Clone(d.in)
				in[from] ^= bit
				got[at] = d.fold(in)
			case 1: // the sum
				s = Suspect{at, Itself}
				got[at] ^= bit
			default: // what a rank has got
				at = r.IntN(ranks)
				s = Suspect{at, owner}
				if at == owner || owner == Itself {
					s.From = Itself
				}
				got[at] ^= bit
				owner = Itself // it goes no further
			}
			if owner != Itself { // it goes to all
				got = slices.Repeat([]uint64{got[at]}, ranks)
			}
			wrong := d.results(got)
			if len(wrong) == 0 { // rounded away
				continue
			}
			trials++
			all := d.Explain(wrong)
			if len(all) != 1 || !slices.Contains(all[0], s) {
				t.Fatalf("%v %v, %d ranks, owner %d, %v: %v is not among %v", of.t, of.o, ranks, d.owner, wrong, s, all)
			}
			if len(all[0]) == 1 {
				alone++
			}
		}
		if part := float64(alone) / float64(trials); part < of.sure {
			t.Errorf("%v %v: alone in %.2f of %d", of.t, of.o, part, trials)
		}
	}
}

// TestBlame: several events together.
func TestBlame(t *testing.T) {
	link := func(from, to int) Suspect { return Suspect{to, from} }
	one := func(r int) Suspect { return Suspect{r, Itself} }
	into := func(r int) Suspect { return Suspect{r, Anyone} }
	for name, tt := range map[string]struct {
		gpus   int
		events [][]Suspect
		want   string
	}{
		"one GPU":                    {4, [][]Suspect{{one(1)}, {one(1)}}, "GPU 1"},
		"a link once":                {4, [][]Suspect{{link(0, 1)}}, "the link from GPU 0 to GPU 1, or GPU 0, or GPU 1"},
		"a link ten times":           {4, slices.Repeat([][]Suspect{{link(0, 1)}}, 10), "the link from GPU 0 to GPU 1"},
		"a link ten times, two GPUs": {2, slices.Repeat([][]Suspect{{link(0, 1)}}, 10), "the link from GPU 0 to GPU 1, or GPU 0, or GPU 1"},
		"all links of a GPU":         {4, [][]Suspect{{link(0, 1)}, {link(2, 1)}, {link(1, 3)}}, "GPU 1"},
		"intersection":               {4, [][]Suspect{{one(1), link(0, 1)}, {one(1), link(2, 1)}}, "GPU 1"},
		"a link into one":            {4, [][]Suspect{{one(1), into(1)}, {link(2, 1)}}, "GPU 1, or the link from GPU 2 to GPU 1"},
		"two faults":                 {4, [][]Suspect{{one(1)}, {one(1)}, {one(3)}}, "GPU 1"},
	} {
		var events []Event
		for _, e := range tt.events {
			events = append(events, Of(e, gpu))
		}
		if got := BlameOf(events, tt.gpus).String(); got != tt.want {
			t.Errorf("%s: %s; want %s", name, got, tt.want)
		}
	}
}

// words are those of an operation that is right.
func (c *Check) words(r *rand.Rand) (w Words) {
	var of [256]uint64
	for i := range of {
		of[i] = r.Uint64()
	}
	for rank, slots := range c.Classes() {
		for i, class := range slots {
			w[rank][i] = of[class]
		}
	}
	return w
}

// TestCheck: of one word that is not as it must be, its rank is named, or an end of the link; of none,
// nobody is.
func TestCheck(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		c := Check{Coll: op.Collective(r.IntN(int(op.SendRecv))), Ranks: 2 + r.IntN(7)}
		c.Root, c.Owner = r.IntN(c.Ranks), r.IntN(c.Ranks)
		switch {
		case c.Coll == op.AllReduce && r.IntN(2) == 0:
			c.Owner = Itself
		case c.Coll == op.Reduce:
			c.Owner = c.Root
		}
		c.Passed = c.Ranks > 2 && (c.Coll.Reduces() && c.Owner != Itself || c.same()) && r.IntN(4) == 0
		w := c.words(r)
		if s, what := c.Blame(&w); s != nil {
			t.Fatalf("%+v: %v, %s", c, s, what)
		}
		classes := c.Classes()
		rank, slot := r.IntN(c.Ranks), r.IntN(Slots)
		others := 0
		for i := range c.Ranks {
			for k := range Slots {
				if classes[i][k] == classes[rank][slot] && (i != rank || k != slot) {
					others++
				}
			}
		}
		if classes[rank][slot] == None || others == 0 {
			continue
		}
		w[rank][slot] ^= 1
		s, what := c.Blame(&w)
		named := slices.ContainsFunc(s, func(s Suspect) bool { return s.Rank == rank || s.From == rank })
		if !named || what == "" {
			t.Fatalf("%+v: word %d of rank %d: %v, %q", c, slot, rank, s, what)
		}
	}
}

// FuzzBlame: whatever the words are, it ends, and it blames somebody if and only if words of a class differ.
func FuzzBlame(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(0), uint8(3), false, false)
	f.Fuzz(func(t *testing.T, seed, flips uint64, coll, ranks uint8, passed, unordered bool) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := Check{Coll: op.Collective(coll % uint8(op.SendRecv)), Ranks: 2 + int(ranks%7), Passed: passed, Unordered: unordered}
		c.Root, c.Owner = r.IntN(c.Ranks), r.IntN(c.Ranks+1)-1
		if c.Coll != op.AllReduce {
			c.Owner = max(c.Owner, 0)
		}
		w := c.words(r)
		for range flips % 9 {
			w[r.IntN(c.Ranks)][r.IntN(Slots)] ^= 1 << r.IntN(64)
		}
		differ := false
		classes := c.Classes()
		first := map[uint8]uint64{}
		for i := range c.Ranks {
			for k, class := range classes[i] {
				v, ok := first[class]
				if !ok {
					first[class] = w[i][k]
				}
				differ = differ || class != None && ok && v != w[i][k]
			}
		}
		if s, _ := c.Blame(&w); (len(s) > 0) != differ {
			t.Errorf("%+v: differ %v, suspects %v", c, differ, s)
		}
	})
}
