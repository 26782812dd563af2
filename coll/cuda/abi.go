package cuda

import "github.com/assay-hpc/assay/coll/flip"

// The kernels' launch parameters and the layout of a window: the Go side of kernels/abi.h,
// stage.h and check.h, which explain the fields. Addresses are device addresses.

const (
	maxRanks       = 8
	packetChannels = 64
	chunkChannels  = 64
	packetSlots    = 4
	resultChannel  = chunkChannels / 2 // the first channel for results
	channelBytes   = 256               // size of a channel's state
	labelBytes     = 16                // of a chunk slot's label
)

// commABI is a rank's view of its communicator.
type commABI struct {
	win                      [maxRanks]uint64
	ll, ll128, chunks        uint64 // offsets in a window
	llSlot, ll128Slot, chunk uint32 // bytes
	depth                    uint32
	rank, ranks              int32
	stop, report             uint64
	timeout                  uint64 // ns
}

// argsABI are the arguments of an operation.
type argsABI struct {
	in, out         [maxRanks]uint64
	send, recv      [maxRanks]uint64 // bytes
	to, from        [maxRanks]uint8  // channels
	factor          uint64
	scale, divisor  uint32
	channels, chunk uint32
	owners, targets uint32 // bits, by rank
	root            int32
	symmetric       uint32
	inPlace, phased uint32
	sign, row       uint32
}

// normABI is what follows an AllReduce of sums.
type normABI struct {
	weight, residual uint64
	rows, row        uint32 // row: bytes
	eps              float32
	split            uint32 // log2 of the blocks of a row
}

// ringABI is what a rank does in the rounds of a collective by copy engines.
type ringABI struct {
	inSlots                     uint64
	own, next, prev, before     uint64 // addresses of ringState
	segment, total              uint64 // bytes
	chunk, whole, tail          uint32
	base, after, first, end     uint32 // rounds
	lag, chunks, steps, reduces uint32
	position, shift             uint32
	oneIn, oneOut               uint32
	keeps, behind               uint32
	slots, piece, pieces, claim uint32
}

// Offsets in a ringState, and its size.
const (
	ringArrived = 24
	ringGo      = 28
	ringState   = 256
)

// stageABI is what the kernel of an operation that goes through the host's memory is launched with.
type stageABI struct {
	lists          uint64 // address of the stageListABIs of all lanes
	number, shares uint32
}

// stageListABI lists copies for a block.
type stageListABI struct {
	done, begun, stop uint32
	_                 [13]uint32
	copies            [listed][16]uint32
}

const (
	listed     = 64
	mostShares = 4
	stageEnd   = 1<<32 - 1
)

// Values of argsABI.scale.
const (
	scaleNothing = iota
	scaleFactor
	scaleDivide
	scaleAt
)

// reportABI names the peer that a kernel waited for when it gave up, or that it waits for when
// the host asks (stopTell).
type reportABI struct {
	who           uint32 // reason << 24 | peer << 16 | channel
	wanted, found uint32 // message numbers
	taken         uint32 // 0: nothing to report
}

// What the kernels of verify.go are launched with: kernels/check.h.
type checkSpan struct{ at, bytes uint64 }

type checkABI struct {
	spans                   [checkSpans]checkSpan
	words, partial, arrived uint64
	count                   uint32
	_                       uint32
}

const (
	checkSpans  = 12
	checkBlocks = 64
)

type findingsABI struct {
	taken, number, count, _ uint32
	words                   [flip.MaxRanks][flip.Slots]uint64
}

type checkWordsABI struct {
	words, found  uint64
	ranks, number uint32
	classes       flip.Classes
}
