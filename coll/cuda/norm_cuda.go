//go:build cuda && cgo

package cuda

import (
	"math/bits"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// Norms implements executor.Normer.
func (e *engine) Norms() {}

// norm prepares the first launch of an AllReduce with a norm. more is true if the launch of afterwards
// follows.
func (e *engine) norm(o *op.Op) (l *driver.Launch, more bool) {
	row := o.Norm.Row * o.Type.Size()
	c, fused := e.chooser.normed(o.Bytes()/row, row)
	if !fused {
		return e.prepare(o, c), true
	}
	return e.rows(o, c, op.Addr(o.Send)), false
}

// afterwards prepares the launch that does what follows the sum, which is at the given address.
func (e *engine) afterwards(o *op.Op, sum uintptr) *driver.Launch {
	row := o.Norm.Row * o.Type.Size()
	return e.rows(o, e.chooser.normedLocally(o.Bytes()/row, row, e.dev.info.SMs, e.dev.clusters()), sum)
}

// rows prepares the launch of a kernel that normalizes rows.
func (e *engine) rows(o *op.Op, c choice, in uintptr) *driver.Launch {
	l := e.launch(c.kernel, o.Type, 0)
	e.chosen = c
	row := o.Norm.Row * o.Type.Size()
	*l.args = argsABI{channels: uint32(c.channels), symmetric: 1, sign: o.Sign}
	l.args.in[e.cfg.Rank], l.args.out[e.cfg.Rank] = uint64(in), uint64(op.Addr(o.Recv))
	*l.norm = normABI{
		weight: uint64(op.Addr(o.Norm.Weight)), residual: uint64(op.Addr(o.Norm.Residual)),
		rows: uint32(o.Bytes() / row), row: uint32(row), eps: o.Norm.Eps,
	}
	if c.kernel == normLL {
		l.args.row = uint32(bits.TrailingZeros(uint(c.threads)))
	}
	blocks := max(1, c.channels/int(l.norm.rows)) // of a row
	l.norm.split = uint32(bits.TrailingZeros(uint(blocks)))
	l.l.SetCluster(blocks)
	return e.set(l, c)
}
