package colltest

import (
	"math"
	"slices"
	"sync"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A board is where the ranks of the reference leave their send buffers. It
// knows nothing of schedules and transports, and the reductions are done one
// element after the other.
type board struct {
	mu    sync.Mutex
	cond  sync.Cond
	n     int
	here  int
	round int
	sends [][]byte
}

// reference makes n ranks.
func reference(n int) []Comm {
	b := &board{n: n, sends: make([][]byte, n)}
	b.cond.L = &b.mu
	var out []Comm
	for r := range n {
		out = append(out, &ref{b, r})
	}
	return out
}

// meet waits for all ranks.
func (b *board) meet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	round := b.round
	if b.here++; b.here == b.n {
		b.here, b.round = 0, round+1
		b.cond.Broadcast()
	}
	for b.round == round {
		b.cond.Wait()
	}
}

type ref struct {
	b    *board
	rank int
}

func (c *ref) Rank() int { return c.rank }
func (c *ref) Size() int { return c.b.n }

// exchange shows send to all, and has result computed from everybody's before
// anybody's receive buffer is written.
func (c *ref) exchange(send, recv []byte, receives bool, result func(sends [][]byte) []byte) error {
	c.b.sends[c.rank] = send
	c.b.meet()
	var out []byte
	if receives {
		out = result(slices.Clone(c.b.sends))
	}
	c.b.meet()
	if receives {
		copy(recv, out)
	}
	c.b.meet()
	return nil
}

// reduce reduces a part of all send buffers.
func reduce(sends [][]byte, first, count int, t elem.Type, op elem.Op) []byte {
	size := t.Size()
	out := make([]byte, count*size)
	for i := range count {
		acc := elem.Bits(sends[0], t, first+i)
		if op == elem.Avg && t.Float() {
			acc = round(t, toFloat(t, acc)/float64(len(sends)))
		}
		for _, s := range sends[1:] {
			acc = combine(t, op, acc, elem.Bits(s, t, first+i), len(sends))
		}
		if op == elem.Avg && !t.Float() {
			d := data{t: t}
			if d.t.Signed() {
				acc = uint64(d.extend(acc) / int64(len(sends)))
			} else {
				acc /= uint64(len(sends))
			}
		}
		store(t, out, i, acc)
	}
	return out
}

func (d data) less(a, b uint64) bool {
	if d.t.Signed() {
		return d.extend(a) < d.extend(b)
	}
	return a < b
}

// combine rounds after each step, as an engine does.
func combine(t elem.Type, op elem.Op, a, b uint64, n int) uint64 {
	d := data{t: t}
	if !t.Float() {
		switch op {
		case elem.Sum, elem.Avg:
			return mask(t, a+b)
		case elem.Prod:
			return mask(t, a*b)
		case elem.Max:
			if d.less(a, b) {
				return b
			}
			return a
		}
		if d.less(b, a) {
			return b
		}
		return a
	}
	x, y := toFloat(t, a), toFloat(t, b)
	switch op {
	case elem.Sum:
		return round(t, x+y)
	case elem.Avg:
		return round(t, x+toFloat(t, round(t, y/float64(n))))
	case elem.Prod:
		return round(t, x*y)
	case elem.Max:
		return round(t, math.Max(x, y))
	}
	return round(t, math.Min(x, y))
}

func (c *ref) Do(o *op.Op) error {
	part := o.Bytes()
	_, recvs := o.Coll.Parts(c.rank, o.Root, c.b.n)
	return c.exchange(o.Send, o.Recv, recvs > 0, func(s [][]byte) (out []byte) {
		switch o.Coll {
		case op.AllReduce, op.Reduce:
			return reduce(s, 0, o.Count, o.Type, o.Red)
		case op.ReduceScatter:
			return reduce(s, c.rank*o.Count, o.Count, o.Type, o.Red)
		case op.Broadcast:
			return slices.Clone(s[o.Root])
		case op.Scatter:
			return slices.Clone(s[o.Root][c.rank*part:][:part])
		case op.SendRecv:
			return slices.Clone(s[(c.rank+c.b.n-1)%c.b.n])
		case op.AllToAll:
			for _, p := range s {
				out = append(out, p[c.rank*part:][:part]...)
			}
			return out
		}
		return slices.Concat(s...) // AllGather, Gather
	})
}
