package cuda

import "github.com/assay-hpc/assay/coll/op"

// fill writes a collective's arguments.
func fill(a *argsABI, rank, ranks int, o *op.Op, ch choice) {
	*a = argsABI{channels: uint32(ch.channels), chunk: uint32(ch.chunk), root: int32(o.Root), sign: o.Sign}
	switch {
	case o.Scaled:
		a.scaled(o)
	case o.Divisor > 0:
		a.scale, a.divisor = scaleDivide, uint32(o.Divisor)
	}
	in, out, n := uint64(op.Addr(o.Send)), uint64(op.Addr(o.Recv)), uint64(o.Bytes())
	every, path := uint32(1)<<ranks-1, kernelTable[ch.kernel].path
	switch o.Coll {
	case op.AllGather:
		for p := range ranks {
			a.in[p], a.send[p] = in, n
			a.out[p], a.recv[p] = out+uint64(p)*n, n
		}
		a.symmetric = 1
		a.phased = phased(ch, ranks, n)
	case op.AllToAll:
		for p := range ranks {
			a.in[p], a.send[p] = in+uint64(p)*n, n
			a.out[p], a.recv[p] = out+uint64(p)*n, n
		}
		a.symmetric = 1
		if in == out {
			a.inPlace = 1
		}
		if ranks&(ranks-1) == 0 { // otherwise an in-place rank would receive over data that it has not sent yet
			a.phased = phased(ch, ranks, n)
		}
	case op.Broadcast:
		switch {
		case path == alongChain:
			a.out[rank], a.send[rank], a.recv[rank] = out, n, n
			if rank == o.Root {
				a.in[rank] = in
			}
		case path == byRelay:
			a.owners = every &^ (1 << o.Root)
			a.parts(rank == o.Root, true, in, out, n)
		case rank == o.Root:
			for p := range ranks {
				a.in[p], a.send[p] = in, n
			}
			a.out[rank], a.recv[rank] = out, n
		default:
			a.out[o.Root], a.recv[o.Root] = out, n
		}
	case op.Gather:
		a.in[o.Root], a.send[o.Root] = in, n
		if rank == o.Root {
			for p := range ranks {
				a.out[p], a.recv[p] = out+uint64(p)*n, n
			}
		}
	case op.Scatter:
		a.out[o.Root], a.recv[o.Root] = out, n
		if rank == o.Root {
			for p := range ranks {
				a.in[p], a.send[p] = in+uint64(p)*n, n
			}
		}
	case op.AllReduce:
		a.owners, a.symmetric = every, 1
		if path == toOwners {
			for p := range ranks {
				a.in[p], a.send[p] = in, n
			}
			a.out[rank], a.recv[rank] = out, n
		} else {
			a.targets = every
			a.parts(true, true, in, out, n)
		}
	case op.ReduceScatter:
		a.owners, a.symmetric = every, 1
		for p := range ranks {
			a.in[p], a.send[p] = in+uint64(p)*n, n
		}
		a.out[rank], a.recv[rank] = out, n
	case op.Reduce:
		switch path {
		case alongChain:
			a.in[rank], a.send[rank] = in, n
			if rank == o.Root {
				a.out[rank], a.recv[rank] = out, n
			}
		case toOwners:
			a.owners = 1 << o.Root
			a.in[o.Root], a.send[o.Root] = in, n
			if rank == o.Root {
				a.out[rank], a.recv[rank] = out, n
			}
		default:
			// The root's link carries all results, so the root owns no part. With two ranks
			// the root owns everything, and the other rank sends its whole input.
			a.owners, a.targets = every&^(1<<o.Root), 1<<o.Root
			if ranks == 2 {
				a.owners = 1 << o.Root
			}
			a.parts(true, rank == o.Root, in, out, n)
		}
	}
}

// scaled makes the kernel multiply the rank's input by the operation's factor.
func (a *argsABI) scaled(o *op.Op) {
	if a.scale, a.factor = scaleFactor, o.Factor; o.FactorAt {
		a.scale = scaleAt
	}
}

// phasesFrom is the least number of steps per channel, in a message to each peer, for which an
// exchange sends to one peer after the other: each change of peer costs about one step.
const phasesFrom = 4

// phased returns 1 if an exchange goes by phases. All ranks come to the same result.
func phased(ch choice, ranks int, n uint64) uint32 {
	if !kernelTable[ch.kernel].phase || ranks < 3 || n < phasesFrom*uint64(ch.channels)*uint64(ch.chunk) {
		return 0
	}
	return 1
}

// parts cuts a vector into the owners' parts. Every rank knows all lengths, but only the
// addresses of the buffers that it has.
func (a *argsABI) parts(hasIn, hasOut bool, in, out, n uint64) {
	owners := 0
	for o := a.owners; o != 0; o &= o - 1 {
		owners++
	}
	per, at := uint64(partBytes(int(n), owners)), uint64(0)
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
