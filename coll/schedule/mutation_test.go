package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

// programs are a schedule's, to be changed.
func programs(s *Schedule) []Program {
	p := make([]Program, s.Ranks)
	for r := range p {
		p[r] = s.Program(r)
	}
	return p
}

// mutate returns the schedule with one lane's steps changed.
func mutate(s *Schedule, rank, lane int, change func([]Step) []Step) *Schedule {
	p := programs(s)
	p[rank].Lanes = slices.Clone(p[rank].Lanes)
	l := &p[rank].Lanes[lane]
	if l.Steps = change(slices.Clone(l.Steps)); len(l.Steps) == 0 {
		p[rank].Lanes = slices.Delete(p[rank].Lanes, lane, lane+1)
	}
	m := *s
	m.Algorithm += " (changed)"
	m.Program = func(r int) Program { return p[r] }
	return &m
}

// A mutation of a step, nil where it does not apply.
type mutation struct {
	name string
	// harmless: Check may pass it, if the oracle does so, too.
	harmless bool
	do       func(s *Schedule, steps []Step, i int) []Step
}

var mutations = []mutation{
	{"drop", false, func(_ *Schedule, st []Step, i int) []Step { return slices.Delete(st, i, i+1) }},
	{"double", true, func(_ *Schedule, st []Step, i int) []Step { return slices.Insert(st, i, st[i]) }},
	{"swap with the next", true, func(_ *Schedule, st []Step, i int) []Step {
		if i+1 == len(st) {
			return nil
		}
		st[i], st[i+1] = st[i+1], st[i]
		return st
	}},
	{"send to another", false, func(s *Schedule, st []Step, i int) []Step {
		if st[i].Send < 0 {
			return nil
		}
		st[i].Send = (st[i].Send + 1) % int32(s.Ranks)
		return st
	}},
	{"receive from another", false, func(s *Schedule, st []Step, i int) []Step {
		if st[i].Recv < 0 {
			return nil
		}
		st[i].Recv = (st[i].Recv + 1) % int32(s.Ranks)
		return st
	}},
	{"do not send", false, func(_ *Schedule, st []Step, i int) []Step {
		if st[i].Send == Nobody {
			return nil
		}
		st[i].Send = Nobody
		return st
	}},
	{"send to one and not to everyone", false, func(s *Schedule, st []Step, i int) []Step {
		if st[i].Send != Everyone {
			return nil
		}
		st[i].Send = 0
		return st
	}},
	{"lose an operand", false, func(_ *Schedule, st []Step, i int) []Step {
		if st[i].A.Buf == NoBuf {
			return nil
		}
		st[i].A = Ref{}
		return st
	}},
	{"read another block", true, func(s *Schedule, st []Step, i int) []Step {
		if st[i].A.Buf == NoBuf {
			return nil
		}
		st[i].A.First++
		return st
	}},
	{"write another block", true, func(_ *Schedule, st []Step, i int) []Step {
		if st[i].Dst.Buf == NoBuf {
			return nil
		}
		st[i].Dst.First++
		return st
	}},
	{"do not store", false, func(_ *Schedule, st []Step, i int) []Step {
		if st[i].Dst.Buf == NoBuf {
			return nil
		}
		st[i].Dst = Ref{}
		return st
	}},
	{"read input and not what became of it", true, func(_ *Schedule, st []Step, i int) []Step {
		if st[i].A.Buf != Output && st[i].A.Buf != Scratch {
			return nil
		}
		st[i].A.Buf = Input
		return st
	}},
	{"move less", false, func(_ *Schedule, st []Step, i int) []Step {
		st[i].Data.N--
		return st
	}},
}

// TestMutations: Check objects to every small change of a schedule, other than
// those that the oracle proves harmless.
func TestMutations(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	seen := make(map[string][2]int) // by mutation: noticed, harmless
	sizes := []int{2, 5}
	if !testing.Short() {
		sizes = []int{2, 3, 5, 8}
	}
	everything(func(c op.Collective, a string) {
		for _, n := range sizes {
			o := Options{Ranks: n, Root: n / 2}
			if a == Hierarchical {
				o.Groups = chop(n, 2)
			}
			if a == CollNet { // with several heads: one alone asks the network for what it has
				o.Groups = regular(n, max(1, n/4))
			}
			s := mustNew(t, c, a, o)
			for r, p := range programs(s) {
				for l := range p.Lanes {
					for i := range p.Lanes[l].Steps {
						for _, m := range mutations {
							mutateStep(t, s, r, l, i, m, seen, rng)
						}
					}
				}
			}
		}
	})
	for _, m := range mutations {
		if seen[m.name][0] == 0 {
			t.Errorf("%s: noticed in no schedule", m.name)
		}
		t.Logf("%s: %d noticed, %d harmless", m.name, seen[m.name][0], seen[m.name][1])
	}
}

func mutateStep(t *testing.T, s *Schedule, rank, lane, i int, m mutation, seen map[string][2]int, rng *rand.Rand) {
	t.Helper()
	applies := true
	bad := mutate(s, rank, lane, func(st []Step) []Step {
		changed := m.do(s, st, i)
		if applies = changed != nil; !applies {
			return st
		}
		return changed
	})
	if !applies {
		return
	}
	n := seen[m.name]
	if err := Check(bad, CheckOptions{}); err != nil {
		n[0]++
		seen[m.name] = n
		return
	}
	n[1]++
	seen[m.name] = n
	what := fmt.Sprintf("%v %s of %d ranks, rank %d, lane %d, step %d (%v): %s", s.Collective, s.Algorithm, s.Ranks, rank, lane, i, s.Program(rank).Lanes[lane].Steps[i], m.name)
	if !m.harmless {
		t.Errorf("%s: Check does not object", what)
		return
	}
	if err := refAll(bad, rng); err != nil {
		t.Errorf("%s: Check does not object, but %v", what, err)
	}
}

// refAll runs the oracle in several orders, in place and not.
func refAll(s *Schedule, rng *rand.Rand) error {
	for i := range 6 {
		if err := runRef(s, []int{MinSlots, 3, -1}[i/2], 3, i%2 == 1, rng); err != nil {
			return err
		}
	}
	return nil
}

// TestRef: the oracle itself finds all schedules right that are, and one wrong
// that is.
func TestRef(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	everything(func(c op.Collective, a string) {
		for _, n := range []int{1, 2, 5, 6} {
			s := mustNew(t, c, a, Options{Ranks: n, Root: n - 1})
			if err := refAll(s, rng); err != nil {
				t.Errorf("%v %s of %d ranks: %v", c, a, n, err)
			}
		}
	})
	s := mustNew(t, op.AllReduce, Ring, Options{Ranks: 3})
	bad := mutate(s, 1, 0, func(st []Step) []Step { st[1].A = Ref{}; return st })
	if refAll(bad, rng) == nil {
		t.Error("the oracle finds nothing wrong with a ring that loses a contribution")
	}
}

// FuzzMutations: what Check passes after any number of changes, the oracle
// passes.
func FuzzMutations(f *testing.F) {
	f.Add(uint8(0), uint8(0), uint8(4), []byte{1, 0, 1, 2})
	f.Add(uint8(1), uint8(4), uint8(3), []byte{0, 1, 0, 1, 2, 0, 0, 2})
	f.Add(uint8(4), uint8(4), uint8(5), []byte{3, 0, 2, 8, 3, 0, 3, 9})
	f.Fuzz(func(t *testing.T, c, algorithm, n uint8, changes []byte) {
		if c >= uint8(op.NumCollectives) || n < 2 || n > 6 || len(changes) > 4*6 {
			t.Skip()
		}
		names := Algorithms(op.Collective(c))
		o := Options{Ranks: int(n), Root: int(n) / 2}
		s := mustNew(t, op.Collective(c), names[int(algorithm)%len(names)], o)
		for ; len(changes) >= 4; changes = changes[4:] {
			rank := int(changes[0]) % s.Ranks
			p := s.Program(rank)
			if len(p.Lanes) == 0 {
				continue
			}
			lane := int(changes[1]) % len(p.Lanes)
			i := int(changes[2]) % len(p.Lanes[lane].Steps)
			m := mutations[int(changes[3])%len(mutations)]
			s = mutate(s, rank, lane, func(st []Step) []Step {
				if changed := m.do(s, slices.Clone(st), i); changed != nil {
					return changed
				}
				return st
			})
		}
		if Check(s, CheckOptions{}) != nil {
			return
		}
		if err := refAll(s, rand.New(rand.NewPCG(uint64(n), 1))); err != nil {
			t.Errorf("Check passes what the oracle does not: %v\n%v", err, s)
		}
	})
}
