// Package modeltest runs programs of coll/model on the engine and compares what they leave in memory.
package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/model"
	"github.com/assay-hpc/assay/coll/op"
)

// A Memory is the memory that a rank's buffers are in.
type Memory interface {
	Slice(at, n int) []byte // n > 0
	Device() bool
	Read() ([]byte, error)    // what it contains when all that was called is done
	Adopt(c *coll.Comm) error // called with each communicator that a split makes
	Free() error
}

// Host is memory of the process.
type Host []byte

// Slice is part of it.
func (h Host) Slice(at, n int) []byte { return h[at : at+n : at+n] }

// Device is false.
func (h Host) Device() bool { return false }

// Read returns it.
func (h Host) Read() ([]byte, error) { return h, nil }

// Adopt does nothing.
func (h Host) Adopt(*coll.Comm) error { return nil }

// Free does nothing.
func (h Host) Free() error { return nil }

// Options say how a program is run.
type Options struct {
	// Open makes communicator 0 of a program.
	Open func(ctx context.Context, p model.Program) ([]*coll.Comm, error)
	// Memory puts content into a rank's memory; nil: Host.
	Memory func(c *coll.Comm, content []byte) (Memory, error)
	// Together makes one goroutine act as all ranks.
	Together bool
	// Late, if not 0, makes ranks come late to some steps: a seed.
	Late uint64
	// Odd, if not 0, makes one rank call one collective otherwise than the others, or abort all its
	// communicators before it: a seed. All ranks of that communicator must get an error that names
	// the rank.
	Odd uint64
}

// An odd is a call that one rank makes otherwise, or not at all because it leaves.
type odd struct {
	step, call, rank int
	leaves           bool
}

// oddOf chooses a collective of at least two elements and two ranks; false if there is none.
func oddOf(p model.Program, seed uint64) (o odd, comms [][]int, ok bool) {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := model.New(p)
	n := 0
	for i, s := range p.Steps {
		for k, c := range s.Calls {
			if c.Op == model.Send || c.Op == model.Recv || c.Count < 2 || len(m.Comms[c.Comm]) < 2 {
				continue
			}
			if n++; rng.IntN(n) == 0 {
				members := m.Comms[c.Comm]
				o, ok = odd{i, k, members[rng.IntN(len(members))], seed%3 == 0}, true
			}
		}
		_ = m.Step(i) // for the communicators
	}
	return o, m.Comms, ok
}

var errSplit = errors.New("the communicator was not made")

// judge compares the ranks' errors with what an odd call must give.
func (o odd) judge(p model.Program, comms [][]int, errs []error) error {
	members := comms[p.Steps[o.step].Calls[o.call].Comm]
	number := slices.Index(members, o.rank)
	for _, r := range members {
		switch err := errs[r]; {
		case err == nil:
			return fmt.Errorf("odd %+v, and rank %d has no error", o, r)
		case errors.Is(err, errSplit), strings.Contains(err.Error(), "another communicator of the group has failed"): // whose ranks have other numbers
		case errors.Is(err, coll.ErrAborted) && !strings.Contains(err.Error(), "by rank"): // by itself, when another communicator had failed
		case !strings.Contains(err.Error(), fmt.Sprintf("rank %d", number)):
			return fmt.Errorf("odd %+v (rank %d of its communicator); rank %d: %w", o, number, r, err)
		}
	}
	return nil
}

// A Rank is one rank of a running program.
type Rank struct {
	Rank  int          // in communicator 0
	Comms []*coll.Comm // by the program's numbers; nil where the rank is no member
	Memory
	m *model.Machine
}

// NewRank returns the rank that is c's.
func NewRank(p model.Program, c *coll.Comm, memory func(c *coll.Comm, content []byte) (Memory, error)) (*Rank, error) {
	m := model.New(p)
	r := &Rank{Rank: c.Rank(), Comms: []*coll.Comm{c}, m: m}
	content := slices.Clone(m.States[r.Rank].Bytes)
	if r.Memory = Host(content); memory == nil {
		return r, nil
	}
	var err error
	r.Memory, err = memory(c, content)
	return r, err
}

// in returns the rank's number in a communicator, -1 if it is no member.
func (r *Rank) in(comm int) int {
	if comm >= len(r.Comms) || r.Comms[comm] == nil {
		return -1
	}
	return r.Comms[comm].Rank()
}

// split does the rank's part of a split. All ranks count the communicators that it makes.
func (r *Rank) split(ctx context.Context, s *model.Split) error {
	var mine *coll.Comm
	me := r.in(s.Comm)
	if me >= 0 {
		var err error
		if mine, err = r.Comms[s.Comm].Split(ctx, s.Colors[me], s.Keys[me]); err != nil {
			return err
		}
		if mine != nil {
			if err := r.Adopt(mine); err != nil {
				return err
			}
		}
	}
	for _, members := range s.Members() {
		if !slices.Contains(members, me) {
			r.Comms = append(r.Comms, nil)
			continue
		}
		if mine == nil || mine.Rank() != slices.Index(members, me) || mine.Size() != len(members) {
			return fmt.Errorf("rank %d: the split made %v; want rank %d of %d", r.Rank, mine, slices.Index(members, me), len(members))
		}
		r.Comms = append(r.Comms, mine)
	}
	return nil
}

// Call makes the rank's part of a call.
func (r *Rank) Call(c *model.Call) error {
	me := r.in(c.Comm)
	if me < 0 || c.Op == model.Send && c.From != me || c.Op == model.Recv && c.To != me {
		return nil
	}
	comm, at := r.Comms[c.Comm], me
	if c.Op == model.Send || c.Op == model.Recv {
		at = 0
	}
	parts := [2]int{}
	parts[0], parts[1] = c.Op.Parts(me, c.Root, comm.Size())
	var bufs [2][]byte
	for i, offsets := range [][]int{c.Send, c.Recv} {
		if n := parts[i] * c.Count * c.Type.Size(); n > 0 {
			bufs[i] = r.Slice(offsets[at], n)
		}
	}
	send, recv := coll.Bytes(bufs[0]), coll.Bytes(bufs[1])
	if r.Device() {
		send, recv = device(bufs[0]), device(bufs[1])
	}
	t, red := elem.Type(c.Type), elem.Op(c.Red)
	switch {
	case c.Op == model.Send:
		return comm.Send(send, c.Count, t, c.To)
	case c.Op == model.Recv:
		return comm.Recv(recv, c.Count, t, c.From)
	case c.Factor != nil:
		f := coll.PreMulSum{Factor: c.Factor[me]}
		switch c.Op {
		case model.AllReduce:
			return comm.AllReducePreMul(send, recv, c.Count, t, f)
		case model.Reduce:
			return comm.ReducePreMul(send, recv, c.Count, t, f, c.Root)
		}
		return comm.ReduceScatterPreMul(send, recv, c.Count, t, f)
	}
	k, ok := op.OfTest(string(c.Op))
	if !ok {
		return fmt.Errorf("there is no operation %q", c.Op)
	}
	return comm.Do(&op.Op{Coll: k, Send: bufs[0], Recv: bufs[1], Device: r.Device(), Count: c.Count, Type: t, Red: red, Root: c.Root})
}

func device(b []byte) coll.Buffer { return coll.Device(op.Addr(b), len(b)) }

// group makes calls of one or several ranks of this goroutine as one group.
func group(ranks []*Rank, calls []model.Call) error {
	var g coll.Group
	g.Start()
	for _, r := range ranks {
		g.Add(slices.DeleteFunc(slices.Clone(r.Comms), func(c *coll.Comm) bool { return c == nil })...)
	}
	for i := range calls {
		for _, r := range ranks {
			if err := r.Call(&calls[i]); err != nil {
				g.Cancel()
				return err
			}
		}
	}
	return g.End()
}

// Step does the rank's part of a step.
func (r *Rank) Step(ctx context.Context, s *model.Step) error {
	switch {
	case s.Split != nil:
		return r.split(ctx, s.Split)
	case slices.Contains(s.Single, r.Rank):
		for i := range s.Calls {
			if err := r.Call(&s.Calls[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return group([]*Rank{r}, s.Calls)
}

// Close destroys the rank's communicators, or aborts them.
func (r *Rank) Close(abort bool) error {
	var errs []error
	for _, c := range slices.Backward(r.Comms) {
		switch {
		case c == nil:
		case abort:
			_ = c.Abort()
		default:
			errs = append(errs, c.Destroy())
		}
	}
	return errors.Join(append(errs, r.Free())...)
}

// each calls f for all ranks at once and joins their errors.
func each(ranks []*Rank, f func(r *Rank) error) error {
	return errors.Join(errorsOf(ranks, f)...)
}

// errorsOf calls f for all ranks at once and returns their errors, by rank.
func errorsOf(ranks []*Rank, f func(r *Rank) error) []error {
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() { errs[i] = f(r) })
	}
	wg.Wait()
	return errs
}

// Result counts what was compared.
type Result struct{ Bytes, Compared int }

// Run runs a program and compares each rank's memory with the model's in the end.
func Run(ctx context.Context, p model.Program, o Options) (res Result, err error) {
	m := model.New(p)
	for i := range p.Steps {
		if err := m.Step(i); err != nil {
			return res, fmt.Errorf("step %d: %w", i, err)
		}
	}
	comms, err := o.Open(ctx, p)
	if err != nil {
		return res, err
	}
	ranks := make([]*Rank, len(comms))
	strange, all, isOdd := odd{}, [][]int(nil), false
	if o.Odd != 0 && !o.Together {
		strange, all, isOdd = oddOf(p, o.Odd)
	}
	err = func() error {
		for i, c := range comms {
			if ranks[i], err = NewRank(p, c, o.Memory); err != nil {
				return err
			}
		}
		if !isOdd {
			return o.steps(ctx, p, ranks)
		}
		return strange.judge(p, all, o.oddly(ctx, p, ranks, strange))
	}()
	if isOdd {
		_ = each(ranks, func(r *Rank) error { return r.Close(true) })
		return res, err
	}
	if err == nil {
		for _, r := range ranks {
			got, readErr := r.Read()
			if readErr != nil {
				err = errors.Join(err, readErr)
				continue
			}
			n, differs := m.Compare(r.Rank, got)
			res.Bytes, res.Compared = res.Bytes+len(got), res.Compared+n
			err = errors.Join(err, differs)
		}
	}
	abort := err != nil
	return res, errors.Join(err, each(ranks, func(r *Rank) error {
		if r == nil {
			return nil
		}
		return r.Close(abort)
	}))
}

// oddly runs all steps with one call that is made otherwise or not at all, and returns the error that the call's
// communicator has at each of its ranks: a rank may learn of it while it waits in another one.
func (o Options) oddly(ctx context.Context, p model.Program, ranks []*Rank, strange odd) []error {
	comm := p.Steps[strange.step].Calls[strange.call].Comm
	return errorsOf(ranks, func(r *Rank) error {
		failed := false
		for i, s := range p.Steps {
			if i == strange.step && r.Rank == strange.rank && strange.leaves {
				// The others must not hear first of another communicator, and abort this one for that.
				_ = r.Comms[comm].Abort()
				time.Sleep(100 * time.Millisecond)
				_ = r.Close(true)
				break
			}
			if i == strange.step && r.Rank == strange.rank {
				s.Calls = slices.Clone(s.Calls)
				s.Calls[strange.call].Count--
			}
			if err := r.Step(ctx, &s); err != nil && r.in(comm) < 0 { // another rank failed before the split was done
				_ = r.Close(true)
				return fmt.Errorf("%w: %w", errSplit, err)
			} else if err != nil {
				failed = true
				break
			}
		}
		// A rank that only sends may be done before anybody notices; and one that failed in another
		// communicator does not abort this one at once: the others would hear of that first.
		for began := time.Now(); r.in(comm) >= 0 && time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
			err := r.Comms[comm].AsyncError()
			if err != nil || failed && time.Since(began) > 2*time.Second {
				_ = r.Close(true)
				failed = false
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// steps runs all steps.
func (o Options) steps(ctx context.Context, p model.Program, ranks []*Rank) error {
	if !o.Together {
		return each(ranks, func(r *Rank) error {
			rng := rand.New(rand.NewPCG(o.Late, uint64(r.Rank)))
			for i := range p.Steps {
				if o.Late != 0 && rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				}
				if err := r.Step(ctx, &p.Steps[i]); err != nil {
					_ = r.Close(true) // the others need not wait for their limit
					return fmt.Errorf("step %d: %w", i, err)
				}
			}
			return nil
		})
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		err := error(nil)
		if s.Split != nil {
			err = each(ranks, func(r *Rank) error { return r.split(ctx, s.Split) })
		} else {
			err = group(ranks, s.Calls)
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}
