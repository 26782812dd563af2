package coll

import (
	"math"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

// Do does an operation. AllReduce and the other methods below are short forms of it. Send and
// Recv may be longer than the operation needs. The Sends and Recvs of a SendRecv form a group;
// without Transfers it sends to the next rank and receives from the previous one.
func (c *Comm) Do(o *op.Op) error {
	send, recv := Buffer{o.Send, o.Device && len(o.Send) > 0}, Buffer{o.Recv, o.Device && len(o.Recv) > 0}
	if o.Coll == op.SendRecv {
		g := c.group
		if g == nil {
			g = &c.own
		}
		g.Start()
		g.Add(c)
		if o.Transfers == nil {
			_ = c.Send(send, o.Count, o.Type, (c.rank+1)%c.size)
			_ = c.Recv(recv, o.Count, o.Type, (c.rank+c.size-1)%c.size)
		}
		for _, t := range o.Transfers {
			if b := (Buffer{t.Data, o.Device}); t.Send {
				_ = c.Send(b, len(t.Data), Uint8, t.Peer)
			} else {
				_ = c.Recv(b, len(t.Data), Uint8, t.Peer)
			}
		}
		return g.End() // with the error of a Send or Recv, if any
	}
	root := o.Root
	if !o.Coll.Rooted() {
		root = NoPeer
	}
	return c.do(collective(op.Op{Coll: o.Coll, Count: o.Count, Type: o.Type, Red: o.Red, Root: root, Scale: o.Scale, Scaled: o.Scaled, Factor: o.Factor, FactorAt: o.FactorAt}, send, recv))
}

// do runs an operation, or adds it to the open group.
func (c *Comm) do(a *call) error {
	if c.group != nil {
		return c.group.collect(c, *a)
	}
	if a.Count == 0 {
		return a.check(c)
	}
	if err := c.enter(a); err != nil {
		return err
	}
	defer c.leave() // also when it panics: Abort waits for that
	return c.run(a)
}

// collective is the call of a collective on buffers that may be longer than it needs.
func collective(o op.Op, send, recv Buffer) *call {
	o.Send, o.Recv = send.b, recv.b
	return &call{Op: o, device: [2]bool{send.device, recv.device}}
}

// AllReduce reduces count elements of all ranks' send buffers into every
// rank's receive buffer.
func (c *Comm) AllReduce(send, recv Buffer, count int, t Type, red Op) error {
	return c.do(collective(op.Op{Coll: op.AllReduce, Count: count, Type: t, Red: red, Root: NoPeer}, send, recv))
}

// Broadcast copies count elements of the root's send buffer into every rank's receive buffer. The
// send buffers of other ranks are ignored.
func (c *Comm) Broadcast(send, recv Buffer, count int, t Type, root int) error {
	return c.do(collective(op.Op{Coll: op.Broadcast, Count: count, Type: t, Root: root}, send, recv))
}

// Reduce reduces count elements of all ranks' send buffers into the root's receive buffer. The
// receive buffers of other ranks are not changed.
func (c *Comm) Reduce(send, recv Buffer, count int, t Type, red Op, root int) error {
	return c.do(collective(op.Op{Coll: op.Reduce, Count: count, Type: t, Red: red, Root: root}, send, recv))
}

// AllGather puts count elements of every rank into every rank's receive buffer, which holds count
// elements per rank, in the order of the ranks.
func (c *Comm) AllGather(send, recv Buffer, count int, t Type) error {
	return c.do(collective(op.Op{Coll: op.AllGather, Count: count, Type: t, Root: NoPeer}, send, recv))
}

// ReduceScatter reduces the send buffers, of count elements per rank, and puts each rank's own
// count elements of the result into its receive buffer.
func (c *Comm) ReduceScatter(send, recv Buffer, count int, t Type, red Op) error {
	return c.do(collective(op.Op{Coll: op.ReduceScatter, Count: count, Type: t, Red: red, Root: NoPeer}, send, recv))
}

// AllToAll sends count elements to each rank: part i of the send buffer goes to part "own rank"
// of rank i's receive buffer. It may be called in place, unlike in NCCL, which costs a copy of
// the whole buffer.
func (c *Comm) AllToAll(send, recv Buffer, count int, t Type) error {
	return c.do(collective(op.Op{Coll: op.AllToAll, Count: count, Type: t, Root: NoPeer}, send, recv))
}

// Gather puts count elements of every rank into the root's receive buffer.
func (c *Comm) Gather(send, recv Buffer, count int, t Type, root int) error {
	return c.do(collective(op.Op{Coll: op.Gather, Count: count, Type: t, Root: root}, send, recv))
}

// Scatter puts part i of the root's send buffer, count elements, into rank i's
// receive buffer.
func (c *Comm) Scatter(send, recv Buffer, count int, t Type, root int) error {
	return c.do(collective(op.Op{Coll: op.Scatter, Count: count, Type: t, Root: root}, send, recv))
}

// Send sends count elements to a rank that calls Recv with the same count and type. Outside a
// group it may return before the Recv, if the elements fit in the connection, or wait for it.
func (c *Comm) Send(send Buffer, count int, t Type, to int) error {
	return c.do(&call{Op: op.Op{Coll: pointToPoint, Send: send.b, Count: count, Type: t, Root: NoPeer}, device: [2]bool{send.device}, peer: to})
}

// Recv receives count elements that the rank from sends.
func (c *Comm) Recv(recv Buffer, count int, t Type, from int) error {
	return c.do(&call{Op: op.Op{Coll: pointToPoint, Recv: recv.b, Count: count, Type: t, Root: NoPeer}, device: [2]bool{1: recv.device}, peer: from})
}

// A Norm is what AllReduceNorm does with the sum: rows of Row elements are added to Residual,
// normalized, and multiplied by Weight, which is one row.
type Norm struct {
	Residual, Weight Buffer
	Row              int
	Eps              float32
}

// AllReduceNorm sums count elements of all ranks' send buffers as AllReduce does, and goes on with
// what follows in a layer of a transformer under tensor parallelism, in the same kernel where that
// is faster:
//
//	residual = residual + sum
//	recv     = residual / sqrt(mean(residual²) + eps) * weight
//
// with the mean of each row (RMSNorm: Zhang and Sennrich, 2019, arXiv:1910.07467). The sum and the
// new residual are rounded to elements, as if AllReduce and an addition had made them; recv is
// computed from that in float32 and rounded once. The types are Float16, BFloat16 and Float32; the
// buffers are device memory. recv may be send; other buffers must not share memory. All GPUs of the
// communicator must reach one another's memory, or the same host memory: otherwise the error is
// InvalidUsage.
func (c *Comm) AllReduceNorm(send, recv Buffer, count int, t Type, n Norm) error {
	if err := n.check(c, count, t, send, recv); err != nil {
		return err
	}
	a := collective(op.Op{Coll: op.AllReduce, Count: count, Type: t, Red: Sum, Root: NoPeer}, send, recv)
	if count > 0 {
		a.Norm = op.Norm{Row: n.Row, Residual: n.Residual.b[:count*t.Size()], Weight: n.Weight.b[:n.Row*t.Size()], Eps: n.Eps}
	}
	return c.do(a)
}

// check validates what a call's check does not.
func (n Norm) check(c *Comm, count int, t Type, send, recv Buffer) error {
	size := t.Size()
	bad := func(code Code, format string, args ...any) error {
		return c.errorOf(code, "AllReduceNorm", format, args...)
	}
	switch {
	case !t.Norms():
		return bad(InvalidArgument, "the type is %v; it must be %v, %v or %v", t, Float16, BFloat16, Float32)
	case n.Row <= 0 || n.Row > maxRow/size:
		return bad(InvalidArgument, "a row of %d elements: it must have 1 to %d", n.Row, maxRow/size)
	case count < 0: // the call's check says so
		return nil
	case count%n.Row != 0:
		return bad(InvalidArgument, "%d elements are not whole rows of %d", count, n.Row)
	case count/n.Row > maxRows:
		return bad(InvalidArgument, "%d rows; %d are the most", count/n.Row, maxRows)
	case !(n.Eps >= 0) || n.Eps > math.MaxFloat32:
		return bad(InvalidArgument, "eps is %v: it must be 0 or a positive number", n.Eps)
	}
	for _, b := range []struct {
		name string
		b    Buffer
		need int
	}{{"send buffer", send, count}, {"receive buffer", recv, count}, {"residual", n.Residual, count}, {"weight", n.Weight, n.Row}} {
		switch {
		case count == 0:
		case b.b.Len() < b.need*size:
			return bad(InvalidArgument, "the %s has %d bytes, %d %v need %d", b.name, b.b.Len(), b.need, t, b.need*size)
		case !b.b.device:
			return bad(InvalidUsage, "the %s is not device memory", b.name)
		case b.b.addr()%uintptr(size) != 0:
			return bad(InvalidArgument, "the %s: the address of a %v is a multiple of %d", b.name, t, size)
		}
	}
	residual, weight := n.Residual.b[:min(len(n.Residual.b), count*size)], n.Weight.b[:min(len(n.Weight.b), n.Row*size)]
	for _, b := range [][]byte{send.b, recv.b} {
		if b = b[:min(len(b), count*size)]; overlap(residual, b) || overlap(weight, b) || overlap(residual, weight) {
			return bad(InvalidArgument, "buffers share memory; only send and recv may, as the same memory")
		}
	}
	if c.dev != nil {
		if _, ok := c.dev.Executor.(executor.Normer); !ok {
			return bad(InvalidUsage, "the GPUs of this communicator reach neither one another's memory nor the same host memory")
		}
	}
	return nil
}

// Limits of AllReduceNorm, in bytes and rows, which kernels count in 32 bits.
const (
	maxRow  = 1 << 24
	maxRows = 1 << 30
)

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier() error {
	return c.AllReduce(Bytes(c.barrier[:]), Bytes(c.barrier[:]), len(c.barrier), Uint8, Max)
}
