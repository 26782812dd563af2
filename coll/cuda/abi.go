package cuda

// What kernels are launched with, and the layout of a window: the Go side of
// kernels/abi.h, where the fields are explained. Addresses are the device's.

const (
	maxRanks       = 8
	packetChannels = 64
	chunkChannels  = 64
	packetSlots    = 4
	resultChannel  = chunkChannels / 2 // the first channel for results
	channelBytes   = 256               // of the state of a channel
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
	sign, _         uint32
}

// What argsABI.scale says.
const (
	scaleNothing = iota
	scaleFactor
	scaleDivide
	scaleAt
)

// reportABI says who waited for whom when a kernel gave up.
type reportABI struct {
	who           uint32 // reason << 24 | peer << 16 | channel
	wanted, found uint32 // numbers of messages
	taken         uint32 // 0: nothing to report
}
