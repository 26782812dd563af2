package coll

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
)

// Every message carries a signature of the sender's operation, in 32 bits: collective (4), type
// (4), reduction (3), and a hash of count and root (21). A rank that gets a message of another
// operation returns an error instead of reducing bytes that mean something else. Send and Recv
// use the value after the last collective.
const pointToPoint = op.NumCollectives

// destroying is the sign of a rank that waits in Destroy for the others.
const destroying = 15 << 28

func sign(c op.Collective, t elem.Type, red elem.Op, count, root int) uint32 {
	h := uint64(count)*0x9E3779B97F4A7C15 + uint64(uint32(root))*0xC2B2AE3D27D4EB4F
	for range 2 { // a product alone has the same high bits for most counts that are a Fibonacci number apart
		h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	}
	h ^= h >> 32
	return uint32(c)<<28 | uint32(t)<<24 | uint32(red&7)<<21 | uint32(h>>43)
}

// normed stands for the reduction in the signature of an AllReduce with an op.Norm.
const normed elem.Op = 7

// signature is sign for a collective.
func (a *call) signature() uint32 {
	if a.Norm.Row > 0 {
		return sign(a.Coll, a.Type, normed, a.Count, a.Norm.Row)
	}
	return sign(a.Coll, a.Type, a.Red, a.Count, a.Root)
}

func signed(s uint32) (c op.Collective, t elem.Type, red elem.Op) {
	return op.Collective(s >> 28), elem.Type(s >> 24 & 15), elem.Op(s >> 21 & 7)
}

// Signed returns what the signature of a recorded collective says: which it is, and of what type.
func Signed(s uint32) (op.Collective, elem.Type) {
	c, t, _ := signed(s)
	return c, t
}

// explain describes how a peer's operation differs from this rank's.
func explain(m *host.MismatchError) error {
	mine, theirs := m.Mine, m.Theirs
	switch {
	case theirs.Seq != mine.Seq && theirs.Sign != mine.Sign:
		return fmt.Errorf("rank %d is in %s, this rank is in %s: one of them called an operation that the other did not", m.Peer, describe(theirs), describe(mine))
	case theirs.Seq != mine.Seq:
		return fmt.Errorf("rank %d is in operation #%d, this rank in #%d, both %s: one of them called an operation that the other did not", m.Peer, theirs.Seq, mine.Seq, kind(mine.Sign))
	case kind(theirs.Sign) != kind(mine.Sign):
		return fmt.Errorf("rank %d called %s as operation #%d, this rank called %s", m.Peer, kind(theirs.Sign), mine.Seq, kind(mine.Sign))
	case theirs.Sign != mine.Sign && m.TheirCount != m.MyCount && m.TheirCount >= 0 && m.MyCount >= 0:
		return fmt.Errorf("rank %d called operation #%d, %s, with another count or root than this rank: %d elements, and this rank %d", m.Peer, mine.Seq, kind(mine.Sign), m.TheirCount, m.MyCount)
	case theirs.Sign != mine.Sign:
		return fmt.Errorf("rank %d called operation #%d, %s, with another count or root than this rank", m.Peer, mine.Seq, kind(mine.Sign))
	}
	return fmt.Errorf("rank %d sent a message of %d bytes for operation #%d, this rank expects %d: do both have the same NCCL_ variables?", m.Peer, m.TheirBytes, mine.Seq, m.MyBytes)
}

func describe(h transport.Header) string {
	return fmt.Sprintf("operation #%d, %s", h.Seq, kind(h.Sign))
}

// kind names an operation as far as its sign identifies it.
func kind(s uint32) string {
	c, t, red := signed(s)
	switch {
	case s == destroying:
		return "Destroy"
	case s == 0: // NCCL_CHECKS_DISABLE: messages carry no signature
		return "unchecked"
	case c == pointToPoint:
		return fmt.Sprintf("Send/Recv of %v", t)
	case c.Reduces() && red == normed:
		return fmt.Sprintf("AllReduceNorm of %v", t)
	case c.Reduces():
		return fmt.Sprintf("%v of %v with %v", c, t, red)
	}
	return fmt.Sprintf("%v of %v", c, t)
}
