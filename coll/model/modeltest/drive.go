// Package modeltest runs programs of coll/model on the engine and compares what they leave in memory.
package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	Done() (bool, error)      // whether all that was called is done
	Read() ([]byte, error)    // what it contains then
	Adopt(c *coll.Comm) error // called with each communicator that a split makes
	Free() error
}

// Host is memory of the process.
type Host []byte

// Slice is part of it.
func (h Host) Slice(at, n int) []byte { return h[at : at+n : at+n] }

// Device is false.
func (h Host) Device() bool { return false }

// Done is true: calls return when they are done.
func (h Host) Done() (bool, error) { return true, nil }

// Read returns it.
func (h Host) Read() ([]byte, error) { return h, nil }

// Adopt does nothing.
func (h Host) Adopt(*coll.Comm) error { return nil }

// Free does nothing.
func (h Host) Free() error { return nil }

// A Delayer is a Memory whose device can be made to wait before it does what is called next.
type Delayer interface{ Delay(d time.Duration) error }

// Options say how a program is run.
type Options struct {
	// Open makes communicator 0 of a program.
	Open func(ctx context.Context, p model.Program) ([]*coll.Comm, error)
	// Memory puts content into a rank's memory; nil: Host.
	Memory func(c *coll.Comm, content []byte) (Memory, error)
	// Together makes one goroutine act as all ranks.
	Together bool
	// Late, if not 0, makes ranks, and what their devices do, come late to some steps: a seed.
	Late uint64
	// Beside, if not nil, begins what goes on beside a program until its last operation has ended, and returns
	// what ends it.
	Beside func(ranks int) (end func() error, err error)
	// Odd, if not 0, makes one rank call one collective otherwise than the others, or abort all its
	// communicators before it: a seed. All ranks of that communicator must get an error that names
	// the rank.
	Odd uint64
	// Stop, if not 0, makes one rank abort all its communicators at a random moment: a seed. All others
	// must get an error that names it, and until they have one their memory must be what the model says.
	Stop uint64
	// Parts is set for communicators with AsNCCL: ranks that need no more of the one that aborts may have no error.
	Parts bool
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
	m    *model.Machine
	done int // steps of m
}

// newRank returns the rank that is c's.
func newRank(p model.Program, c *coll.Comm, memory func(c *coll.Comm, content []byte) (Memory, error)) (*Rank, error) {
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
		if mine, err = r.Comms[s.Comm].Split(ctx, s.Colors[me], s.Keys[me], coll.Child{}); err != nil {
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
	}
	k, ok := op.OfTest(string(c.Op))
	if !ok {
		return fmt.Errorf("there is no operation %q", c.Op)
	}
	o := op.Op{Coll: k, Send: bufs[0], Recv: bufs[1], Device: r.Device(), Count: c.Count, Type: t, Red: red, Root: c.Root}
	if c.Factor != nil {
		o.Red, o.Scale, o.Scaled = elem.Sum, c.Factor[me], true
	}
	return comm.Do(&o)
}

func device(b []byte) coll.Buffer { return coll.Device(op.Addr(b), len(b)) }

// group makes calls of one or several ranks of this goroutine as one group.
func group(ranks []*Rank, calls []model.Call) error {
	var g coll.Group
	g.Start()
	join := func(r *Rank, comm int) {
		if c := r.Comms[comm]; c != nil {
			g.Add(c)
		}
	}
	for _, r := range ranks {
		for i := range calls { // as NCCL's API joins them
			join(r, calls[i].Comm)
		}
		for i := range r.Comms {
			join(r, i)
		}
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
	return group([]*Rank{r}, r.interleaved(s.Calls))
}

// interleaved puts the calls of a group's communicators between one another in another way on each rank. The order
// of a communicator's calls stays.
func (r *Rank) interleaved(calls []model.Call) []model.Call {
	byComm := make([][]model.Call, len(r.Comms))
	rng := rand.New(rand.NewPCG(uint64(r.Rank), uint64(len(calls))))
	order := make([]int, len(calls))
	for i, c := range calls {
		byComm[c.Comm], order[i] = append(byComm[c.Comm], c), c.Comm
	}
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	out := make([]model.Call, len(calls))
	for i, comm := range order {
		out[i], byComm[comm] = byComm[comm][0], byComm[comm][1:]
	}
	return out
}

// settled waits for what was called and returns the memory, or an error that a communicator has.
func (r *Rank) settled(ctx context.Context) ([]byte, error) {
	for done := false; ; {
		for _, c := range r.Comms {
			if c == nil {
				continue
			}
			if err := c.AsyncError(); err != nil {
				return nil, err
			}
		}
		if done {
			return r.Read()
		}
		var err error
		switch done, err = r.Done(); {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, fmt.Errorf("rank %d: what was called does not end", r.Rank)
		case !done:
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// compare compares the memory with the model's after so many steps.
func (r *Rank) compare(ctx context.Context, steps int) (compared int, err error, wrong error) {
	got, err := r.settled(ctx)
	if err != nil {
		return 0, err, nil
	}
	for ; r.done < steps; r.done++ {
		if err := r.m.Step(r.done); err != nil {
			return 0, nil, err
		}
	}
	n, wrong := r.m.Compare(r.Rank, got)
	return n, nil, wrong
}

// dawdle is late, now and then.
func (r *Rank) dawdle(rng *rand.Rand) error {
	d := time.Duration(rng.IntN(20)) * time.Millisecond
	switch delayer, ok := r.Memory.(Delayer); {
	case rng.IntN(4) > 0:
	case !ok || rng.IntN(2) == 0:
		time.Sleep(d)
	case rng.IntN(50) == 0:
		return delayer.Delay(2 * time.Second)
	default:
		return delayer.Delay(d)
	}
	return nil
}

// Close destroys the rank's communicators, or aborts them.
func (r *Rank) Close(abort bool) error {
	var errs []error
	if abort {
		r.abort()
	}
	for _, c := range slices.Backward(r.Comms) {
		if c != nil && !abort {
			errs = append(errs, c.Destroy())
		}
	}
	return errors.Join(append(errs, r.Free())...)
}

// abort aborts the rank's communicators.
func (r *Rank) abort() {
	for _, c := range slices.Backward(r.Comms) {
		if c != nil {
			_ = c.Abort()
		}
	}
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
	strange, all, isOdd, isStopped := odd{}, [][]int(nil), false, o.Stop != 0 && len(comms) > 1
	if o.Odd != 0 && !o.Together {
		strange, all, isOdd = oddOf(p, o.Odd)
	}
	err = func() (err error) {
		for i, c := range comms {
			if ranks[i], err = newRank(p, c, o.Memory); err != nil {
				return err
			}
		}
		if o.Beside != nil {
			end, beside := o.Beside(len(ranks))
			if beside != nil {
				return beside
			}
			defer func() {
				if err == nil { // it stays until all that was called is done
					err = each(ranks, func(r *Rank) error {
						_, err := r.settled(ctx)
						return err
					})
				}
				err = errors.Join(err, end())
			}()
		}
		switch {
		case isOdd:
			return strange.judge(p, all, o.oddly(ctx, p, ranks, strange))
		case isStopped:
			res.Compared, err = o.stopped(ctx, p, ranks)
			res.Bytes = res.Compared
			return err
		}
		return o.steps(ctx, p, ranks)
	}()
	if isOdd || isStopped {
		_ = each(ranks, func(r *Rank) error { return r.Close(true) })
		return res, err
	}
	if err == nil {
		for _, r := range ranks {
			got, readErr := r.settled(ctx)
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

// stopped runs the steps while one rank aborts its communicators, and returns how many bytes of the others' memory
// were compared.
func (o Options) stopped(ctx context.Context, p model.Program, ranks []*Rank) (int, error) {
	rng := rand.New(rand.NewPCG(o.Stop, 2))
	victim := ranks[rng.IntN(len(ranks))]
	moment := time.Duration(10e3 * math.Pow(2000, rng.Float64())) // 10 µs to 20 ms
	var stop atomic.Bool
	var compared atomic.Int64
	var stopping sync.WaitGroup
	world := victim.Comms[0]
	stopping.Go(func() {
		time.Sleep(moment)
		stop.Store(true)
		_ = world.Abort() // the caller's others follow when it has come back
	})
	err := each(ranks, func(r *Rank) error {
		rng, steps := rand.New(rand.NewPCG(o.Stop, uint64(r.Rank)+3)), 0
		for i := range p.Steps {
			if r == victim && stop.Load() {
				break
			}
			if o.Late != 0 {
				if err := r.dawdle(rng); err != nil {
					return err
				}
			}
			if r.Step(ctx, &p.Steps[i]) != nil {
				break
			}
			steps++
			if r == victim || rng.IntN(2) == 0 && !(o.Parts && steps == len(p.Steps)) {
				continue
			}
			n, err, wrong := r.compare(ctx, i+1)
			compared.Add(int64(n))
			if wrong != nil {
				return fmt.Errorf("rank %d aborts %v after the start; step %d: %w", victim.Rank, moment, i, wrong)
			}
			if err != nil {
				steps = 0
				break
			}
		}
		if r == victim {
			stopping.Wait()
			r.abort()
			return nil
		}
		defer r.abort()
		if o.Parts && steps == len(p.Steps) {
			return nil
		}
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			switch err := r.Comms[0].AsyncError(); {
			case err == nil && time.Since(began) > time.Minute:
				return fmt.Errorf("rank %d has no error, and rank %d has aborted", r.Rank, victim.Rank)
			case err != nil && !strings.Contains(err.Error(), fmt.Sprintf("rank %d", victim.Rank)):
				return fmt.Errorf("rank %d has aborted; rank %d: %w", victim.Rank, r.Rank, err)
			case err != nil:
				return nil
			}
		}
	})
	return int(compared.Load()), err
}

// steps runs all steps.
func (o Options) steps(ctx context.Context, p model.Program, ranks []*Rank) error {
	if !o.Together {
		return each(ranks, func(r *Rank) error {
			rng := rand.New(rand.NewPCG(o.Late, uint64(r.Rank)))
			for i := range p.Steps {
				if o.Late != 0 {
					if err := r.dawdle(rng); err != nil {
						return err
					}
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
