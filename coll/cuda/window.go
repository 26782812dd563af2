package cuda

import "github.com/assay-hpc/assay/coll/choose"

// A layout says how a window is cut into slots.
type layout struct {
	ranks                    int
	llSlot, ll128Slot, chunk int // bytes
	depth                    int
	hosted                   bool // windows are in host memory
}

// Sizes of slots. A packet slot holds one channel's part of a message. A chunk slot holds one
// step of that part; up to depth steps are in flight.
const (
	defaultLLSlot    = 16 << 10
	defaultLL128Slot = 64 << 10
	defaultChunk     = 128 << 10
	defaultDepth     = 4
)

// newLayout returns the layout of windows for a number of ranks. buffer is NCCL_BUFFSIZE, the
// bytes in flight between two ranks on one channel; 0 if it is not set.
func newLayout(ranks, buffer int) layout {
	l := layout{ranks: ranks, llSlot: defaultLLSlot, ll128Slot: defaultLL128Slot, chunk: defaultChunk, depth: defaultDepth}
	if buffer > 0 {
		l.chunk = min(max(buffer/l.depth, 4<<10), 4<<20) / 128 * 128
	}
	return l
}

// Sizes for windows in host memory.
const (
	hostedLLSlot = 8 << 10
	hostedChunks = 64 << 20 // bytes of all chunks of a window, at most
)

// onHost returns the layout of windows in host memory, which is scarcer. It has no LL128: its
// lines do not arrive there as a whole.
func (l layout) onHost() layout {
	l.hosted, l.llSlot, l.ll128Slot = true, hostedLLSlot, 0
	l.chunk = min(l.chunk, hostedChunks/(chunkChannels*l.ranks*l.depth)/128*128)
	return l
}

const page = 4096

// Offsets of the parts of a window, and its size, in whole pages.
func (l layout) ll() int     { return (packetChannels + chunkChannels) * channelBytes }
func (l layout) ll128() int  { return l.ll() + packetSlots*packetChannels*l.ranks*l.llSlot }
func (l layout) chunks() int { return l.ll128() + packetSlots*packetChannels*l.ranks*l.ll128Slot }
func (l layout) labels() int { return l.chunks() + chunkChannels*l.ranks*l.depth*l.chunk }
func (l layout) size() int {
	return (l.labels() + chunkChannels*l.ranks*l.depth*labelBytes + 4*l.ranks + page - 1) / page * page // marks are at the end
}

// fill writes the layout into the kernels' view of the communicator.
func (l layout) fill(c *commABI) {
	c.ll, c.ll128, c.chunks = uint64(l.ll()), uint64(l.ll128()), uint64(l.chunks())
	c.llSlot, c.ll128Slot, c.chunk = uint32(l.llSlot), uint32(l.ll128Slot), uint32(l.chunk)
	c.depth = uint32(l.depth)
	c.ranks = int32(l.ranks)
}

// capacity is the largest message, in bytes, that a kernel can send on the given channels with
// the given threads per block: every thread moves a unit of 16 bytes in a round, and all
// rounds of a channel must fit into its slot. Chunks have no limit.
func (l layout) capacity(p choose.Protocol, channels, threads int) int {
	switch p {
	case ll:
		return l.llSlot / (16 * threads) * threads * channels * llUnit
	case ll128:
		return l.ll128Slot / (16 * threads) * threads * channels / 8 * 112
	}
	return maxMessage
}

const (
	llUnit     = 8 // bytes of data of a unit by LL
	maxMessage = 1 << 56
)
