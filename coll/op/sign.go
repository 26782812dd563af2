package op

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/elem"
)

// Destroying is the signature of a rank that waits in Destroy for the others.
const Destroying uint32 = 15 << 28

// normed stands for the reduction in the signature of an AllReduce with a Norm.
const normed elem.Op = 7

// Signature identifies an operation in 32 bits: collective (4), type (4), reduction (3), and a hash
// of count and root (21). Every message carries the sender's. A rank that gets a message of another
// operation returns an error instead of reducing bytes that mean something else. Send and Recv, of
// which Coll is NumCollectives, use the value after the last collective.
func (o *Op) Signature() uint32 {
	if o.Norm.Row > 0 {
		return sign(o.Coll, o.Type, normed, o.Count, o.Norm.Row)
	}
	return sign(o.Coll, o.Type, o.Red, o.Count, o.Root)
}

func sign(c Collective, t elem.Type, red elem.Op, count, root int) uint32 {
	h := uint64(count)*0x9E3779B97F4A7C15 + uint64(uint32(root))*0xC2B2AE3D27D4EB4F
	for range 2 { // a product alone has the same high bits for most counts that are a Fibonacci number apart
		h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	}
	h ^= h >> 32
	return uint32(c)<<28 | uint32(t)<<24 | uint32(red&7)<<21 | uint32(h>>43)
}

// Signed returns the collective and the type of elements that a signature contains.
func Signed(sign uint32) (Collective, elem.Type) {
	return Collective(sign >> 28), elem.Type(sign >> 24 & 15)
}

// NameOf names an operation as far as its signature identifies it: "AllReduce of float with sum".
func NameOf(sign uint32) string {
	c, t := Signed(sign)
	red := elem.Op(sign >> 21 & 7)
	switch {
	case sign == Destroying:
		return "Destroy"
	case sign == 0: // NCCL_CHECKS_DISABLE: messages carry no signature
		return "unchecked"
	case c == NumCollectives:
		return fmt.Sprintf("Send/Recv of %v", t)
	case c.Reduces() && red == normed:
		return fmt.Sprintf("AllReduceNorm of %v", t)
	case c.Reduces():
		return fmt.Sprintf("%v of %v with %v", c, t, red)
	}
	return fmt.Sprintf("%v of %v", c, t)
}
