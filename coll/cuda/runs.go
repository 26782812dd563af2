package cuda

import (
	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/schedule"
)

// A run is a stretch of device memory that a piece of a staged operation reads
// or writes. The runs of a piece lie one after the other on the host.
type run struct {
	addr uintptr
	n    int // bytes
	in   bool
}

// stagePart is the length of a piece of a Send or Recv, and at most that of a
// piece of each part of a collective's longer buffer, all parts together.
const stagePart = 2 << 20

// piece is which elements of every part piece k of a collective has: at and
// number.
func piece(op *coll.DeviceOp, ranks, k int) (at, n int) {
	per := max(1, stagePart/op.Type.Size()/partsOf(op.Coll, ranks))
	at = k * per
	return at, min(per, op.Count-at)
}

// pieceOf is the same of a message of so many bytes; n is 0 behind its end.
func pieceOf(bytes, k int) (at, n int) {
	at = min(k*stagePart, bytes)
	return at, min(stagePart, bytes-at)
}

// partsOf is how many parts the longer buffer of a collective has.
func partsOf(c schedule.Collective, ranks int) int {
	switch c {
	case schedule.AllReduce, schedule.Broadcast, schedule.Reduce:
		return 1
	}
	return ranks
}

// pieces is how many pieces an operation has: as many on every rank.
func pieces(op *coll.DeviceOp, ranks int) int {
	if op.Coll != schedule.SendRecv {
		per := max(1, stagePart/op.Type.Size()/partsOf(op.Coll, ranks))
		return (op.Count + per - 1) / per
	}
	n := 0
	for _, t := range op.Transfers {
		n = max(n, (t.Bytes+stagePart-1)/stagePart)
	}
	return n
}

// runs appends the runs of piece k to all.
func runs(op *coll.DeviceOp, rank, ranks, k int, all []run) []run {
	if op.Coll == schedule.SendRecv {
		for _, t := range op.Transfers {
			if at, n := pieceOf(t.Bytes, k); n > 0 {
				all = append(all, run{t.Addr + uintptr(at), n, t.Send})
			}
		}
		return all
	}
	at, n := piece(op, ranks, k)
	size := op.Type.Size()
	ins, outs := partsHere(op, rank, ranks)
	for _, side := range [...]struct {
		addr  uintptr
		parts int
		in    bool
	}{{op.Send, ins, true}, {op.Recv, outs, false}} {
		for p := range side.parts {
			all = append(all, run{side.addr + uintptr((p*op.Count+at)*size), n * size, side.in})
		}
	}
	return all
}

// partsHere is how many parts a rank's buffers have.
func partsHere(op *coll.DeviceOp, rank, ranks int) (in, out int) {
	root := 0
	if rank == op.Root {
		root = 1
	}
	switch op.Coll {
	case schedule.AllReduce:
		return 1, 1
	case schedule.Broadcast:
		return root, 1
	case schedule.Reduce:
		return 1, root
	case schedule.AllGather:
		return 1, ranks
	case schedule.ReduceScatter:
		return ranks, 1
	case schedule.AllToAll:
		return ranks, ranks
	case schedule.Gather:
		return 1, root * ranks
	}
	return root * ranks, 1 // Scatter
}
