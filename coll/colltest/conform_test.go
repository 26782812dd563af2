package colltest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

func TestReferenceConforms(t *testing.T) {
	o := Options{Edges: []int{1 << 10}, Ranks: []int{1, 2, 4, 9}} // the reference is slow, and nobody changes it
	if testing.Short() {
		o.Ranks = []int{1, 3}
	}
	Run(t, o, func(_ *testing.T, n int) []Comm { return reference(n) })
}

// faulty is a rank that does one collective wrong.
type faulty struct {
	Comm
	coll op.Collective
	do   func(c Comm, o op.Op) error
}

func (f *faulty) Do(o *op.Op) error {
	if o.Coll == f.coll {
		return f.do(f.Comm, *o)
	}
	return f.Comm.Do(o)
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
		{"one bit of one element", faulty{coll: op.AllReduce, do: func(c Comm, o op.Op) error {
			err := c.Do(&o)
			if o.Count == 129 && o.Type == elem.BFloat16 {
				o.Recv[257] ^= 1
			}
			return err
		}}, "AllReduce of 129 bfloat16, sum: element 128 of the receive buffer is"},
		{"a rank left out", faulty{coll: op.AllReduce, do: func(c Comm, o op.Op) error {
			o.Send = make([]byte, len(o.Send))
			return c.Do(&o)
		}}, "element 0 of the receive buffer is"},
		{"max for min", faulty{coll: op.AllReduce, do: func(c Comm, o op.Op) error {
			if o.Red == elem.Min && o.Type == elem.Int32 {
				o.Red = elem.Max
			}
			return c.Do(&o)
		}}, "int32, min: element"},
		{"unsigned for signed", faulty{coll: op.AllReduce, do: func(c Comm, o op.Op) error {
			if o.Red == elem.Max && o.Type == elem.Int8 {
				o.Type = elem.Uint8
			}
			return c.Do(&o)
		}}, "int8, max: element"},
		{"average without division", faulty{coll: op.AllReduce, do: func(c Comm, o op.Op) error {
			if o.Red == elem.Avg {
				o.Red = elem.Sum
			}
			return c.Do(&o)
		}}, ", avg: element"},
		{"the send buffer as scratch", faulty{coll: op.AllReduce, do: func(c Comm, o op.Op) error {
			err := c.Do(&o)
			if len(o.Send) > 0 && !overlap(o.Send, o.Recv) {
				o.Send[0]++
			}
			return err
		}}, "element 0 of the send buffer is"},
		{"a receive buffer that is not the root's", faulty{coll: op.Reduce, do: func(c Comm, o op.Op) error {
			err := c.Do(&o)
			if r := o.Recv; c.Rank() != o.Root && len(r) > 0 && !overlap(o.Send, r) {
				r[len(r)-1]++
			}
			return err
		}}, "of the receive buffer is"},
		{"parts in another order", faulty{coll: op.AllGather, do: func(c Comm, o op.Op) error {
			err := c.Do(&o)
			for i := range o.Bytes() {
				r := o.Recv
				r[i], r[o.Bytes()+i] = r[o.Bytes()+i], r[i]
			}
			return err
		}}, "AllGather"},
		{"an error", faulty{coll: op.AllGather, do: func(Comm, op.Op) error { return errors.New("out of order") }}, "out of order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := Options{Only: []op.Collective{c.bad.coll}}.plan(3, true)
			comms := reference(3)
			bad := c.bad
			bad.Comm = comms[1]
			comms[1] = &bad
			patience := patience
			if c.name == "an error" { // the others wait in vain for who has left
				patience = time.Second
			}
			err := conform(comms, ops, patience)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want one with %q", err, c.want)
			}
		})
	}
}

// TestStuck: where every rank is, when one does not come.
func TestStuck(t *testing.T) {
	ops := Options{Only: []op.Collective{op.AllGather}}.plan(2, true)
	ops = slices.DeleteFunc(ops, func(o operation) bool { return o.count != 33 })
	comms := reference(2)
	release := make(chan struct{})
	comms[1] = &faulty{Comm: comms[1], coll: op.AllGather, do: func(c Comm, o op.Op) error {
		<-release
		return c.Do(&o)
	}}
	err := conform(comms, ops, 100*time.Millisecond)
	close(release)
	if err == nil || !strings.Contains(err.Error(), "no rank moves on") || strings.Count(err.Error(), "in operation 0, AllGather of 33 float") != 2 {
		t.Errorf("error %v; want where both ranks are", err)
	}
}

func TestOutside(t *testing.T) {
	o := operation{coll: op.AllReduce, t: elem.Float32, op: elem.Sum, count: 4, seed: 3}
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
		ops := Options{}.plan(5, short)
		types := map[op.Collective]map[string]bool{}
		roots := map[op.Collective]map[int]bool{}
		counts := map[int]bool{}
		inPlace := map[op.Collective]int{}
		seeds := map[uint64]bool{}
		for _, o := range ops {
			name := o.coll
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
		for c := range op.NumCollectives {
			want := len(elem.Types)
			if c.Reduces() {
				want *= len(elem.Ops)
			}
			if got := len(types[c]); got != want {
				t.Errorf("short %v: %v: %d types and reductions; want %d", short, c, got, want)
			}
			if c.Rooted() && len(roots[c]) != 5 {
				t.Errorf("short %v: %v: %d roots; want 5", short, c, len(roots[c]))
			}
			if _, _, ok := c.InPlace(0); (inPlace[c] > 0) != ok {
				t.Errorf("short %v: %v: %d in place", short, c, inPlace[c])
			}
		}
		for _, count := range []int{0, 1, 4, 5, 6, 26, 1023, 1024, 1025} {
			if !counts[count] {
				t.Errorf("short %v: no operation of %d elements", short, count)
			}
		}
	}
}
