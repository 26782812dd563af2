package host

import (
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/schedule"
)

// advance runs the lane's steps until one has to wait, and reports whether it
// ran any.
func (r *Run) advance(l *lane) bool {
	moved := false
	for l.pc >= 0 {
		st := &l.plan.steps[l.pc]
		n := r.length(l, st.data)
		if n > 0 && !r.step(l, st, n) {
			return moved
		}
		moved = true
		l.posted, l.got = false, false
		if l.pc++; l.pc == len(l.plan.steps) {
			r.nextWindow(l)
		}
	}
	return moved
}

func (r *Run) nextWindow(l *lane) {
	l.pc = 0
	l.lo = l.hi
	l.hi = min(l.lo+r.window, l.end)
	if l.lo >= l.end {
		l.pc = -1
		r.live--
	}
}

// step runs a step that moves n bytes, if it can.
func (r *Run) step(l *lane, st *step, n int) bool {
	one := st.data.N == 1 || r.whole(l)
	if st.reducer != nil {
		st.reducer.As(r.plan.Schedule.Collective, r.Type, r.Red)
	}
	if st.rx == nil {
		return r.local(l, st, n, one)
	}
	if st.directRx && one && !l.got && (st.tx == nil || st.dst.Buf == schedule.Output) {
		return r.receiveDirect(l, st, n)
	}
	if l.got {
		return r.forward(l, st, n)
	}
	msg, h, ok := st.rx.Peek()
	if !ok || !r.check(st.from, h, len(msg), n) {
		return false
	}
	var out []byte
	if st.tx != nil && !(st.directTx && one && r.zeroCopy && st.dst.Buf == schedule.Output) {
		if out = st.tx.Reserve(n); out == nil {
			return false
		}
	}
	r.combine(l, st, msg, out, n, one)
	if !st.rx.Release() { // it must not be passed on
		return false
	}
	switch {
	case out != nil:
		st.tx.Commit(n, r.Header)
	case st.tx != nil:
		l.got = true
		return r.forward(l, st, n)
	}
	return true
}

// receiveDirect receives a message directly at its destination.
func (r *Run) receiveDirect(l *lane, st *step, n int) bool {
	if !l.posted {
		st.rx.Post(r.mem(l, st.dst, 0, n))
		l.posted = true
	}
	h, m, ok := st.rx.Done()
	if !ok || !r.check(st.from, h, m, n) {
		return false
	}
	l.got = true
	return st.tx == nil || r.forward(l, st, n)
}

// forward sends the value that the step has stored at its dst.
func (r *Run) forward(l *lane, st *step, n int) bool {
	return st.tx.Post(r.mem(l, st.dst, 0, n), r.Header)
}

// local runs a step that receives nothing.
func (r *Run) local(l *lane, st *step, n int, one bool) bool {
	direct := st.directTx && one && r.zeroCopy
	plain := one && st.b.Buf == schedule.NoBuf && !(r.Scaled && st.ownA)
	switch {
	case l.got:
		return r.forward(l, st, n)
	case st.tx == nil:
		r.combine(l, st, nil, nil, n, one)
		return true
	case direct && plain && st.a.Buf != schedule.Scratch: // which the next window overwrites
		// Sent from the operand, not from its copy at dst: memory that a receiver has read is
		// slow to overwrite, and inputs seldom are overwritten.
		if !st.tx.Post(r.mem(l, st.a, 0, n), r.Header) {
			return false
		}
		r.combine(l, st, nil, nil, n, one)
		return true
	case direct && st.dst.Buf == schedule.Output:
		r.combine(l, st, nil, nil, n, one)
		l.got = true
		return r.forward(l, st, n)
	}
	out := st.tx.Reserve(n)
	if out == nil {
		return false
	}
	if plain && st.dst.Buf == schedule.NoBuf {
		elem.Copy(out, r.mem(l, st.a, 0, n))
	} else {
		r.combine(l, st, nil, out, n, one)
	}
	st.tx.Commit(n, r.Header)
	return true
}

// combine computes the step's value, n bytes, from its local operands and the message, and stores
// it at dst and in out, if they exist.
func (r *Run) combine(l *lane, st *step, msg, out []byte, n int, one bool) {
	if one {
		r.piece(l, st, 0, n, msg, out)
		return
	}
	at := 0
	for i := range int(st.data.N) {
		m := l.hi - l.lo
		if r.plan.vector {
			m = r.clip(int(st.data.First)+i, l)
		}
		if m == 0 {
			continue
		}
		var msgI, outI []byte
		if msg != nil {
			msgI = msg[at : at+m]
		}
		if out != nil {
			outI = out[at : at+m]
		}
		r.piece(l, st, i, m, msgI, outI)
		at += m
	}
}

// cached is how many bytes are computed at a time before they are copied, while they are in the
// first-level cache.
const cached = 8 << 10

// piece does combine for n contiguous bytes, from block i of the span on.
func (r *Run) piece(l *lane, st *step, i, n int, msg, out []byte) {
	var x, y, dst []byte // the operands, in order
	own := 0             // which of them a premultiplied sum scales: 1, 2, or 0 for none
	if st.a.Buf != schedule.NoBuf {
		x = r.mem(l, st.a, i, n)
		if r.Scaled && st.ownA {
			own = 1
		}
	}
	if st.b.Buf != schedule.NoBuf {
		y = r.mem(l, st.b, i, n)
		if r.Scaled && st.ownB {
			own = 2
		}
	} else {
		y = msg
	}
	if x == nil {
		x, y = y, nil
	}
	if st.dst.Buf != schedule.NoBuf {
		dst = r.mem(l, st.dst, i, n)
	}
	past := r.large && st.final
	switch {
	case dst == nil && out == nil:
	case dst == nil:
		r.value(out, x, y, own)
	case out == nil && past && own == 0:
		r.valuePast(dst, x, y)
	case out == nil:
		r.value(dst, x, y, own)
	case past:
		r.value(out, x, y, own)
		elem.CopyNT(dst, out)
	default:
		for at := 0; at < n; at += cached {
			end := min(at+cached, n)
			var yy []byte
			if y != nil {
				yy = y[at:end]
			}
			r.value(dst[at:end], x[at:end], yy, own)
			copy(out[at:end], dst[at:end])
		}
	}
}

// valuePast is value with stores that bypass the caches.
func (r *Run) valuePast(dst, x, y []byte) {
	switch {
	case y != nil:
		r.past(dst, x, y)
	case &dst[0] != &x[0]:
		elem.CopyNT(dst, x)
	}
}

// value stores x, or x reduced with y. One of them may be scaled first.
func (r *Run) value(dst, x, y []byte, own int) {
	switch {
	case own == 0 && y != nil:
		r.kernel(dst, x, y)
	case own == 0:
		if &dst[0] != &x[0] {
			elem.Copy(dst, x)
		}
	case y == nil:
		elem.Scale(r.Type, dst, x, r.Scale)
	case own == 1:
		elem.ReduceScaled(r.Type, dst, y, x, r.Scale)
	default:
		elem.ReduceScaled(r.Type, dst, x, y, r.Scale)
	}
}
