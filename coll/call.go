package coll

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/op"
)

// A call is an operation that a rank has called. For a Send or Recv, Coll is pointToPoint and
// only one of the buffers is set.
type call struct {
	op.Op
	device [2]bool // whether Send and Recv are device memory
	peer   int     // of a Send or Recv
	pair   int     // of a Send or Recv of a group to its own rank: the index of the other one
	stream uintptr // for an operation on device memory
}

// pointToPoint is the Coll of a Send or Recv that is called alone.
const pointToPoint = op.NumCollectives

// name is the operation's name in logs and errors.
func (a *call) name(seq uint32) string {
	switch {
	case a.Coll != pointToPoint:
		return fmt.Sprintf("%v #%d", a.Coll, seq)
	case a.sends():
		return fmt.Sprintf("Send to %d", a.peer)
	}
	return fmt.Sprintf("Recv from %d", a.peer)
}

// sends reports whether the call is a Send and not a Recv.
func (a *call) sends() bool { return a.Recv == nil }

// onDevice reports whether an operation is on device memory.
func (a *call) onDevice() bool { return a.device[0] || a.device[1] }

// needs returns how many elements the buffers must have, 0 where the rank needs no buffer.
func (a *call) needs(rank, n int) (send, recv int) {
	switch {
	case a.Coll != pointToPoint:
		send, recv = a.Coll.Parts(rank, a.Root, n)
		return send * a.Count, recv * a.Count
	case a.sends():
		return a.Count, 0
	}
	return 0, a.Count
}

// check validates the arguments and cuts the buffers to what the operation of a rank uses.
func (a *call) check(c *Comm) error {
	size := a.Type.Size()
	bad := func(format string, args ...any) error {
		return c.errorOf(InvalidArgument, a.name(c.seq+1), format, args...)
	}
	switch {
	case size == 0:
		return bad("there is no type %d", uint8(a.Type))
	case a.Coll != pointToPoint && a.Coll.Reduces() && !a.Red.Valid():
		return bad("there is no reduction %d", uint8(a.Red))
	case a.Count < 0:
		return bad("count %d is negative", a.Count)
	case a.Count > maxBytes/size/c.size:
		return bad("count %d is more than an address can tell", a.Count)
	case a.Coll.Rooted() && (a.Root < 0 || a.Root >= c.size):
		return bad("root %d: the communicator has %d ranks, from 0", a.Root, c.size)
	case a.Coll == pointToPoint && (a.peer < 0 || a.peer >= c.size):
		return bad("rank %d: the communicator has %d ranks, from 0", a.peer, c.size)
	}
	s, r := a.needs(c.rank, c.size)
	if len(a.Send) < s*size {
		return bad("the send buffer has %d bytes, %d %v need %d", len(a.Send), s, a.Type, s*size)
	}
	if len(a.Recv) < r*size {
		return bad("the receive buffer has %d bytes, %d %v need %d", len(a.Recv), r, a.Type, r*size)
	}
	a.Send, a.Recv = a.Send[:s*size], a.Recv[:r*size]
	if err := a.kindOfMemory(c.dev != nil); err != nil {
		return bad("%w", err)
	}
	switch {
	case !overlap(a.Send, a.Recv):
	case a.Coll == op.AllToAll && op.Addr(a.Send) == op.Addr(a.Recv): // the executor makes a copy
	case !a.inPlace(c.rank):
		return bad("send and receive buffers overlap in another way than in place")
	}
	return nil
}

const maxBytes = 1 << 56

// inPlace reports whether buffers that overlap do so in the allowed way.
func (a *call) inPlace(rank int) bool {
	if a.Coll == pointToPoint {
		return false
	}
	send, recv, ok := a.Coll.InPlace(rank)
	part := uintptr(a.Count * a.Type.Size())
	return ok && op.Addr(a.Send)-uintptr(send)*part == op.Addr(a.Recv)-uintptr(recv)*part
}
