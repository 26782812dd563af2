package cuda

import "github.com/assay-hpc/assay/coll/op"

// A memoryRun is a stretch of device memory that a piece of a staged operation reads
// or writes. The runs of a piece lie one after the other on the host.
type memoryRun struct {
	addr uintptr
	n    int // bytes
	in   bool
}

// stagePart is the length of a piece of a Send or Recv. For a collective it is the most that a
// piece has of the longer buffer, all parts together.
const stagePart = 2 << 20

// piece returns which elements of every part piece k of a collective has: n elements from at.
func piece(o *op.Op, ranks, k int) (at, n int) {
	per := max(1, stagePart/o.Type.Size()/o.Coll.Longest(ranks))
	at = k * per
	return at, min(per, o.Count-at)
}

// pieceOf is the same for a message of the given bytes; n is 0 beyond its end.
func pieceOf(bytes, k int) (at, n int) {
	at = min(k*stagePart, bytes)
	return at, min(stagePart, bytes-at)
}

// pieces returns how many pieces an operation has. For a collective it is the same on every
// rank.
func pieces(o *op.Op, ranks int) int {
	if o.Coll != op.SendRecv {
		per := max(1, stagePart/o.Type.Size()/o.Coll.Longest(ranks))
		return (o.Count + per - 1) / per
	}
	n := 0
	for _, t := range o.Transfers {
		n = max(n, (len(t.Data)+stagePart-1)/stagePart)
	}
	return n
}

// runs appends the runs of piece k to all.
func runs(o *op.Op, rank, ranks, k int, all []memoryRun) []memoryRun {
	if o.Coll == op.SendRecv {
		for _, t := range o.Transfers {
			if at, n := pieceOf(len(t.Data), k); n > 0 {
				all = append(all, memoryRun{op.Addr(t.Data) + uintptr(at), n, t.Send})
			}
		}
		return all
	}
	at, n := piece(o, ranks, k)
	size := o.Type.Size()
	ins, outs := o.Coll.Parts(rank, o.Root, ranks)
	for _, side := range [...]struct {
		addr  uintptr
		parts int
		in    bool
	}{{op.Addr(o.Send), ins, true}, {op.Addr(o.Recv), outs, false}} {
		for p := range side.parts {
			all = append(all, memoryRun{side.addr + uintptr((p*o.Count+at)*size), n * size, side.in})
		}
	}
	return all
}
