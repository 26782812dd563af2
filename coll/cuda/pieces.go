//go:build cuda && cgo

package cuda

import (
	"errors"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// do processes the lane's pieces of an operation, once the stream has come to it. While it works on one piece,
// the input of the next piece is copied to the host and the result of the previous piece is copied back.
func (l *lane) do(j *job) error {
	if err := l.await(j.start); err != nil {
		return err
	}
	n, step := pieces(&j.op, l.cfg.Size), len(l.lanes)
	o := j.op
	if o.FactorAt {
		if err := l.factor(&o); err != nil {
			return err
		}
	}
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
		if err := l.operate(&o, k, at); err != nil {
			return err
		}
		if err := l.deliver(j, k); err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	return l.await(l.slot(n - 1 - (n-1-l.index)%step).won) // of the lane's last piece
}

// errAborted is returned when a lane leaves an operation because of an abort.
var errAborted = errors.New("the communicator was aborted")

// await waits for one of the lane's events, or until the communicator is aborted: the caller's
// stream may never reach the operation.
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

// slot returns the slot of one of the lane's pieces.
func (l *lane) slot(k int) *slot { return &l.slots[k/len(l.lanes)%stageSlots] }

// factor reads an operation's factor from the device.
func (l *lane) factor(o *op.Op) error {
	at, n := l.slot(l.index), o.Type.Size()
	if err := l.await(at.won); err != nil {
		return err
	}
	err := driver.CopyAsync(at.in.ptr, driver.Ptr(o.Factor), n, l.in)
	if err == nil {
		err = at.came.Record(l.in)
	}
	if err == nil {
		err = l.await(at.came)
	}
	o.Scale = elem.Float(o.Type, at.in.bytes[:n])
	return err
}

// fetch copies the input of piece k to the host.
func (l *lane) fetch(j *job, k int) error {
	to := l.slot(k)
	if err := l.await(to.won); err != nil { // of the piece that used the slot before
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
	if err := l.reserve(to, in, out); err != nil {
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

// operate does the operation on a piece in host memory.
func (l *lane) operate(o *op.Op, k int, at *slot) error {
	if o.Coll == op.SendRecv {
		return l.sendRecv(o, k, at)
	}
	here := *o
	_, here.Count = piece(o, l.cfg.Size, k)
	here.Send, here.Recv, here.Device = at.in.bytes, at.out.bytes, false
	if o.Divisor > 0 {
		here.Red = elem.Avg
	}
	return l.host.Do(&here)
}

// sendRecv does piece k of all transfers.
func (l *lane) sendRecv(o *op.Op, k int, at *slot) error {
	l.transfers = l.transfers[:0]
	in, out := 0, 0
	for _, t := range o.Transfers {
		_, n := pieceOf(len(t.Data), k)
		switch {
		case n == 0:
			continue
		case t.Send:
			t.Data = at.in.bytes[in:][:n]
			in += n
		default:
			t.Data = at.out.bytes[out:][:n]
			out += n
		}
		l.transfers = append(l.transfers, t)
	}
	if len(l.transfers) == 0 {
		return nil
	}
	return l.host.Do(&op.Op{Coll: op.SendRecv, Transfers: l.transfers})
}
