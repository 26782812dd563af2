//go:build cuda && cgo

package cuda

import (
	"errors"
	"slices"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A batch is the operations of a group, perhaps of several engines. They are launched in
// waves, each of which has one kernel of every device that is not done: one goroutine may
// drive several ranks, the kernels of which wait for one another. On a device the operations
// follow one another in the batch's order, which is the same on all ranks, however many kernels
// each of them takes there: they may share a stream.
type batch struct {
	cursors  []cursor // by device
	engines  []*engine
	launches []*driver.Launch
	out      []outsideOp
}

// A cursor is a device's position in its operations.
type cursor struct {
	b          *batch
	dev        *device
	ops        []*executor.Op // of engines
	index      []int          // by position in ops: index in the batch
	phases     []phase        // likewise
	at         int            // position of the next operation in ops
	from       int            // batch index of the last launch's operation
	exchanging bool
	copying    bool
	summed     bool // what follows the sum is next
	verifying  bool
}

// A phase is what a position in a cursor's operations stands for: one that is verified has three.
type phase uint8

const (
	itself phase = iota
	verifyBefore
	verifyAfter
)

// EnqueueAll implements executor.Executor.
func (b *batch) EnqueueAll(ops []*executor.Op) (int, error) {
	clear(b.out)
	b.out = b.out[:0]
	for i, o := range ops {
		if len(o.Also) == 0 {
			continue
		}
		if on, ok := o.On.(interface{ checkStreams(*executor.Op) error }); ok {
			if err := on.checkStreams(o); err != nil {
				return i, executor.Undone{Err: err}
			}
		}
	}
	if i, err := b.take(ops); err != nil {
		return i, err
	}
	for {
		more, i, err := b.wave()
		if err != nil {
			return i, err
		}
		if !more {
			if i, err := b.outside(); err != nil {
				return i, err
			}
			return b.finish()
		}
	}
}

// finish completes the enqueuing of each engine (order.done).
func (b *batch) finish() (int, error) {
	for _, e := range b.engines {
		if err := e.done(); err != nil {
			return b.of(e.dev).from, err
		}
	}
	return -1, nil
}

// take sorts the operations by device. Staged operations are handed to the host fallback at
// once, which runs them concurrently.
func (b *batch) take(ops []*executor.Op) (int, error) {
	for i := range b.cursors {
		c := &b.cursors[i]
		clear(c.ops)
		*c = cursor{ops: c.ops[:0], index: c.index[:0], phases: c.phases[:0]}
	}
	clear(b.engines)
	b.cursors, b.engines = b.cursors[:0], b.engines[:0]
	for i, o := range ops {
		switch on := o.On.(type) {
		case *engine:
			if err := checked(&on.cfg, on.dev, &o.Op); err != nil {
				return i, err
			}
			if !slices.Contains(b.engines, on) {
				b.engines = append(b.engines, on)
			}
			c := b.of(on.dev)
			if !on.verify.due(&o.Op) {
				c.add(o, i, itself)
				continue
			}
			for _, p := range [...]phase{verifyBefore, itself, verifyAfter} {
				c.add(o, i, p)
			}
		case *outsider:
			err := checked(&on.cfg, on.dev, &o.Op)
			if err == nil {
				err = on.begin(o)
			}
			if err != nil {
				return i, err
			}
			b.out = append(b.out, outsideOp{on.lib, &on.order, o, o.Op, i})
		default:
			if err := o.On.Enqueue(o); err != nil {
				return i, err
			}
		}
	}
	return -1, nil
}

// of returns the cursor of a device. It creates one if there is none.
func (b *batch) of(dev *device) *cursor {
	for i := range b.cursors {
		if b.cursors[i].dev == dev {
			return &b.cursors[i]
		}
	}
	if n := len(b.cursors); n < cap(b.cursors) {
		b.cursors = b.cursors[:n+1] // reuses the capacity of its slices
	} else {
		b.cursors = append(b.cursors, cursor{})
	}
	c := &b.cursors[len(b.cursors)-1]
	c.b, c.dev = b, dev
	return c
}

// wave launches the next kernel of every device. failed is an index in the batch.
func (b *batch) wave() (more bool, failed int, err error) {
	b.launches = b.launches[:0]
	var last *cursor
	for i := range b.cursors {
		c := &b.cursors[i]
		if c.at == len(c.ops) {
			continue
		}
		l, err := c.next()
		if err != nil {
			return false, c.from, err
		}
		more = true
		if l != nil {
			b.launches, last = append(b.launches, l), c
		}
	}
	if err := driver.RunAll(b.launches); err != nil {
		return false, last.from, err
	}
	return more, -1, nil
}

func (c *cursor) add(o *executor.Op, index int, p phase) {
	c.ops, c.index, c.phases = append(c.ops, o), append(c.index, index), append(c.phases, p)
}

// verify prepares the next launch of what verifies an operation.
func (c *cursor) verify(e *engine, d *executor.Op, p phase) (*driver.Launch, error) {
	v := e.verify
	if !c.verifying {
		if p == verifyAfter {
			v.after()
		} else {
			if err := e.begin(d); err != nil {
				return nil, err
			}
			v.before(&d.Op)
		}
	}
	l := v.next()
	if c.verifying = l != nil; !c.verifying {
		c.at++
	}
	return l, nil
}

// next prepares the next launch. It is nil if the operation was enqueued by other means, or if
// nothing is left of it.
func (c *cursor) next() (*driver.Launch, error) {
	d := c.ops[c.at]
	e, o := d.On.(*engine), &d.Op
	c.from = c.index[c.at]
	if p := c.phases[c.at]; p != itself {
		return c.verify(e, d, p)
	}
	if c.exchanging {
		l, more, err := e.nextExchange()
		if !more {
			c.exchanging = false
			c.at++
			if err == nil {
				err = e.end(d) // it was launched in earlier waves
			}
		}
		return l, err
	}
	if c.copying {
		more, err := e.copier.next()
		if !more || err != nil {
			c.copying = false
			c.at++
		}
		return nil, err
	}
	if c.summed {
		c.summed = false
		c.at++
		return e.afterwards(o, op.Addr(o.Recv)), nil
	}
	if err := e.begin(d); err != nil {
		return nil, err
	}
	if e.cfg.Size == 1 {
		c.at++
		return nil, errors.Join(e.alone(o), e.end(d))
	}
	if o.Coll == op.SendRecv {
		own, others := e.split(o.Transfers)
		if len(others) > 0 {
			c.leave(e, d, op.Op{Coll: op.SendRecv, Transfers: others})
		}
		e.exchange.start(own)
		c.exchanging = true
		return c.next()
	}
	if o.Norm.Row > 0 {
		l, more := e.norm(o)
		if c.summed = more; !more {
			c.at++
		}
		return l, nil
	}
	way := e.way(o)
	if way.kernel == nvidia {
		c.leave(e, d, *o)
		c.at++
		return nil, nil
	}
	if way.kernel == copies {
		c.copying = true
		return nil, e.copier.start(o, way)
	}
	c.at++
	return e.prepare(o, way), nil
}

// leave leaves an operation, or a part of it, to the library.
func (c *cursor) leave(e *engine, d *executor.Op, do op.Op) {
	e.chosen = choice{kernel: nvidia}
	e.gone.Store(true)
	c.b.out = append(c.b.out, outsideOp{e.lib, &e.order, d, do, c.from})
}
