package cuda

import (
	"github.com/assay-hpc/assay/coll/op"
)

// An AllReduce with an op.Norm is done by one kernel, where that has the protocol that the AllReduce
// alone would have, or another of packets: of a row nothing leaves the registers between the sum and
// the result. normLL and normLL128 send everything to each rank (one hop), and normPartsLL128 the parts
// of each row to their owners, which send the sums to all. Of normLL, which does short operations, some
// blocks share a row; of the others a block has whole rows. Longer messages are an AllReduce, and
// normLocal after it.

// normed chooses how to do an AllReduce with a norm of the given rows of row bytes. If no kernel does
// all of it, fused is false, and c is how to do the AllReduce.
func (ch *chooser) normed(rows, row int) (c choice, fused bool) {
	sum := ch.chooseWithout(withoutCopies|withoutNvidia|withoutChain, op.AllReduce, rows*row)
	var kernels []kernel
	switch sum.kernel {
	case reduceLL:
		kernels = []kernel{normLL, normLL128}
	case reduceLL128:
		kernels = []kernel{normLL, normLL128}
	case allReduceLL, allReduceLL128:
		kernels = []kernel{normPartsLL128}
	}
	for _, k := range kernels {
		if k == normLL {
			if c, ok := ch.normShort(rows, row); ok {
				return c, true
			}
			continue
		}
		c := ch.normShape(k, rows, row)
		if ch.normFits(c, rows, row) {
			return c, true
		}
	}
	return sum, false
}

const (
	normRounds = 2 // of normLL, at most: NORM_UNITS of the kernels
	normSplit  = 3 // log2 of the blocks that share a row, at most
)

// normShort returns the choice for normLL: a block for each row, or several if a row does not take one
// round of a block. threads are those for one peer.
func (ch *chooser) normShort(rows, row int) (choice, bool) {
	units, most := (row+llUnit-1)/llUnit, 32
	for 2*most*(ch.ranks-1) <= ch.warps(exchangeThreads) {
		most *= 2
	}
	split := normSplit
	if units <= most {
		split = 0
	}
	for ; split >= 0; split-- {
		per, part := 32, (units+1<<split-1)>>split
		for per < part && per < most {
			per *= 2
		}
		rounds := (part + per - 1) / per
		c := ch.limit(choice{kernel: normLL, channels: rows << split, threads: per})
		if c.channels == rows<<split && c.threads == per && per*(ch.ranks-1) <= ch.warps(exchangeThreads) && rounds <= normRounds && rounds*per*16 <= ch.llSlot {
			return c, ch.permitted(op.AllReduce, normLL, rows*row)
		}
	}
	return choice{}, false
}

// normUnits is how many units of a slot a kernel by LL128 needs for a row, or for a part of one.
func (ch *chooser) normUnits(k kernel, row int) int {
	if k == normPartsLL128 {
		row = ((row+15)/16 + ch.ranks - 1) / ch.ranks * 16
	}
	return (row + 111) / 112 * 8
}

// normShape returns the choice for a kernel: a block for each row, as far as there are blocks, with
// as few threads as do a row in the same number of rounds as the most.
func (ch *chooser) normShape(k kernel, rows, row int) choice {
	units := ch.normUnits(k, row)
	rounds := (units + exchangeThreads - 1) / exchangeThreads
	threads := (units + rounds - 1) / rounds
	return ch.limit(choice{kernel: k, channels: min(rows, packetChannels), threads: (threads + 31) / 32 * 32})
}

// normFits reports whether a channel's rows fit into its slot, and the settings allow the kernel.
func (ch *chooser) normFits(c choice, rows, row int) bool {
	rounds := (ch.normUnits(c.kernel, row) + c.threads - 1) / c.threads
	each := (rows + c.channels - 1) / c.channels
	return c.channels <= rows && each*rounds*c.threads*16 <= ch.ll128Slot && // which is 0 in host memory
		ch.permitted(op.AllReduce, c.kernel, rows*row)
}

// normLocalBlocks is the blocks of a normLocal: two for each multiprocessor are as many as there can
// be at a time, of 512 threads that use the registers that theirs do.
func normLocalBlocks(rows, multiprocessors int) int { return min(rows, 2*multiprocessors) }

// normThreads is the threads of a normLocal, which moves 16 bytes a thread and round.
func normThreads(row int) int { return min(max((row+15)/16+31, 32)/32*32, exchangeThreads) }
