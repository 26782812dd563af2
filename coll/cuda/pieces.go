//go:build cuda && cgo

package cuda

import (
	"errors"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/schedule"
)

// do does a lane's pieces of an operation: the input of the next one is copied
// to the host while this one is worked on, and the result of the one before
// copied back.
func (l *lane) do(j *job) error {
	if err := l.in.WaitEvent(j.start); err != nil {
		return err
	}
	if err := l.out.WaitEvent(j.start); err != nil {
		return err
	}
	n, step := pieces(&j.op, l.cfg.Size), len(l.lanes)
	if err := l.fetch(j, l.index); err != nil {
		return err
	}
	for k := l.index; k < n; k += step {
		if k+step < n {
			if err := l.fetch(j, k+step); err != nil {
				return err
			}
		}
		at := l.slot(k)
		if err := l.await(at.came); err != nil {
			return err
		}
		if err := l.operate(&j.op, k, at); err != nil {
			return err
		}
		if err := l.deliver(j, k); err != nil {
			return err
		}
	}
	if n == 0 { // the word must not be ahead of the operation before
		return l.await(j.start)
	}
	return l.await(l.slot(n - 1 - (n-1-l.index)%step).won) // the last piece's
}

// errAborted is why a lane left an operation.
var errAborted = errors.New("the communicator was aborted")

// await waits for an event of the lane's, unless the communicator is aborted:
// the caller's stream may never come to the operation.
func (l *lane) await(e driver.Event) error {
	for polls := 0; ; polls++ {
		if done, err := e.Query(); done || err != nil {
			return err
		}
		if l.aborted.Load() {
			return errAborted
		}
		if polls > 1000 {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// slot is where a piece of the lane's lies.
func (l *lane) slot(k int) *slot { return &l.slots[k/len(l.lanes)%stageSlots] }

// fetch copies the input of piece k to the host.
func (l *lane) fetch(j *job, k int) error {
	to := l.slot(k)
	if err := l.await(to.won); err != nil { // the piece that was there before
		return err
	}
	all := runs(&j.op, l.cfg.Rank, l.cfg.Size, k, nil)
	in, out := 0, 0
	for _, r := range all {
		if r.in {
			in += r.n
		} else {
			out += r.n
		}
	}
	if err := l.room(to, in, out); err != nil {
		return err
	}
	at := driver.Ptr(0)
	for _, r := range all {
		if !r.in {
			continue
		}
		if err := driver.CopyAsync(to.in.ptr+at, driver.Ptr(r.addr), r.n, l.in); err != nil {
			return err
		}
		at += driver.Ptr(r.n)
	}
	return to.came.Record(l.in)
}

// deliver copies the result of piece k to the device.
func (l *lane) deliver(j *job, k int) error {
	to := l.slot(k)
	at := driver.Ptr(0)
	for _, r := range runs(&j.op, l.cfg.Rank, l.cfg.Size, k, nil) {
		if r.in {
			continue
		}
		if err := driver.CopyAsync(driver.Ptr(r.addr), to.out.ptr+at, r.n, l.out); err != nil {
			return err
		}
		at += driver.Ptr(r.n)
	}
	return to.won.Record(l.out)
}

// operate does the operation on a piece, which is on the host.
func (l *lane) operate(op *coll.DeviceOp, k int, at *slot) error {
	c, in, out := l.host, coll.Bytes(at.in.b), coll.Bytes(at.out.b)
	if op.Coll == schedule.SendRecv {
		return l.sendRecv(op, k, at)
	}
	_, n := piece(op, l.cfg.Size, k)
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
func (l *lane) sendRecv(op *coll.DeviceOp, k int, at *slot) error {
	g := &l.group
	g.Start()
	g.Add(l.host)
	in, out := 0, 0
	for _, t := range op.Transfers {
		_, n := pieceOf(t.Bytes, k)
		if n == 0 {
			continue
		}
		var err error
		if t.Send {
			err = l.host.Send(coll.Bytes(at.in.b[in:in+n]), n, coll.Uint8, t.Peer)
			in += n
		} else {
			err = l.host.Recv(coll.Bytes(at.out.b[out:out+n]), n, coll.Uint8, t.Peer)
			out += n
		}
		if err != nil {
			break // End returns it
		}
	}
	return g.End()
}
