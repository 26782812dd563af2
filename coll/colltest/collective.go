package colltest

import (
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// An operation is one call that all ranks make.
type operation struct {
	coll    op.Collective
	t       elem.Type
	op      elem.Op
	count   int
	root    int
	inPlace bool
	seed    uint64
	answer  *answer // the expected result, for operations that reduce
}

// receives reports whether the rank's receive buffer is written.
func (o operation) receives(rank, n int) bool {
	_, recv := o.coll.Parts(rank, o.root, n)
	return recv > 0
}

// wants return element i of the expected receive buffer, by collective.
var wants = [op.NumCollectives]func(d data, rank, root, count, i int) uint64{
	op.AllReduce:     func(d data, _, _, _, i int) uint64 { return d.reduced(i) },
	op.Reduce:        func(d data, _, _, _, i int) uint64 { return d.reduced(i) },
	op.ReduceScatter: func(d data, rank, _, count, i int) uint64 { return d.reduced(rank*count + i) },
	op.Broadcast:     func(d data, _, root, _, i int) uint64 { return d.at(root, i) },
	op.AllGather:     func(d data, _, _, count, i int) uint64 { return d.at(i/count, i%count) },
	op.AllToAll:      func(d data, rank, _, count, i int) uint64 { return d.at(i/count, rank*count+i%count) },
	op.Gather:        func(d data, _, _, count, i int) uint64 { return d.at(i/count, i%count) },
	op.Scatter:       func(d data, rank, root, count, i int) uint64 { return d.at(root, rank*count+i) },
	op.SendRecv:      func(d data, rank, _, _, i int) uint64 { return d.at((rank+d.n-1)%d.n, i) },
}
