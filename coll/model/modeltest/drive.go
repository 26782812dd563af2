// Package modeltest runs programs of coll/model on the engine and compares what they leave in memory.
package modeltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

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

// each calls f for all ranks at once.
func each(ranks []*Rank, f func(r *Rank) error) error {
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() { errs[i] = f(r) })
	}
	wg.Wait()
	return errors.Join(errs...)
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
	err = func() error {
		for i, c := range comms {
			if ranks[i], err = NewRank(p, c, o.Memory); err != nil {
				return err
			}
		}
		return o.steps(ctx, p, ranks)
	}()
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

// steps runs all steps.
func (o Options) steps(ctx context.Context, p model.Program, ranks []*Rank) error {
	if !o.Together {
		return each(ranks, func(r *Rank) error {
			for i := range p.Steps {
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
