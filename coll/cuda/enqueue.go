//go:build cuda && cgo

package cuda

import (
	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

func (e *engine) enqueue(o *op.Op) error {
	if e.cfg.Size == 1 {
		return e.alone(o)
	}
	if o.Coll == op.SendRecv {
		return e.sendRecv(o)
	}
	if o.Norm.Row > 0 {
		l, more := e.norm(o)
		if err := e.run(l); err != nil || !more {
			return err
		}
		return e.run(e.afterwards(o, op.Addr(o.Recv)))
	}
	c := e.way(o)
	switch c.kernel {
	case copies:
		return e.copier.all(o, c)
	case nvidia:
		return e.leave(o)
	}
	return e.run(e.prepare(o, c))
}

// leave has the library do an operation.
func (e *engine) leave(o *op.Op) error {
	e.chosen = choice{kernel: nvidia}
	e.gone.Store(true)
	return e.dev.in(func() error { return e.lib.do(o, e.stream) })
}

// split separates the engine's Sends and Recvs from the library's. Both ends of a message come
// to the same result, because its length is the same at both.
func (e *engine) split(all []op.Transfer) (own, others []op.Transfer) {
	if e.lib == nil {
		return all, nil
	}
	for _, t := range all {
		if e.chooser.choose(op.SendRecv, len(t.Data)).kernel == nvidia {
			others = append(others, t)
		} else {
			own = append(own, t)
		}
	}
	return own, others
}

// sendRecv enqueues Sends and Recvs: the engine's own first, on all ranks.
func (e *engine) sendRecv(o *op.Op) error {
	own, others := e.split(o.Transfers)
	if err := e.exchangeOwn(own); err != nil || len(others) == 0 {
		return err
	}
	return e.leave(&op.Op{Coll: op.SendRecv, Transfers: others})
}

func (e *engine) exchangeOwn(own []op.Transfer) error {
	e.exchange.start(own)
	for {
		l, more, err := e.nextExchange()
		if !more || err != nil {
			return err
		}
		if l == nil {
			continue
		}
		if err := e.run(l); err != nil {
			return err
		}
	}
}

// way chooses how to do a collective.
func (e *engine) way(o *op.Op) choice {
	if e.direct(o) != nil {
		if c, ok := e.chooser.direct(o.Coll, o.Bytes()); ok {
			return c
		}
	}
	c := e.chooser.choose(o.Coll, o.Bytes())
	var not uint32
	if c.kernel == copies && !e.copier.takes(o) {
		not |= withoutCopies
		c = e.chooser.chooseWithout(not, o.Coll, o.Bytes())
	}
	if kernelTable[c.kernel].exact && kernels.Rounds(o.Type, o.Red) {
		c = e.chooser.chooseWithout(not|1<<c.kernel, o.Coll, o.Bytes())
	}
	return c
}

// nextExchange enqueues the next piece of the exchange that exchange.start has begun, or
// prepares the launch that does it. more is false at the end.
func (e *engine) nextExchange() (l *driver.Launch, more bool, err error) {
	if more, err := e.copier.next(); more || err != nil {
		return nil, more, err
	}
	var a argsABI
	c, ok := e.exchange.next(&a)
	if !ok {
		return nil, false, nil
	}
	if c.kernel == copies {
		return nil, true, e.copier.startPairs(&a, c)
	}
	p := e.launch(c.kernel, 0, 0)
	e.chosen = c
	*p.args = a
	return e.set(p, c), true, nil
}

// alone does an operation of a one-rank communicator.
func (e *engine) alone(o *op.Op) error {
	e.chosen = choice{}
	switch {
	case o.Coll == op.SendRecv:
		return e.dev.in(func() error { return copyToSelf(o.Transfers, e.stream) })
	case o.Norm.Row > 0:
		return e.run(e.afterwards(o, op.Addr(o.Send)))
	case o.Scaled:
		l := e.launch(combine, o.Type, o.Red)
		n := o.Bytes()
		c := choice{combine, min(max(1, n/(16*exchangeThreads)), 4*e.dev.info.SMs), exchangeThreads, 0}
		*l.args = argsABI{}
		l.args.scaled(o)
		l.args.in[0], l.args.out[0], l.args.recv[0] = uint64(op.Addr(o.Send)), uint64(op.Addr(o.Recv)), uint64(n)
		e.chosen = c
		return e.run(e.set(l, c))
	case op.Addr(o.Send) != op.Addr(o.Recv):
		return e.dev.in(func() error {
			return driver.CopyAsync(driver.Ptr(op.Addr(o.Recv)), driver.Ptr(op.Addr(o.Send)), o.Bytes(), e.stream)
		})
	}
	return nil
}

// copyToSelf does a rank's Sends and Recvs to itself. There are as many Sends as Recvs.
func copyToSelf(all []op.Transfer, s driver.Stream) error {
	r := 0
	for _, t := range all {
		if !t.Send {
			continue
		}
		for all[r].Send {
			r++
		}
		if err := driver.CopyAsync(driver.Ptr(op.Addr(all[r].Data)), driver.Ptr(op.Addr(t.Data)), len(t.Data), s); err != nil {
			return err
		}
		r++
	}
	return nil
}
