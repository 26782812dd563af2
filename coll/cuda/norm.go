package cuda

import (
	"github.com/assay-hpc/assay/coll/op"
)

// An AllReduce with an op.Norm that is short is done by one kernel, normLL: of a row nothing leaves the
// registers between the sum and the result. Longer messages are an AllReduce, and normLocal after it. Several
// blocks share a row if they can form a cluster: what they tell one another takes 0.1 us then, and 0.9 us
// over the memory of the device.

// normSplit is log2 of the blocks that share a row, at most: GPUs have clusters of so many.
const normSplit = 3

// normed chooses how to do an AllReduce with a norm of the given rows of row bytes. If no kernel does
// all of it, fused is false, and c is how to do the AllReduce.
func (ch *chooser) normed(rows, row int) (c choice, fused bool) {
	sum := ch.chooseWithout(withoutCopies|withoutNvidia, op.AllReduce, rows*row)
	if kernelTable[sum.kernel].path == toOwners {
		if c, ok := ch.normShort(rows, row); ok {
			return c, true
		}
	}
	return sum, false
}

// normRounds is how many rounds of a block normLL does at most: NORM_UNITS of the kernels.
const normRounds = 2

// normShort returns the choice for normLL: a block for each row, or several if a row does not take one
// round of a block. threads are those for one peer.
func (ch *chooser) normShort(rows, row int) (choice, bool) {
	units, most := (row+llUnit-1)/llUnit, 32
	for 2*most*(ch.ranks-1) <= ch.warps(exchangeThreads) {
		most *= 2
	}
	split := 0
	if ch.clusters && units > most {
		split = normSplit
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

// localUnits is how many units of 16 bytes a block of normLocal has at least, if others have the rest of
// its row.
const localUnits = 256

// normedLocally returns the choice for normLocal on a device with so many multiprocessors: several blocks
// for each row if there are multiprocessors for them, or as many as there can be at a time: two for each
// multiprocessor, of 512 threads that use the registers that theirs do. The settings may allow fewer.
func (ch *chooser) normedLocally(rows, row, multiprocessors int, clusters bool) choice {
	units, split := (row+15)/16, 0
	for clusters && split < normSplit && rows<<(split+1) <= ch.allowed(multiprocessors) && units>>(split+1) >= localUnits {
		split++
	}
	part := (units + 1<<split - 1) >> split
	return choice{kernel: normLocal, channels: min(rows<<split, ch.allowed(2*multiprocessors)), threads: ch.warps(min(max(part+31, 32)/32*32, exchangeThreads))}
}
