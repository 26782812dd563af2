// Package schedule contains the algorithms of the collectives as data: for each rank, what it
// sends to which rank, receives from which rank, reduces and copies, and in which order. Nothing
// here moves a byte. A checker in the tests proves for a schedule that it computes its
// collective, that it cannot deadlock and how many bytes it moves; coll/predict predicts its
// time; coll/host and coll/cuda run it.
//
// # Data
//
// A collective works on blocks. AllReduce, Broadcast and Reduce cut their vector into
// Schedule.Blocks nearly equal blocks (all but the last ones have the same length; some may be
// empty if the vector is short). AllGather, ReduceScatter, AllToAll, Gather and Scatter have one
// block per rank, all of the same length: their Blocks is the number of ranks. Buffers in blocks:
//
//	               Input    Output
//	AllReduce      Blocks   Blocks
//	Broadcast      Blocks   Blocks    Input is read at the root only
//	Reduce         Blocks   Blocks    Output is written at the root only
//	AllGather      1        Ranks
//	ReduceScatter  Ranks    1
//	AllToAll       Ranks    Ranks     Output[i] of r is Input[r] of i
//	Gather         1        Ranks     Output at the root only
//	Scatter        Ranks    1         Input at the root only
//	SendRecv       1        1         each rank sends to the next one
//
// Scratch is memory of the executor: Program.Scratch blocks for each lane, used by that lane
// only, each as long as the longest block. Their content is lost at the end of a window. Data is
// never sent directly from scratch memory, but copied out of it first: the receiver may read it
// later.
//
// Input and Output may be the same memory (AllReduce, Broadcast, Reduce), or Input may be the
// rank's own block of Output (AllGather, Gather) or Output the rank's own block of Input
// (ReduceScatter, Scatter). A schedule must be correct in place, too: it never reads a block of
// Input after it has written the block of Output with which it may share memory, except in the
// same step.
//
// # Channels and windows
//
// A block is cut into Channels parts, one per channel, and a channel's part into windows that are
// small enough for a transport's slot. A lane runs its steps for its first window, then for the
// second, and so on; a step moves the window's share of each of its blocks. Lanes of one rank run
// side by side and share no connection: a connection is (sender, receiver, channel), messages on
// it arrive in order, and on each side one lane uses it. Messages to Everyone are in a queue
// separate from those to single ranks. Messages to Network are for a network that reduces, which
// answers them (collnet.go).
//
// A step runs when its message has arrived and there is a free slot for the one that it sends; a
// connection has MinSlots slots or more.
package schedule

import "github.com/assay-hpc/assay/coll/op"

// A Buf names one of a rank's buffers.
type Buf uint8

// The buffers.
const (
	NoBuf Buf = iota
	Input
	Output
	Scratch
)

// A Ref is a range of blocks of a buffer: blocks First, First+1, … The range is as long as the
// step's Data. The zero Ref refers to nothing.
type Ref struct {
	Buf   Buf
	First int32
}

// A Span is a range of logical blocks: the data that a step moves. It determines the number of
// bytes; both ends of a message have the same Span lengths.
type Span struct{ First, N int32 }

// Peers that are not ranks.
const (
	Nobody   int32 = -1
	Everyone int32 = -2 // Send: one message to all other ranks of the schedule
	Network  int32 = -3 // a network that reduces: see CollNet
)

// A Step is what NCCL calls a primitive, such as recvReduceCopySend. Its value is the reduction
// of its operands, in the order A, B, received message (floats: ((A op B) op received)); one or
// two of them are present. The value is stored at Dst, if that is present, and sent to Send,
// unless that is Nobody.
type Step struct {
	Recv  int32 // rank that a message comes from, Nobody, or Network
	Send  int32 // rank that the value goes to, Nobody, Everyone, or Network
	Multi bool  // Recv's message was sent to Everyone
	A, B  Ref
	Dst   Ref
	Data  Span
}

// A Lane is a list of steps that run one after the other, for each window of
// a channel's part of the data.
type Lane struct {
	Channel int
	Steps   []Step
}

// A Program is what one rank does.
type Program struct {
	Lanes   []Lane
	Scratch int // blocks of scratch memory, for each lane
}

// A Schedule is an algorithm for a collective among Ranks ranks.
type Schedule struct {
	Collective op.Collective
	Algorithm  string // "ring", "tree", …
	Ranks      int
	Root       int
	Blocks     int
	Channels   int
	Ordered    bool // each element is reduced in the order of the ranks
	MaxSpan    int  // the largest Data.N of any step of any rank; 0 means 1

	// Program returns what a rank does. It is pure: for the same rank it returns the same
	// program.
	Program func(rank int) Program
}
