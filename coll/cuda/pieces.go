//go:build cuda && cgo

package cuda

import (
	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/schedule"
)

// do does an operation, piece by piece: the input of the next piece is copied
// to the host while this one is worked on, and the result of the one before
// copied back.
func (s *stager) do(j *job) error {
	if err := s.in.WaitEvent(j.start); err != nil {
		return err
	}
	if err := s.out.WaitEvent(j.start); err != nil {
		return err
	}
	n := pieces(&j.op, s.cfg.Size)
	if err := s.fetch(j, 0); err != nil {
		return err
	}
	for k := range n {
		if k+1 < n {
			if err := s.fetch(j, k+1); err != nil {
				return err
			}
		}
		l := &s.slots[k%stageSlots]
		if err := l.came.Synchronize(); err != nil {
			return err
		}
		if err := s.operate(&j.op, k, l); err != nil {
			return err
		}
		if err := s.deliver(j, k); err != nil {
			return err
		}
	}
	return s.out.Synchronize()
}

// fetch copies the input of piece k to the host.
func (s *stager) fetch(j *job, k int) error {
	l := &s.slots[k%stageSlots]
	if err := l.won.Synchronize(); err != nil { // the piece that was there before
		return err
	}
	all := runs(&j.op, s.cfg.Rank, s.cfg.Size, k, nil)
	in, out := 0, 0
	for _, r := range all {
		if r.in {
			in += r.n
		} else {
			out += r.n
		}
	}
	if err := s.room(l, in, out); err != nil {
		return err
	}
	at := driver.Ptr(0)
	for _, r := range all {
		if !r.in {
			continue
		}
		if err := driver.CopyAsync(l.in.ptr+at, driver.Ptr(r.addr), r.n, s.in); err != nil {
			return err
		}
		at += driver.Ptr(r.n)
	}
	return l.came.Record(s.in)
}

// deliver copies the result of piece k to the device.
func (s *stager) deliver(j *job, k int) error {
	l := &s.slots[k%stageSlots]
	at := driver.Ptr(0)
	for _, r := range runs(&j.op, s.cfg.Rank, s.cfg.Size, k, nil) {
		if r.in {
			continue
		}
		if err := driver.CopyAsync(driver.Ptr(r.addr), l.out.ptr+at, r.n, s.out); err != nil {
			return err
		}
		at += driver.Ptr(r.n)
	}
	return l.won.Record(s.out)
}

// operate does the operation on a piece, which is on the host.
func (s *stager) operate(op *coll.DeviceOp, k int, l *slot) error {
	c, in, out := s.host, coll.Bytes(l.in.b), coll.Bytes(l.out.b)
	if op.Coll == schedule.SendRecv {
		return s.sendRecv(op, k, l)
	}
	_, n := piece(op, s.cfg.Size, k)
	red := op.Op
	if op.Divisor > 0 {
		red = coll.Avg
	}
	factor := coll.PreMulSum{Factor: op.Scale}
	switch op.Coll {
	case schedule.AllReduce:
		if op.Scaled {
			return c.AllReducePreMul(in, out, n, op.Type, factor)
		}
		return c.AllReduce(in, out, n, op.Type, red)
	case schedule.Reduce:
		if op.Scaled {
			return c.ReducePreMul(in, out, n, op.Type, factor, op.Root)
		}
		return c.Reduce(in, out, n, op.Type, red, op.Root)
	case schedule.ReduceScatter:
		if op.Scaled {
			return c.ReduceScatterPreMul(in, out, n, op.Type, factor)
		}
		return c.ReduceScatter(in, out, n, op.Type, red)
	case schedule.Broadcast:
		return c.Broadcast(in, out, n, op.Type, op.Root)
	case schedule.AllGather:
		return c.AllGather(in, out, n, op.Type)
	case schedule.AllToAll:
		return c.AllToAll(in, out, n, op.Type)
	case schedule.Gather:
		return c.Gather(in, out, n, op.Type, op.Root)
	default: // Scatter
		return c.Scatter(in, out, n, op.Type, op.Root)
	}
}

// sendRecv does piece k of all transfers.
func (s *stager) sendRecv(op *coll.DeviceOp, k int, l *slot) error {
	g := &s.group
	g.Start()
	g.Add(s.host)
	in, out := 0, 0
	for _, t := range op.Transfers {
		_, n := pieceOf(t.Bytes, k)
		if n == 0 {
			continue
		}
		var err error
		if t.Send {
			err = s.host.Send(coll.Bytes(l.in.b[in:in+n]), n, coll.Uint8, t.Peer)
			in += n
		} else {
			err = s.host.Recv(coll.Bytes(l.out.b[out:out+n]), n, coll.Uint8, t.Peer)
			out += n
		}
		if err != nil {
			break // End returns it
		}
	}
	return g.End()
}
