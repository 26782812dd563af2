package wire

import (
	"encoding/binary"
	"fmt"
)

// Records over rdma_cm are C structures in network byte order: 56 bytes, or 64 from version 6.29
// on, which has one more address.
const (
	binaryRecord     = 56
	longBinaryRecord = 64
	longBinarySince  = 629 // in hundredths
)

// binaryLength is the length of the records to and from a peer.
func binaryLength(peer string) int {
	if v, _ := parseVersion(peer); v >= longBinarySince {
		return longBinaryRecord
	}
	return binaryRecord
}

// Binary returns the record as sent over rdma_cm, in one of the two lengths.
func (a Address) Binary(length int) ([]byte, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	if length != binaryRecord && length != longBinaryRecord {
		return nil, fmt.Errorf("%w: a binary record has %d or %d bytes, not %d", ErrLocal, binaryRecord, longBinaryRecord, length)
	}
	b := make([]byte, length)
	for i, v := range []uint32{uint32(a.LID), uint32(a.OutReads), a.QPN, a.PSN, a.RKey} {
		binary.BigEndian.PutUint32(b[4*i:], v)
	}
	binary.BigEndian.PutUint64(b[24:], a.VAddr)
	rest := b[length-24:]
	copy(rest, a.GID[:])
	binary.BigEndian.PutUint32(rest[16:], a.SRQN)
	index := int32(a.GIDIndex)
	if !a.HasGID {
		index = -1
	}
	binary.BigEndian.PutUint32(rest[20:], uint32(index))
	return b, nil
}

// parseBinary reads a record of either length. The bytes between the fields are undefined: they are
// whatever was in the peer's memory.
func parseBinary(b []byte) (Address, error) {
	if len(b) != binaryRecord && len(b) != longBinaryRecord {
		return Address{}, fmt.Errorf("a binary record has %d or %d bytes, not %d", binaryRecord, longBinaryRecord, len(b))
	}
	word := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	for _, f := range []struct {
		name string
		at   int
		most uint32
	}{{"LID", 0, 1<<16 - 1}, {"outstanding reads", 4, 1<<16 - 1}, {"QP number", 8, 1<<24 - 1}, {"PSN", 12, 1<<24 - 1}} {
		if v := word(f.at); v > f.most {
			return Address{}, fmt.Errorf("the %s %#x is not between 0 and %#x", f.name, v, f.most)
		}
	}
	a := Address{LID: uint16(word(0)), OutReads: int(word(4)), QPN: word(8), PSN: word(12), RKey: word(16), VAddr: binary.BigEndian.Uint64(b[24:])}
	rest := b[len(b)-24:]
	copy(a.GID[:], rest)
	a.SRQN = binary.BigEndian.Uint32(rest[16:])
	if index := int32(binary.BigEndian.Uint32(rest[20:])); index >= 0 {
		a.HasGID, a.GIDIndex = true, int(index)
	}
	return a, nil
}

// record encodes an address in the form of this channel.
func (c *Conn) record(a Address) ([]byte, error) {
	if c.binary > 0 {
		return a.Binary(c.binary)
	}
	return a.Marshal()
}

func (c *Conn) parseRecord(b []byte) (Address, error) {
	if c.binary > 0 {
		return parseBinary(b)
	}
	return parseAddress(b)
}
