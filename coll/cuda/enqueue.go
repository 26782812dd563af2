//go:build cuda && cgo

package cuda

import (
	"errors"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/schedule"
)

// Enqueue implements coll.Accelerator. What it does for one kernel allocates
// nothing and calls the driver once.
func (e *engine) Enqueue(op *coll.DeviceOp) error {
	if e.cfg.Knobs.CheckPointers {
		if err := checkPointers(e.cfg.Rank, e.cfg.Size, e.dev, op); err != nil {
			return err
		}
	}
	if err := e.enqueue(op); err != nil {
		if e.trial { // a choice may be impossible, and the next one is not
			return &coll.Error{Code: coll.InvalidArgument, Rank: e.cfg.Rank, Op: op.Coll.String(), Peer: coll.NoPeer, Err: err}
		}
		return failure(e.cfg.Rank, op.Coll.String(), err)
	}
	return nil
}

func (e *engine) enqueue(op *coll.DeviceOp) error {
	e.busy = true
	if e.cfg.Size == 1 {
		return e.alone(op)
	}
	if e.lacks(op) {
		if err := e.load(op); err != nil {
			return err
		}
		if err := e.cfg.Host.Gather(make([]byte, 1), make([]byte, e.cfg.Size)); err != nil {
			return err
		}
	}
	if first := e.copier.lacks(op); first {
		send, recv := e.copier.offer()
		if err := e.cfg.Host.Gather(send, recv); err != nil {
			return err
		}
		if err := e.copier.accept(recv); err != nil {
			return err
		}
	}
	if c, ok := e.copier.takes(op); ok {
		return e.copier.all(op, c)
	}
	if op.Coll == schedule.SendRecv {
		e.exchange.start(op.Transfers)
		for {
			l, err := e.nextExchange()
			if l == nil || err != nil {
				return err
			}
			if err := e.run(l); err != nil {
				return err
			}
		}
	}
	l, err := e.prepare(op)
	if err != nil {
		return err
	}
	return e.run(l)
}

func (e *engine) run(l *driver.Launch) error {
	e.one[0] = l
	return driver.RunAll(e.one[:])
}

// prepare makes the launch of a collective.
func (e *engine) prepare(op *coll.DeviceOp) (*driver.Launch, error) {
	if op.Coll == schedule.AllToAll && op.Send == op.Recv {
		in, err := e.aside(op)
		if err != nil {
			return nil, err
		}
		o := *op
		o.Send = in
		op = &o
	}
	c := e.chooser.chooseKernel(op.Coll, bytesOf(op))
	l, err := e.launch(c.kernel, op.Type, op.Op)
	if err != nil {
		return nil, err
	}
	e.chosen = c
	fill(l.args, e.cfg.Rank, e.cfg.Size, op, c)
	return e.set(l, c), nil
}

// nextExchange makes the next launch of what e.exchange was started with; nil:
// there is none.
func (e *engine) nextExchange() (*driver.Launch, error) {
	var a argsABI
	c, ok := e.exchange.next(&a)
	if !ok {
		return nil, nil
	}
	l, err := e.launch(c.kernel, 0, 0)
	if err != nil {
		return nil, err
	}
	e.chosen = c
	*l.args = a
	return e.set(l, c), nil
}

// alone does what an operation does on a communicator of one rank.
func (e *engine) alone(op *coll.DeviceOp) error {
	e.chosen = choice{}
	switch {
	case op.Coll == schedule.SendRecv:
		return e.dev.in(func() error { return copyToSelf(op.Transfers, e.stream) })
	case op.Scaled:
		if e.lacks(op) {
			if err := e.load(op); err != nil {
				return err
			}
		}
		l, err := e.launch(combine, op.Type, op.Op)
		if err != nil {
			return err
		}
		n := bytesOf(op)
		c := choice{combine, min(max(1, n/(16*exchangeThreads)), 4*e.dev.info.SMs), exchangeThreads, 0}
		*l.args = argsABI{scale: scaleFactor, factor: op.Factor}
		l.args.in[0], l.args.out[0], l.args.recv[0] = uint64(op.Send), uint64(op.Recv), uint64(n)
		e.chosen = c
		return e.run(e.set(l, c))
	case op.Send != op.Recv:
		return e.dev.in(func() error {
			return driver.CopyAsync(driver.Ptr(op.Recv), driver.Ptr(op.Send), bytesOf(op), e.stream)
		})
	}
	return nil
}

// copyToSelf does Sends and Recvs of a rank to itself, of which there are as
// many of the one as of the other.
func copyToSelf(all []coll.Transfer, s driver.Stream) error {
	r := 0
	for _, t := range all {
		if !t.Send {
			continue
		}
		for all[r].Send {
			r++
		}
		if err := driver.CopyAsync(driver.Ptr(all[r].Addr), driver.Ptr(t.Addr), t.Bytes, s); err != nil {
			return err
		}
		r++
	}
	return nil
}

// A scratch is device memory that grows as it is needed. What was too small
// stays: to give it back waits for the device, on which a kernel may wait for
// one that this goroutine launches later.
type scratch struct {
	p   driver.Ptr
	n   int
	all []driver.Ptr
}

func (s *scratch) grow(n int) error {
	if n <= s.n {
		return nil
	}
	n = max(n, 2*s.n)
	p, err := driver.Malloc(n)
	if err != nil {
		return err
	}
	s.p, s.n, s.all = p, n, append(s.all, p)
	return nil
}

func (s *scratch) free() error {
	var errs []error
	for _, p := range s.all {
		errs = append(errs, driver.Free(p))
	}
	*s = scratch{}
	return errors.Join(errs...)
}

// aside copies the input of an AllToAll in place: what comes from a rank
// overwrites what goes to it.
func (e *engine) aside(op *coll.DeviceOp) (uintptr, error) {
	n := bytesOf(op) * e.cfg.Size
	err := e.dev.in(func() error {
		if err := e.scratch.grow(n); err != nil {
			return err
		}
		return driver.CopyAsync(e.scratch.p, driver.Ptr(op.Send), n, e.stream)
	})
	return uintptr(e.scratch.p), err
}
