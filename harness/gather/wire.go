package gather

import (
	"encoding/binary"
	"fmt"

	"github.com/assay-hpc/assay/internal/meet"
)

// A claim is three integers of 4 bytes: the caller's rank, the rank that it wants, and the number
// of ranks. Frames follow the handshake. Integers are big endian.
var protocol = meet.Protocol{Name: "g2", Claim: 12}

const (
	frameHost     meet.Kind = iota + 1 // caller: the host that it runs on
	frameDocument                      // caller: a rank, 4 bytes, then that rank's document
	frameSummary                       // caller: a part
	frameTaken                         // listener: it has the part
	framePassed                        // listener: the rank above has the part, too
	frameRefused                       // listener: why it does not take the part
)

func claim(from, to, size int) (b []byte) {
	for _, n := range []int{from, to, size} {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// caller returns the rank that made a claim, if the claim is for this rank.
func caller(claim []byte, to, size int) (from int, err error) {
	at := func(i int) int { return int(binary.BigEndian.Uint32(claim[4*i:])) }
	if at(1) != to || at(2) != size || at(0) >= size {
		return 0, fmt.Errorf("it is rank %d and wants rank %d of %d; this is rank %d of %d", at(0), at(1), at(2), to, size)
	}
	return at(0), nil
}
