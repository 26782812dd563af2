package coll

import (
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
)

// A repeat is the previous operation. Programs call the same one again and again; it then needs
// no second check and choice.
type repeat struct {
	op      op.Op
	plan    *host.Plan // nil: there was no previous operation
	inPlace bool
}

// again prepares an operation that is the same as the previous one. It reports false if it is another.
func (h *hostPath) again(a *call) bool {
	l := &h.last
	if !l.is(a) || !l.fits(h.shared.rank, a) {
		l.plan = nil
		return false
	}
	h.seq++
	a.Send, a.Recv = a.Send[:len(l.op.Send)], a.Recv[:len(l.op.Recv)]
	h.one.Again(a.Send, a.Recv, h.seq)
	return true
}

func (l *repeat) is(a *call) bool {
	o := &l.op
	return l.plan != nil && o.Coll == a.Coll && o.Type == a.Type && o.Red == a.Red && o.Scaled == a.Scaled &&
		o.Count == a.Count && o.Root == a.Root && o.Scale == a.Scale
}

// fits reports whether the buffers are large enough, and separate or in place like those of the
// previous operation.
func (l *repeat) fits(rank int, a *call) bool {
	send, recv := len(l.op.Send), len(l.op.Recv)
	if len(a.Send) < send || len(a.Recv) < recv {
		return false
	}
	if !overlap(a.Send[:send], a.Recv[:recv]) {
		return !l.inPlace
	}
	return l.inPlace && a.inPlace(rank)
}
