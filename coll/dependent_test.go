package coll

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
)

// TestDependentGroups: operations of a group read what those before them in the group wrote, and
// leave their buffers to those behind them. Random groups are compared with a model that does one
// operation after the other.
func TestDependentGroups(t *testing.T) {
	groups := 300
	if testing.Short() {
		groups = 60
	}
	for _, way := range []struct {
		name string
		set  func(k *knob.Knobs)
	}{
		{"as chosen", func(*knob.Knobs) {}},
		{"same bits", func(k *knob.Knobs) { k.SameBits = true }},
		{"sockets", func(k *knob.Knobs) { k.SHMDisable = true }},
		{"short messages", func(k *knob.Knobs) { k.SameBits, k.BuffSize = true, 16<<10 }},
	} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s/%d", way.name, n), func(t *testing.T) {
				cfg := testConfig()
				way.set(cfg.Knobs)
				comms, err := CommInitAll(t.Context(), n, cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer destroyAll(t, comms)
				for seed := range uint64(groups) {
					d := newDependent(seed, n, cfg.Knobs.SameBits)
					if err := d.verify(comms); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
				}
			})
		}
	}
}

// A dependent is a random group. All ranks' buffers are parts of one piece of memory per rank.
type dependent struct {
	*rand.Rand
	n, count int // ranks, and elements of a part
	typ      Type
	ordered  bool // reductions depend on the ranks' data alone
	memory   [][]byte
	steps    []step
}

// A step is a collective, or Sends and Recvs that match.
type step struct {
	coll       op.Collective // SendRecv: the transfers
	red        Op
	root       int
	factor     []float64 // by rank, of a PreMulSum; nil: none
	send, recv []int     // where the buffers begin, by rank, in elements
	transfers  []transfer
	late       int // of transfers: the step after which they are received
}

type transfer struct{ from, to, send, recv int }

func (s step) String() string {
	if s.coll == op.SendRecv {
		return fmt.Sprintf("transfers %+v, received after step %d", s.transfers, s.late)
	}
	return fmt.Sprintf("%v with %v %v, root %d, from %v to %v", s.coll, s.red, s.factor, s.root, s.send, s.recv)
}

func newDependent(seed uint64, n int, ordered bool) *dependent {
	d := &dependent{Rand: rand.New(rand.NewPCG(seed, uint64(n))), n: n, ordered: ordered}
	d.typ = elem.Types[d.IntN(len(elem.Types))]
	d.count = 1 + d.IntN([]int{4, 100, 9000}[d.IntN(3)])
	one := make([]byte, d.typ.Size())
	for range n {
		var m []byte
		for range d.half() * 2 {
			m = elem.AppendBits(m, d.typ, ones[d.typ])
			elem.Scale(d.typ, one, m[len(m)-len(one):], float64(d.IntN(5)))
			copy(m[len(m)-len(one):], one)
		}
		d.memory = append(d.memory, m)
	}
	steps, late := 2+d.IntN(8), 0
	for i := range steps {
		s := d.step()
		late = min(max(late, i+d.IntN(3)), steps-1) // messages arrive in the order in which they are sent
		s.late = late
		d.steps = append(d.steps, s)
	}
	return d
}

// half is half of a rank's memory, in elements. The buffers of a collective that is not in place
// are in different halves.
func (d *dependent) half() int { return d.n*d.count + d.count/2 }

func (d *dependent) step() (s step) {
	s.coll, s.root = op.Collective(d.IntN(int(op.NumCollectives))), d.IntN(d.n)
	if s.coll == op.SendRecv {
		for range 1 + d.IntN(3) {
			t := transfer{d.IntN(d.n), d.IntN(d.n), d.IntN(2*d.half() - d.count + 1), d.IntN(2*d.half() - d.count + 1)}
			s.transfers = append(s.transfers, t)
			if d.IntN(3) == 0 { // what is received replaces what is sent
				s.transfers = append(s.transfers, transfer{t.to, t.from, t.recv, t.send})
			}
		}
		return s
	}
	switch {
	case d.typ.Float() && !d.ordered:
		s.red = []Op{Max, Min}[d.IntN(2)]
	case d.IntN(4) == 0 && s.coll.Reduces():
		for range d.n {
			s.factor = append(s.factor, []float64{0, 0.5, 1, 2, 3}[d.IntN(5)])
		}
	default:
		s.red = elem.Ops[d.IntN(len(elem.Ops))]
	}
	inPlace := d.IntN(2) == 0
	swapped := d.IntN(2) * d.half()
	for r := range d.n {
		in, out := s.coll.Parts(r, s.root, d.n)
		send, recv := swapped+d.IntN(d.half()-in*d.count+1), d.half()-swapped+d.IntN(d.half()-out*d.count+1)
		if a, b, ok := s.coll.InPlace(r); inPlace && (ok || s.coll == op.AllToAll) {
			whole := d.IntN(2*d.half() - d.n*d.count + 1)
			send, recv = whole+a*d.count, whole+b*d.count
		}
		s.send, s.recv = append(s.send, send), append(s.recv, recv)
	}
	return s
}

// part returns n parts of a rank's memory from an element on.
func (d *dependent) part(memory [][]byte, rank, at, n int) []byte {
	size := d.typ.Size()
	return memory[rank][at*size : (at+n*d.count)*size]
}

// model does the group in all ranks' memory.
func (d *dependent) model(memory [][]byte) {
	sent := map[transfer][][]byte{}
	for i, s := range d.steps {
		if s.coll == op.SendRecv {
			for _, t := range s.transfers {
				sent[t] = append(sent[t], bytes.Clone(d.part(memory, t.from, t.send, 1)))
			}
		} else {
			d.reduce(memory, s)
		}
		for _, t := range d.received(i) {
			copy(d.part(memory, t.to, t.recv, 1), sent[t][0])
			sent[t] = sent[t][1:]
		}
	}
}

// received returns the transfers that are received after a step.
func (d *dependent) received(after int) (all []transfer) {
	for _, s := range d.steps[:after+1] {
		if s.late == after {
			all = append(all, s.transfers...)
		}
	}
	return all
}

// reduce does a collective in all ranks' memory.
func (d *dependent) reduce(memory [][]byte, s step) {
	in := make([][]byte, d.n)
	for r := range in {
		n, _ := s.coll.Parts(r, s.root, d.n)
		in[r] = bytes.Clone(d.part(memory, r, s.send[r], n))
		switch {
		case s.factor != nil:
			elem.Scale(d.typ, in[r], in[r], s.factor[r])
		case s.red == Avg && d.typ.Float() && s.coll.Reduces():
			elem.Scale(d.typ, in[r], in[r], 1/float64(d.n))
		}
	}
	var all []byte // the result: of the whole operation, or by rank
	if s.coll.Reduces() {
		red := s.red
		if red == Avg {
			red = Sum
		}
		all = in[0]
		for _, b := range in[1:] {
			elem.Reduce(d.typ, red, all, all, b)
		}
		if s.red == Avg && !d.typ.Float() {
			elem.Divide(d.typ, all, d.n)
		}
	} else {
		all = slices.Concat(in...)
	}
	part := d.count * d.typ.Size()
	for r := range d.n {
		_, n := s.coll.Parts(r, s.root, d.n)
		out := d.part(memory, r, s.recv[r], n)
		switch s.coll {
		case op.ReduceScatter, op.Scatter:
			copy(out, all[r*part:])
		case op.AllToAll:
			for from := range d.n {
				copy(out[from*part:][:part], in[from][r*part:])
			}
		default:
			copy(out, all)
		}
	}
}

// collective does a rank's part of a collective.
func (d *dependent) collective(c *Comm, s step) error {
	r, m := c.Rank(), d.memory
	in, out := s.coll.Parts(r, s.root, d.n)
	send, recv := Bytes(d.part(m, r, s.send[r], in)), Bytes(d.part(m, r, s.recv[r], out))
	if s.factor != nil {
		return c.call(PreMulSum{Factor: s.factor[r]}.of(s.coll, d.count, d.typ, s.root), send, recv)
	}
	return c.Do(&op.Op{Coll: s.coll, Send: send.b, Recv: recv.b, Count: d.count, Type: d.typ, Red: s.red, Root: s.root})
}

// call does a rank's part of step i.
func (d *dependent) call(c *Comm, i int) error {
	r, m, s := c.Rank(), d.memory, d.steps[i]
	var errs []error
	recv := func(t transfer) {
		if t.to == r {
			errs = append(errs, c.Recv(Bytes(d.part(m, r, t.recv, 1)), d.count, d.typ, t.from))
		}
	}
	all := d.received(i)
	// A Recv from itself may be called before its Send: it comes directly after that.
	early := len(all) == 1 && len(s.transfers) == 1 && s.late == i && all[0].from == all[0].to && all[0].send > all[0].recv
	if early {
		recv(all[0])
	}
	if s.coll != op.SendRecv {
		errs = append(errs, d.collective(c, s))
	}
	for _, t := range s.transfers {
		if t.from == r {
			errs = append(errs, c.Send(Bytes(d.part(m, r, t.send, 1)), d.count, d.typ, t.to))
		}
	}
	if !early {
		for _, t := range all {
			recv(t)
		}
	}
	return errors.Join(errs...)
}

// together does the group with some of its ranks in this goroutine.
func (d *dependent) together(comms ...*Comm) error {
	var g Group
	g.Start()
	g.Add(comms...)
	for i := range d.steps {
		for _, c := range comms {
			if err := d.call(c, i); err != nil {
				g.Cancel()
				return err
			}
		}
	}
	return g.End()
}

// verify does the group, and compares each rank's memory with the model's.
func (d *dependent) verify(comms []*Comm) error {
	want := make([][]byte, d.n)
	for r := range want {
		want[r] = bytes.Clone(d.memory[r])
	}
	d.model(want)
	errs := make([]error, d.n)
	if d.IntN(2) == 0 {
		errs[0] = d.together(comms...)
	} else {
		var wg sync.WaitGroup
		for r, c := range comms {
			wg.Go(func() { errs[r] = d.together(c) })
		}
		wg.Wait()
	}
	for r := range d.n {
		if errs[r] == nil && !bytes.Equal(d.memory[r], want[r]) {
			errs[r] = fmt.Errorf("rank %d has other data than the model", r)
		}
	}
	if err := errors.Join(errs...); err != nil {
		var steps strings.Builder
		for i, s := range d.steps {
			fmt.Fprintf(&steps, "\n%d: %v", i, s)
		}
		return fmt.Errorf("%d %v of %d elements: %w%s", d.count, d.typ, 2*d.half(), err, &steps)
	}
	return nil
}
