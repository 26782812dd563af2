//go:build cuda && cgo

package cuda

import (
	"errors"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// do processes the lane's pieces of an operation. While it works on one piece, the input of the next piece is
// copied to the host and the result of the previous piece is copied back.
func (l *lane) do(j *job) error {
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
		if err := l.await(func() bool { return l.in.done(at.came) }); err != nil {
			return err
		}
		if err := l.operate(&j.op, k, at); err != nil {
			return err
		}
		if err := l.deliver(j, k); err != nil {
			return err
		}
	}
	return nil
}

// end lets the blocks end that copy for the lane, behind all copies.
func (l *lane) end(j *job) {
	for k := range j.shares {
		_, _ = l.listOne(&l.in[k], 0, 0, stageEnd), l.listOne(&l.out[k], 0, 0, stageEnd)
	}
}

// errAborted is returned when a lane leaves an operation because of an abort.
var errAborted = errors.New("the communicator was aborted")

// await waits until something has happened on the device, or the communicator is aborted: the caller's
// stream may never reach the operation.
func (l *lane) await(happened func() bool) error {
	for polls := 0; !happened(); polls++ {
		if l.aborted.Load() {
			return errAborted
		}
		if polls < pollsBeforeSleep {
			continue
		}
		time.Sleep(20 * time.Microsecond)
		if polls%256 == 0 {
			if _, err := l.lost.Query(); err != nil {
				return err
			}
		}
	}
	return nil
}

// pollsBeforeSleep takes about a millisecond: lanes of an operation may end so far apart, and sleeping is not exact.
const pollsBeforeSleep = 1 << 18

// slot returns the slot of one of the lane's pieces.
func (l *lane) slot(k int) *slot { return &l.slots[k/len(l.lanes)%stageSlots] }

// list shares a copy among the blocks of a job. The first of them gets what is short at once, whenever it begins; what
// is long, those that have begun.
func (l *lane) list(j *job, lists *copyLists, to, from driver.Ptr, bytes int) error {
	begun := []*copyList{&lists[0]}
	if shares := min(j.shares, bytes/leastShare); shares > 1 {
		if err := l.await(func() bool { return lists[0].begun(j.number) }); err != nil {
			return err
		}
		// Others begin with the first one, or when it has ended if other work leaves no room for them.
		for since := time.Now(); !lists.begun(j.number, shares) && time.Since(since) < togetherTime; {
		}
		for k := 1; k < shares; k++ {
			if lists[k].begun(j.number) {
				begun = append(begun, &lists[k])
			}
		}
	}
	per := (bytes/len(begun) + 127) / 128 * 128
	for k, c := range begun {
		at := min(k*per, bytes)
		n := min(per, bytes-at)
		if k == len(begun)-1 {
			n = bytes - at
		}
		if err := l.listOne(c, to+driver.Ptr(at), from+driver.Ptr(at), uint32(n)); err != nil {
			return err
		}
	}
	return nil
}

// togetherTime is how long after one another blocks begin for which there is room.
const togetherTime = 10 * time.Microsecond

// listOne adds a copy to a list, once there is room.
func (l *lane) listOne(c *copyList, to, from driver.Ptr, bytes uint32) error {
	if err := l.await(c.room); err != nil {
		return err
	}
	c.add(to, from, bytes)
	return nil
}

// fetch copies the input of piece k to the host.
func (l *lane) fetch(j *job, k int) error {
	to := l.slot(k)
	if err := l.await(func() bool { return l.out.done(to.won) }); err != nil { // of the piece that used the slot before
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
	if j.op.FactorAt { // it lies behind the input
		all = append(all, memoryRun{uintptr(j.op.Factor), j.op.Type.Size(), true})
	}
	if err := l.reserve(to, in+mostFactor, out); err != nil {
		return err
	}
	at := driver.Ptr(0)
	for _, r := range all {
		if !r.in {
			continue
		}
		if err := l.list(j, &l.in, to.in.ptr+at, driver.Ptr(r.addr), r.n); err != nil {
			return err
		}
		at += driver.Ptr(r.n)
	}
	to.n, to.came = in, l.in.mark()
	return nil
}

// mostFactor is the size of the largest element type.
const mostFactor = 8

// deliver copies the result of piece k to the device.
func (l *lane) deliver(j *job, k int) error {
	to := l.slot(k)
	at := driver.Ptr(0)
	for _, r := range runs(&j.op, l.cfg.Rank, l.cfg.Size, k, nil) {
		if r.in {
			continue
		}
		if err := l.list(j, &l.out, driver.Ptr(r.addr), to.out.ptr+at, r.n); err != nil {
			return err
		}
		at += driver.Ptr(r.n)
	}
	to.won = l.out.mark()
	return nil
}

// operate does the operation on a piece in host memory.
func (l *lane) operate(o *op.Op, k int, at *slot) error {
	if o.Coll == op.SendRecv {
		return l.sendRecv(o, k, at)
	}
	here := *o
	_, here.Count = piece(o, l.cfg.Size, k)
	here.Send, here.Recv, here.Device = at.in.bytes, at.out.bytes, false
	if o.FactorAt {
		here.Scale = elem.Float(o.Type, at.in.bytes[at.n:][:o.Type.Size()])
	}
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
