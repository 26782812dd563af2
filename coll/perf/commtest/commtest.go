// Package commtest is a slow and simple implementation of perf's Comm, in one process: every
// operation gathers copies of the inputs of all ranks and computes this rank's result from them.
// The benchmark's tests run on it, and corrupt its results on purpose (World.After) to see
// whether verification notices.
package commtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A World is a set of ranks.
type World struct {
	// After, if not nil, is called on each rank after each operation. It may
	// change the buffers.
	After func(c *Comm, op string, send, recv []byte)
	// Before, if not nil, is called before each operation, which returns its error.
	Before func(c *Comm, op string) error

	mu      sync.Mutex
	turn    *sync.Cond
	n       int
	arrived int
	epoch   int
	slots   [][]byte
	aborted error
	splits  map[int]*World // by color, while a split is under way
}

// A Comm is one rank of a World.
type Comm struct {
	w     *World
	rank  int
	sums  map[elem.Op]float64 // scalars of pre-multiplied sums
	last  elem.Op
	mems  [][]byte
	Calls map[string]int // how often each operation was called
}

// New creates a world of n ranks.
func New(n int) (*World, []*Comm) {
	w := &World{n: n, slots: make([][]byte, n)}
	w.turn = sync.NewCond(&w.mu)
	var cs []*Comm
	for r := range n {
		cs = append(cs, w.comm(r))
	}
	return w, cs
}

func (w *World) comm(rank int) *Comm {
	return &Comm{w: w, rank: rank, sums: map[elem.Op]float64{}, last: elem.Avg, Calls: map[string]int{}}
}

// ErrAborted is what operations return after Abort.
var ErrAborted = errors.New("the communicator was aborted")

// Abort makes all operations return ErrAborted.
func (w *World) Abort(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.aborted == nil {
		w.aborted = fmt.Errorf("%w: %v", ErrAborted, cause)
	}
	for _, s := range w.splits {
		go s.Abort(cause)
	}
	w.turn.Broadcast()
}

// barrier waits for all ranks. The last one runs f, which may be nil.
func (w *World) barrier(f func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.aborted != nil {
		return w.aborted
	}
	w.arrived++
	if w.arrived == w.n {
		if f != nil {
			f()
		}
		w.arrived = 0
		w.epoch++
		w.turn.Broadcast()
		return nil
	}
	for epoch := w.epoch; w.epoch == epoch; {
		if w.aborted != nil {
			return w.aborted
		}
		w.turn.Wait()
	}
	return nil
}

// gather returns what every rank passed.
func (c *Comm) gather(b []byte) ([][]byte, error) {
	c.w.mu.Lock()
	c.w.slots[c.rank] = slices.Clone(b)
	c.w.mu.Unlock()
	if err := c.w.barrier(nil); err != nil {
		return nil, err
	}
	c.w.mu.Lock()
	all := slices.Clone(c.w.slots)
	c.w.mu.Unlock()
	return all, c.w.barrier(nil)
}

// do implements every operation: compute gets the inputs of all ranks.
func (c *Comm) do(name string, send, recv []byte, compute func(all [][]byte)) error {
	c.Calls[name]++
	if c.w.Before != nil {
		if err := c.w.Before(c, name); err != nil {
			return err
		}
	}
	all, err := c.gather(send)
	if err != nil {
		return err
	}
	compute(all)
	if c.w.After != nil {
		c.w.After(c, name, send, recv)
	}
	return nil
}

// reduced reduces a range of all ranks' inputs, starting with a different rank on each rank: the
// order must not matter.
func (c *Comm) reduced(all [][]byte, first, n int, t elem.Type, op elem.Op) []byte {
	scale := 0.0
	switch {
	case op == elem.Avg && t.Float():
		scale = 1 / float64(c.w.n)
	case op > elem.Avg:
		op = elem.Sum
	}
	var acc []byte
	for i := range all {
		r := (c.rank + i) % len(all)
		v := all[r][first : first+n]
		if scale != 0 {
			s := make([]byte, n)
			elem.Scale(t, s, v, scale)
			v = s
		}
		if acc == nil {
			acc = slices.Clone(v)
		} else {
			elem.Reduce(t, op, acc, acc, v)
		}
	}
	if op == elem.Avg && !t.Float() {
		elem.Divide(t, acc, len(all))
	}
	return acc
}

// scaled returns this rank's input, multiplied by its scalar if op has one.
func (c *Comm) scaled(send []byte, t elem.Type, op elem.Op) []byte {
	if s, ok := c.sums[op]; ok {
		out := make([]byte, len(send))
		elem.Scale(t, out, send, s)
		return out
	}
	return send
}

// Rank implements perf.Comm.
func (c *Comm) Rank() int { return c.rank }

// Size implements perf.Comm.
func (c *Comm) Size() int { return c.w.n }

// Do implements perf.Comm.
func (c *Comm) Do(o *op.Op) error {
	n := o.Bytes()
	parts, _ := o.Coll.Parts(c.rank, o.Root, c.w.n)
	send := o.Send[:parts*n]
	if o.Coll.Reduces() {
		send = c.scaled(send, o.Type, o.Red)
	}
	return c.do(o.Coll.Test(), send, o.Recv, func(all [][]byte) {
		switch o.Coll {
		case op.AllReduce:
			copy(o.Recv, c.reduced(all, 0, n, o.Type, o.Red))
		case op.Reduce:
			if c.rank == o.Root {
				copy(o.Recv, c.reduced(all, 0, n, o.Type, o.Red))
			}
		case op.ReduceScatter:
			copy(o.Recv, c.reduced(all, c.rank*n, n, o.Type, o.Red))
		case op.Broadcast:
			copy(o.Recv, all[o.Root])
		case op.AllGather:
			copy(o.Recv, slices.Concat(all...))
		case op.Gather:
			if c.rank == o.Root {
				copy(o.Recv, slices.Concat(all...))
			}
		case op.Scatter:
			copy(o.Recv[:n], all[o.Root][c.rank*n:])
		case op.AllToAll:
			for r, b := range all {
				copy(o.Recv[r*n:], b[c.rank*n:(c.rank+1)*n])
			}
		case op.SendRecv:
			copy(o.Recv, all[(c.rank+c.w.n-1)%c.w.n])
		}
	})
}

// Group implements perf.Comm. It runs f.
func (c *Comm) Group(f func() error) error {
	c.Calls["group"]++
	return f()
}

// Exchange implements perf.Comm.
func (c *Comm) Exchange(_ context.Context, b []byte) ([][]byte, error) {
	c.Calls["exchange"]++
	return c.gather(b)
}

// Barrier implements perf.Comm.
func (c *Comm) Barrier() error {
	c.Calls["barrier"]++
	return c.w.barrier(nil)
}

// Alloc implements perf.Comm. It records the memory for Memory.
func (c *Comm) Alloc(n int) ([]byte, error) {
	b := make([]byte, n)
	c.mems = append(c.mems, b)
	return b, nil
}

// Free implements perf.Comm.
func (c *Comm) Free(b []byte) {
	c.mems = slices.DeleteFunc(c.mems, func(m []byte) bool { return &m[0] == &b[0] })
}

// Memory returns the allocation that contains b, and the offset of b in it.
func (c *Comm) Memory(b []byte) (mem []byte, at int) {
	for _, m := range c.mems {
		for i := range m {
			if len(b) > 0 && &m[i] == &b[0] {
				return m, i
			}
		}
	}
	panic("commtest: no such memory")
}

// Leaked is the number of allocations that were not freed.
func (c *Comm) Leaked() int { return len(c.mems) }

// PreMulSum implements perf.PreMulSummer. The scalar must be 1 or 2.
func (c *Comm) PreMulSum(scalar []byte, t elem.Type) (elem.Op, error) {
	s := elem.Float(t, scalar)
	if s != 1 && s != 2 {
		return 0, fmt.Errorf("scalar % x of %v is neither 1 nor 2", scalar, t)
	}
	c.last++
	c.sums[c.last] = s
	return c.last, nil
}

// FreeOp implements perf.PreMulSummer.
func (c *Comm) FreeOp(op elem.Op) error {
	if _, ok := c.sums[op]; !ok {
		return fmt.Errorf("there is no reduction %d", op)
	}
	delete(c.sums, op)
	return nil
}

// Sums is the number of pre-multiplied sums that were not freed.
func (c *Comm) Sums() int { return len(c.sums) }

// Split creates communicators of the ranks with the same color.
func (c *Comm) Split(color int) (*Comm, error) {
	all, err := c.gather([]byte{byte(color)})
	if err != nil {
		return nil, err
	}
	rank, size := 0, 0
	for r, b := range all {
		if b[0] == byte(color) {
			if r < c.rank {
				rank++
			}
			size++
		}
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.splits == nil {
		c.w.splits = map[int]*World{}
	}
	if c.w.splits[color] == nil {
		c.w.splits[color], _ = New(size)
	}
	return c.w.splits[color].comm(rank), nil
}
