package colltest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
)

func TestReferenceConforms(t *testing.T) {
	o := Options{Edges: []int{1 << 10}, Ranks: []int{1, 2, 4, 9}} // the reference is slow, and nobody changes it
	if testing.Short() {
		o.Ranks = []int{1, 3}
	}
	Run(t, o, func(_ *testing.T, n int) []Comm { return reference(n) })
}

// faulty is a rank that does one thing wrong.
type faulty struct {
	Comm
	allReduce func(c Comm, send, recv []byte, count int, t elem.Type, op elem.Op) error
	allGather func(c Comm, send, recv []byte, count int, t elem.Type) error
	reduce    func(c Comm, send, recv []byte, count int, t elem.Type, op elem.Op, root int) error
}

func (f *faulty) AllReduce(send, recv []byte, count int, t elem.Type, op elem.Op) error {
	if f.allReduce != nil {
		return f.allReduce(f.Comm, send, recv, count, t, op)
	}
	return f.Comm.AllReduce(send, recv, count, t, op)
}

func (f *faulty) AllGather(send, recv []byte, count int, t elem.Type) error {
	if f.allGather != nil {
		return f.allGather(f.Comm, send, recv, count, t)
	}
	return f.Comm.AllGather(send, recv, count, t)
}

func (f *faulty) Reduce(send, recv []byte, count int, t elem.Type, op elem.Op, root int) error {
	if f.reduce != nil {
		return f.reduce(f.Comm, send, recv, count, t, op, root)
	}
	return f.Comm.Reduce(send, recv, count, t, op, root)
}

// overlap reports whether two buffers start at the same place.
func overlap(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// TestFaultsAreFound: each of these engines is wrong in one place, at one of
// three ranks.
func TestFaultsAreFound(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  faulty
		want string
	}{
		{"one bit of one element", faulty{allReduce: func(c Comm, s, r []byte, count int, t elem.Type, op elem.Op) error {
			err := c.AllReduce(s, r, count, t, op)
			if count == 129 && t == elem.BFloat16 {
				r[257] ^= 1
			}
			return err
		}}, "AllReduce of 129 bfloat16, sum: element 128 of the receive buffer is"},
		{"a rank left out", faulty{allReduce: func(c Comm, s, r []byte, count int, t elem.Type, op elem.Op) error {
			return c.AllReduce(make([]byte, len(s)), r, count, t, op)
		}}, "element 0 of the receive buffer is"},
		{"max for min", faulty{allReduce: func(c Comm, s, r []byte, count int, t elem.Type, op elem.Op) error {
			if op == elem.Min && t == elem.Int32 {
				op = elem.Max
			}
			return c.AllReduce(s, r, count, t, op)
		}}, "int32, min: element"},
		{"unsigned for signed", faulty{allReduce: func(c Comm, s, r []byte, count int, t elem.Type, op elem.Op) error {
			if op == elem.Max && t == elem.Int8 {
				t = elem.Uint8
			}
			return c.AllReduce(s, r, count, t, op)
		}}, "int8, max: element"},
		{"average without division", faulty{allReduce: func(c Comm, s, r []byte, count int, t elem.Type, op elem.Op) error {
			if op == elem.Avg {
				op = elem.Sum
			}
			return c.AllReduce(s, r, count, t, op)
		}}, ", avg: element"},
		{"the send buffer as scratch", faulty{allReduce: func(c Comm, s, r []byte, count int, t elem.Type, op elem.Op) error {
			err := c.AllReduce(s, r, count, t, op)
			if len(s) > 0 && !overlap(s, r) {
				s[0]++
			}
			return err
		}}, "element 0 of the send buffer is"},
		{"a receive buffer that is not the root's", faulty{reduce: func(c Comm, s, r []byte, count int, t elem.Type, op elem.Op, root int) error {
			err := c.Reduce(s, r, count, t, op, root)
			if c.Rank() != root && len(r) > 0 && !overlap(s, r) {
				r[len(r)-1]++
			}
			return err
		}}, "of the receive buffer is"},
		{"parts in another order", faulty{allGather: func(c Comm, s, r []byte, count int, t elem.Type) error {
			err := c.AllGather(s, r, count, t)
			if part := count * t.Size(); part > 0 {
				for i := range part {
					r[i], r[part+i] = r[part+i], r[i]
				}
			}
			return err
		}}, "AllGather"},
		{"an error", faulty{allGather: func(Comm, []byte, []byte, int, elem.Type) error { return errors.New("out of order") }}, "out of order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			only := "AllReduce"
			if c.bad.allGather != nil {
				only = "AllGather"
			} else if c.bad.reduce != nil {
				only = "Reduce"
			}
			ops, err := Options{Only: []string{only}}.plan(3, true)
			if err != nil {
				t.Fatal(err)
			}
			comms := reference(3)
			bad := c.bad
			bad.Comm = comms[1]
			comms[1] = &bad
			patience := patience
			if c.name == "an error" { // the others wait in vain for who has left
				patience = time.Second
			}
			err = conform(comms, ops, patience)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want one with %q", err, c.want)
			}
		})
	}
}

// TestStuck: where every rank is, when one does not come.
func TestStuck(t *testing.T) {
	ops, err := Options{Only: []string{"AllGather"}}.plan(2, true)
	if err != nil {
		t.Fatal(err)
	}
	ops = slices.DeleteFunc(ops, func(o operation) bool { return o.count != 33 })
	comms := reference(2)
	release := make(chan struct{})
	comms[1] = &faulty{Comm: comms[1], allGather: func(c Comm, s, r []byte, count int, t elem.Type) error {
		<-release
		return c.AllGather(s, r, count, t)
	}}
	err = conform(comms, ops, 100*time.Millisecond)
	close(release)
	if err == nil || !strings.Contains(err.Error(), "no rank moves on") || strings.Count(err.Error(), "in operation 0, AllGather of 33 float") != 2 {
		t.Errorf("error %v; want where both ranks are", err)
	}
}

func TestOutside(t *testing.T) {
	o := operation{coll: collectives[0], t: elem.Float32, op: elem.Sum, count: 4, seed: 3}
	for name, i := range map[string]int{"before": guard - 1, "after": guard + 3*4 + 16} {
		r := newRegion(16, o, 1)
		want := append([]byte(nil), r.all...)
		if err := o.compare("receive", r, want, 0); err != nil {
			t.Error(err)
		}
		r.all[i] ^= 0x80
		if err := o.compare("receive", r, want, 0); err == nil || !strings.Contains(err.Error(), "was overwritten") {
			t.Errorf("%s the buffer: %v; want what was overwritten", name, err)
		}
	}
}

// TestPlan: what is promised is in the plan.
func TestPlan(t *testing.T) {
	for _, short := range []bool{false, true} {
		ops, err := Options{}.plan(5, short)
		if err != nil {
			t.Fatal(err)
		}
		types := map[string]map[string]bool{}
		roots := map[string]map[int]bool{}
		counts := map[int]bool{}
		inPlace := map[string]int{}
		seeds := map[uint64]bool{}
		for _, o := range ops {
			name := o.coll.name
			if types[name] == nil {
				types[name], roots[name] = map[string]bool{}, map[int]bool{}
			}
			types[name][o.t.String()+o.op.String()] = true
			roots[name][o.root] = true
			counts[o.count] = true
			seeds[o.seed] = true
			if o.inPlace {
				inPlace[name]++
			}
		}
		if len(types) != 9 || len(seeds) != len(ops) {
			t.Errorf("short %v: %d collectives, %d seeds for %d operations", short, len(types), len(seeds), len(ops))
		}
		for _, c := range collectives {
			want := len(elem.Types)
			if c.reduces {
				want *= len(elem.Ops)
			}
			if got := len(types[c.name]); got != want {
				t.Errorf("short %v: %s: %d types and reductions; want %d", short, c.name, got, want)
			}
			if c.rooted && len(roots[c.name]) != 5 {
				t.Errorf("short %v: %s: %d roots; want 5", short, c.name, len(roots[c.name]))
			}
			if (inPlace[c.name] > 0) != (c.alias != never) {
				t.Errorf("short %v: %s: %d in place", short, c.name, inPlace[c.name])
			}
		}
		for _, count := range []int{0, 1, 4, 5, 6, 26, 1023, 1024, 1025} {
			if !counts[count] {
				t.Errorf("short %v: no operation of %d elements", short, count)
			}
		}
	}
	if _, err := (Options{Only: []string{"AllReduced"}}).plan(2, true); err == nil {
		t.Error("an unknown collective is accepted")
	}
}
