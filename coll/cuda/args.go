package cuda

import (
	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/schedule"
)

// fill writes a collective's arguments.
func fill(a *argsABI, rank, ranks int, op *coll.DeviceOp, ch choice) {
	*a = argsABI{channels: uint32(ch.channels), chunk: uint32(ch.chunk), root: int32(op.Root)}
	switch {
	case op.Scaled:
		a.scale, a.factor = scaleFactor, op.Factor
	case op.Divisor > 0:
		a.scale, a.divisor = scaleDivide, uint32(op.Divisor)
	}
	in, out, n := uint64(op.Send), uint64(op.Recv), uint64(bytesOf(op))
	every := uint32(1)<<ranks - 1
	switch op.Coll {
	case schedule.AllGather:
		for p := range ranks {
			a.in[p], a.send[p] = in, n
			a.out[p], a.recv[p] = out+uint64(p)*n, n
		}
		a.symmetric = 1
		a.phased = phased(ch, ranks, n)
	case schedule.AllToAll:
		for p := range ranks {
			a.in[p], a.send[p] = in+uint64(p)*n, n
			a.out[p], a.recv[p] = out+uint64(p)*n, n
		}
		a.symmetric = 1
		if in == out {
			a.inPlace = 1
		}
		if ranks&(ranks-1) == 0 { // or a rank that is in place would take before it sends
			a.phased = phased(ch, ranks, n)
		}
	case schedule.Broadcast:
		if ch.kernel == chainSimple {
			a.out[rank], a.send[rank], a.recv[rank] = out, n, n
			if rank == op.Root {
				a.in[rank] = in
			}
			break
		}
		if ch.kernel == relaySimple {
			a.owners = every &^ (1 << op.Root)
			a.parts(rank == op.Root, true, in, out, n)
			break
		}
		if rank == op.Root {
			for p := range ranks {
				a.in[p], a.send[p] = in, n
			}
			a.out[rank], a.recv[rank] = out, n
		} else {
			a.out[op.Root], a.recv[op.Root] = out, n
		}
	case schedule.Gather:
		a.in[op.Root], a.send[op.Root] = in, n
		if rank == op.Root {
			for p := range ranks {
				a.out[p], a.recv[p] = out+uint64(p)*n, n
			}
		}
	case schedule.Scatter:
		a.out[op.Root], a.recv[op.Root] = out, n
		if rank == op.Root {
			for p := range ranks {
				a.in[p], a.send[p] = in+uint64(p)*n, n
			}
		}
	case schedule.AllReduce:
		a.owners, a.symmetric = every, 1
		if oneHop(ch.kernel) {
			for p := range ranks {
				a.in[p], a.send[p] = in, n
			}
			a.out[rank], a.recv[rank] = out, n
		} else {
			a.targets = every
			a.parts(true, true, in, out, n)
		}
	case schedule.ReduceScatter:
		a.owners, a.symmetric = every, 1
		for p := range ranks {
			a.in[p], a.send[p] = in+uint64(p)*n, n
		}
		a.out[rank], a.recv[rank] = out, n
	case schedule.Reduce:
		if ch.kernel == reduceChain {
			a.in[rank], a.send[rank] = in, n
			if rank == op.Root {
				a.out[rank], a.recv[rank] = out, n
			}
			break
		}
		if oneHop(ch.kernel) {
			a.owners = 1 << op.Root
			a.in[op.Root], a.send[op.Root] = in, n
			if rank == op.Root {
				a.out[rank], a.recv[rank] = out, n
			}
		} else {
			// The root's link has all results to carry: it owns nothing, unless
			// there is only one other, which then sends what it has.
			a.owners, a.targets = every&^(1<<op.Root), 1<<op.Root
			if ranks == 2 {
				a.owners = 1 << op.Root
			}
			a.parts(true, rank == op.Root, in, out, n)
		}
	}
}

// phasesFrom is how many steps of a channel a message to each peer has before
// it is sent to one after the other: each change costs about one.
const phasesFrom = 4

// phased is 1 if an exchange goes by phases. All ranks know alike.
func phased(ch choice, ranks int, n uint64) uint32 {
	if ch.kernel != exchangeSimple || ranks < 3 || n < phasesFrom*uint64(ch.channels)*uint64(ch.chunk) {
		return 0
	}
	return 1
}

// oneHop tells kernels that send each owner all it reduces from those that cut
// it into parts first.
func oneHop(k kernel) bool { return k == reduceLL || k == reduceLL128 }

// parts cuts a vector into the owners' parts. The lengths are known to all;
// addresses are those that the rank has.
func (a *argsABI) parts(hasIn, hasOut bool, in, out, n uint64) {
	owners := 0
	for o := a.owners; o != 0; o &= o - 1 {
		owners++
	}
	per, at := uint64(part(int(n), owners)), uint64(0)
	for p := range maxRanks {
		if a.owners>>p&1 == 0 {
			continue
		}
		length := min(per, n-at)
		if hasIn {
			a.in[p] = in + at
		}
		if hasOut {
			a.out[p] = out + at
		}
		a.send[p], a.recv[p] = length, length
		at += length
	}
}
