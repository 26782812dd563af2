package coll

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A call is an operation with its arguments.
type call struct {
	coll       op.Collective // pointToPoint for Send and Recv
	send, recv Buffer
	count      int
	t          Type
	op         Op
	root       int     // or NoPeer
	peer       int     // of Send and Recv
	scale      float64 // of a premultiplied sum
	scaled     bool
	stream     uintptr // of an operation on device memory
}

// Do does an operation: what AllReduce and the others below are short for. Its Send
// and Recv may have more than it needs. The Sends and Recvs of a SendRecv are a
// group; without Transfers they are one to the next rank and one from the one
// before.
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
		return g.End() // with what a Send or Recv has said
	}
	root := o.Root
	if !o.Coll.Rooted() {
		root = NoPeer
	}
	return c.do(&call{coll: o.Coll, send: send, recv: recv, count: o.Count, t: o.Type, op: o.Red, root: root, scale: o.Scale, scaled: o.Scaled})
}

// AllReduce reduces count elements of all ranks' send buffers into every
// rank's receive buffer.
func (c *Comm) AllReduce(send, recv Buffer, count int, t Type, red Op) error {
	return c.do(&call{coll: op.AllReduce, send: send, recv: recv, count: count, t: t, op: red, root: NoPeer})
}

// Broadcast copies count elements of the root's send buffer into every rank's
// receive buffer. Other ranks' send buffers are not looked at.
func (c *Comm) Broadcast(send, recv Buffer, count int, t Type, root int) error {
	return c.do(&call{coll: op.Broadcast, send: send, recv: recv, count: count, t: t, root: root})
}

// Reduce reduces count elements of all ranks' send buffers into the root's
// receive buffer. Other ranks' receive buffers are left alone.
func (c *Comm) Reduce(send, recv Buffer, count int, t Type, red Op, root int) error {
	return c.do(&call{coll: op.Reduce, send: send, recv: recv, count: count, t: t, op: red, root: root})
}

// AllGather puts count elements of every rank into every rank's receive
// buffer, which takes count elements a rank, in the order of the ranks.
func (c *Comm) AllGather(send, recv Buffer, count int, t Type) error {
	return c.do(&call{coll: op.AllGather, send: send, recv: recv, count: count, t: t, root: NoPeer})
}

// ReduceScatter reduces the send buffers, of count elements a rank, and gives
// each rank the count elements of the result that are its own.
func (c *Comm) ReduceScatter(send, recv Buffer, count int, t Type, red Op) error {
	return c.do(&call{coll: op.ReduceScatter, send: send, recv: recv, count: count, t: t, op: red, root: NoPeer})
}

// AllToAll sends count elements to each rank: part i of the send buffer goes to
// part "own rank" of rank i's receive buffer. In place, which NCCL lacks, costs
// a copy of the whole buffer.
func (c *Comm) AllToAll(send, recv Buffer, count int, t Type) error {
	return c.do(&call{coll: op.AllToAll, send: send, recv: recv, count: count, t: t, root: NoPeer})
}

// Gather puts count elements of every rank into the root's receive buffer.
func (c *Comm) Gather(send, recv Buffer, count int, t Type, root int) error {
	return c.do(&call{coll: op.Gather, send: send, recv: recv, count: count, t: t, root: root})
}

// Scatter puts part i of the root's send buffer, count elements, into rank i's
// receive buffer.
func (c *Comm) Scatter(send, recv Buffer, count int, t Type, root int) error {
	return c.do(&call{coll: op.Scatter, send: send, recv: recv, count: count, t: t, root: root})
}

// Send sends count elements to a rank that calls Recv with the same count and
// type. Outside of a group it may return before that, when the elements fit in
// the connection, or wait for it.
func (c *Comm) Send(send Buffer, count int, t Type, to int) error {
	return c.do(&call{coll: pointToPoint, send: send, count: count, t: t, root: NoPeer, peer: to})
}

// Recv receives what a rank sends.
func (c *Comm) Recv(recv Buffer, count int, t Type, from int) error {
	return c.do(&call{coll: pointToPoint, recv: recv, count: count, t: t, root: NoPeer, peer: from})
}

// A PreMulSum is a sum to which each rank's input is multiplied first, by a
// factor of its own.
type PreMulSum struct{ Factor float64 }

// AllReducePreMul is AllReduce with a PreMulSum.
func (c *Comm) AllReducePreMul(send, recv Buffer, count int, t Type, m PreMulSum) error {
	return c.do(&call{coll: op.AllReduce, send: send, recv: recv, count: count, t: t, op: Sum, root: NoPeer, scale: m.Factor, scaled: true})
}

// ReducePreMul is Reduce with a PreMulSum.
func (c *Comm) ReducePreMul(send, recv Buffer, count int, t Type, m PreMulSum, root int) error {
	return c.do(&call{coll: op.Reduce, send: send, recv: recv, count: count, t: t, op: Sum, root: root, scale: m.Factor, scaled: true})
}

// ReduceScatterPreMul is ReduceScatter with a PreMulSum.
func (c *Comm) ReduceScatterPreMul(send, recv Buffer, count int, t Type, m PreMulSum) error {
	return c.do(&call{coll: op.ReduceScatter, send: send, recv: recv, count: count, t: t, op: Sum, root: NoPeer, scale: m.Factor, scaled: true})
}

// name is what logs and errors call the operation.
func (a *call) name(seq uint32) string {
	switch {
	case a.coll != pointToPoint:
		return fmt.Sprintf("%v #%d", a.coll, seq)
	case a.sends():
		return fmt.Sprintf("Send to %d", a.peer)
	}
	return fmt.Sprintf("Recv from %d", a.peer)
}

// sends tells a Send from a Recv.
func (a *call) sends() bool { return a.recv.b == nil }

// needs is how many elements the buffers must have, 0 where the rank has none.
func (a *call) needs(rank, n int) (send, recv int) {
	switch {
	case a.coll != pointToPoint:
		send, recv = a.coll.Parts(rank, a.root, n)
		return send * a.count, recv * a.count
	case a.sends():
		return a.count, 0
	}
	return 0, a.count
}

// check finds what is wrong with the arguments, and cuts the buffers to what
// the operation uses.
func (c *Comm) check(a *call) error {
	size := a.t.Size()
	bad := func(format string, args ...any) error {
		return c.errorOf(InvalidArgument, a.name(c.seq+1), format, args...)
	}
	switch {
	case size == 0:
		return bad("there is no type %d", uint8(a.t))
	case a.coll != pointToPoint && a.coll.Reduces() && !a.op.Valid():
		return bad("there is no reduction %d", uint8(a.op))
	case a.count < 0:
		return bad("count %d is negative", a.count)
	case a.count > maxBytes/size/c.size:
		return bad("count %d is more than an address can tell", a.count)
	case a.coll.Rooted() && (a.root < 0 || a.root >= c.size):
		return bad("root %d is none of the %d ranks", a.root, c.size)
	case a.coll == pointToPoint && (a.peer < 0 || a.peer >= c.size):
		return bad("rank %d is none of the %d ranks", a.peer, c.size)
	}
	s, r := a.needs(c.rank, c.size)
	if a.send.Len() < s*size {
		return bad("the send buffer has %d bytes, %d %v need %d", a.send.Len(), s, a.t, s*size)
	}
	if a.recv.Len() < r*size {
		return bad("the receive buffer has %d bytes, %d %v need %d", a.recv.Len(), r, a.t, r*size)
	}
	a.send.b, a.recv.b = a.send.b[:s*size], a.recv.b[:r*size]
	if err := c.kindOfMemory(a); err != nil {
		return bad("%w", err)
	}
	switch {
	case !overlap(a.send.b, a.recv.b):
	case a.coll == op.AllToAll && a.send.addr() == a.recv.addr():
		if !a.send.device { // whose executor sees to it
			a.send.b = slices.Clone(a.send.b)
		}
	case !c.inPlace(a):
		return bad("send and receive buffers overlap in another way than in place")
	}
	return nil
}

const maxBytes = 1 << 56

// inPlace reports whether buffers that overlap do so as is allowed.
func (c *Comm) inPlace(a *call) bool {
	if a.coll == pointToPoint {
		return false
	}
	send, recv, ok := a.coll.InPlace(c.rank)
	part := uintptr(a.count * a.t.Size())
	return ok && a.send.addr()-uintptr(send)*part == a.recv.addr()-uintptr(recv)*part
}

// alone does what an operation does on a communicator of one rank.
func (a *call) alone() {
	if a.scaled {
		elem.Scale(a.t, a.recv.b, a.send.b, a.scale)
	} else if len(a.recv.b) > 0 && a.recv.addr() != a.send.addr() {
		copy(a.recv.b, a.send.b)
	}
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier() error {
	return c.AllReduce(Bytes(c.barrier[:]), Bytes(c.barrier[:]), len(c.barrier), Uint8, Max)
}
