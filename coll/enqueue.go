package coll

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

// enqueue runs an operation on device memory, which was checked.
func (d *device) enqueue(a *call) error {
	c := d.side.c
	a.stream = d.stream
	o := &d.op
	if a.Coll == pointToPoint {
		if a.peer == c.rank {
			return c.errorOf(InvalidUsage, a.name(0), "a rank that sends to itself needs a group with the Recv in it")
		}
		*o = executor.Op{On: d.Executor, Stream: a.stream, Op: op.Op{Coll: op.SendRecv, Root: NoPeer, Transfers: append(o.Transfers[:0], a.transfer())}}
		o.Call = d.watchdog.Transfers(c.seq, o.Transfers, a.stream)
	} else {
		d.describe(o, a)
	}
	d.last = true
	err := d.Enqueue(o)
	if err == nil {
		return nil
	}
	if code := CodeOf(err); code == InvalidUsage || code == InvalidArgument {
		if a.Coll != pointToPoint {
			c.seq--
		} else {
			d.watchdog.Undo(o.Transfers)
		}
		return c.wrap(a.name(c.seq+1), err)
	}
	return c.fail(a, err)
}

// describe builds the executor's form of a collective and records the call.
func (d *device) describe(o *executor.Op, a *call) {
	c := d.side.c
	c.seq++
	transfers := o.Transfers[:0]
	*o = executor.Op{On: d.Executor, Stream: a.stream, Op: a.Op}
	if !c.session.Env.Unchecked {
		o.Sign = a.Signature()
		o.Call = d.watchdog.Collective(c.seq, o.Sign, a.Count, a.Root, a.stream)
	}
	o.Device, o.Transfers = true, transfers
	switch {
	case a.Scaled && a.Factor == 0: // else the caller has set the factor
		d.scale(o, a.Scale)
	case a.Scaled:
	case a.Red == Avg && a.Coll.Reduces():
		o.Red = Sum
		if c.size == 1 {
			break // the average of one is a copy
		}
		if a.Type.Float() {
			d.scale(o, 1/float64(c.size))
			o.Average = true
		} else {
			o.Divisor = c.size
		}
	}
}

func (a *call) transfer() op.Transfer {
	b, send := a.Recv, a.sends()
	if send {
		b = a.Send
	}
	return op.Transfer{Peer: a.peer, Data: b, Send: send}
}

// scale has the rank's input multiplied by scale, converted to an element by elem.
func (d *device) scale(o *executor.Op, scale float64) {
	o.Scaled, o.Scale = true, scale
	o.Factor = d.factorOf(o.Type, scale)
}

// factorOf returns a multiplier as an element.
func (d *device) factorOf(t Type, scale float64) uint64 {
	if f := &d.factor; f.t != t || f.scale != scale || f.bits == 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], ones[t])
		elem.Scale(t, b[:t.Size()], b[:t.Size()], scale)
		f.t, f.scale, f.bits = t, scale, binary.LittleEndian.Uint64(b[:])
	}
	return d.factor.bits
}

// ones are the bits of 1, by type.
var ones = [...]uint64{
	Int8: 1, Uint8: 1, Int32: 1, Uint32: 1, Int64: 1, Uint64: 1,
	Float16: 0x3c00, Float32: 0x3f800000, Float64: 0x3ff0000000000000, BFloat16: 0x3f80,
	Float8E4M3: 0x38, Float8E5M2: 0x3c,
}

// enqueue enqueues the group's operations on device memory: for each
// communicator its collectives one after the other, then its Sends and Recvs
// as one exchange. The order of communicators is the same on all ranks, in
// whatever order these call them: they may share a stream.
func (g *Group) enqueue() error {
	g.batch, g.from = g.batch[:0], g.from[:0]
	if len(g.comms) > 1 {
		slices.SortFunc(g.comms, func(a, b *Comm) int { return cmp.Or(cmp.Compare(a.kin.key, b.kin.key), cmp.Compare(a.rank, b.rank)) })
	}
	for _, c := range g.comms {
		if c.dev != nil {
			c.dev.prepare(g)
		}
	}
	for i := range g.batch {
		g.batch[i] = g.slot(i)
	}
	if len(g.batch) == 0 {
		return nil
	}
	i, err := g.batch[0].On.EnqueueAll(g.batch)
	if err == nil {
		return nil
	}
	i = g.from[max(i, 0)]
	if _, ok := errors.AsType[executor.Undone](err); ok {
		for _, c := range g.comms {
			if c.dev != nil {
				c.dev.undo()
			}
		}
		c, a := g.calls[i].c, &g.calls[i].a
		return c.wrap(a.name(c.seq+1), err)
	}
	return g.failedAt(i, err)
}

// undo takes back the numbers of the operations that prepare has built.
func (d *device) undo() {
	for i := range d.ops {
		if o := &d.ops[i]; o.Coll == op.SendRecv {
			d.watchdog.Undo(o.Transfers)
		} else {
			d.side.c.seq--
		}
	}
}

// prepare builds the operations of one communicator. Their addresses are taken later, when all
// exist.
func (d *device) prepare(g *Group) {
	c := d.side.c
	d.ops, d.also = d.ops[:0], d.also[:0]
	exchange, first := d.op.Transfers[:0], -1
	var stream uintptr
	for i := range g.calls {
		a := &g.calls[i].a
		if g.calls[i].c != c || !a.onDevice() {
			continue
		}
		d.last = true
		if a.Coll == pointToPoint {
			if first < 0 {
				first = i
			}
			exchange = append(exchange, a.transfer())
			if stream = a.stream; len(d.also) == 0 || d.also[len(d.also)-1] != stream {
				d.also = append(d.also, stream)
			}
			continue
		}
		d.ops = append(d.ops, executor.Op{})
		d.describe(&d.ops[len(d.ops)-1], a)
		g.batch, g.from = append(g.batch, nil), append(g.from, i)
	}
	if len(d.also) == 1 { // only the operation's own stream
		d.also = d.also[:0]
	}
	d.op.Transfers = exchange
	if first >= 0 {
		call := d.watchdog.Transfers(c.seq, exchange, stream)
		d.ops = append(d.ops, executor.Op{On: d.Executor, Stream: stream, Also: d.also, Call: call, Op: op.Op{Coll: op.SendRecv, Root: NoPeer, Transfers: exchange}})
		g.batch, g.from = append(g.batch, nil), append(g.from, first)
	}
}

// slot returns the address of operation i of the batch.
func (g *Group) slot(i int) *executor.Op {
	for _, c := range g.comms {
		if c.dev == nil {
			continue
		}
		if n := len(c.dev.ops); i >= n {
			i -= n
			continue
		}
		return &c.dev.ops[i]
	}
	return nil
}
