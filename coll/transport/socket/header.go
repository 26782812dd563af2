package socket

import (
	"encoding/binary"
	"fmt"

	"github.com/assay-hpc/assay/coll/transport"
)

// headerSize is the length of the header before each piece of a message. It is a multiple
// of align.
const headerSize = 32

// align is the alignment of messages in the read-ahead: that of the largest element.
// Small messages are padded to it.
const align = 8

// minSmall is the size to which the smallest messages are padded. Segments of less than
// half of TCP's first estimate of the segment size, 536 bytes, take a fifth longer
// between processes (7.4 instead of 6.0 µs over the loopback of an EPYC guest, Linux
// 6.18).
const minSmall = 256

// padded returns the length of a small message of n bytes after its header, with padding.
func padded(n int) int { return max((n+align-1)&^(align-1), minSmall) }

// Kinds of headers.
const (
	kindPiece = 0xa1 // a piece of a message follows
	kindBye   = 0xb2 // nothing follows: this end closes in good order
)

// A header precedes each piece of a message. A message is one piece or several. The first
// piece of each message goes over the first stream.
type header struct {
	kind   uint32
	number uint32 // of the message on its connection, from 0
	h      transport.Header
	total  uint32 // length of the message
	offset uint32 // of the piece in it
	length uint32 // of the piece
}

func (h *header) put(b []byte) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint32(b, h.kind)
	binary.LittleEndian.PutUint32(b[4:], h.number)
	binary.LittleEndian.PutUint32(b[8:], h.h.Seq)
	binary.LittleEndian.PutUint32(b[12:], h.h.Sign)
	binary.LittleEndian.PutUint32(b[16:], h.total)
	binary.LittleEndian.PutUint32(b[20:], h.offset)
	binary.LittleEndian.PutUint32(b[24:], h.length)
	binary.LittleEndian.PutUint32(b[28:], 0)
}

func parseHeader(b []byte) header {
	_ = b[headerSize-1]
	return header{
		kind:   binary.LittleEndian.Uint32(b),
		number: binary.LittleEndian.Uint32(b[4:]),
		h:      transport.Header{Seq: binary.LittleEndian.Uint32(b[8:]), Sign: binary.LittleEndian.Uint32(b[12:])},
		total:  binary.LittleEndian.Uint32(b[16:]),
		offset: binary.LittleEndian.Uint32(b[20:]),
		length: binary.LittleEndian.Uint32(b[24:]),
	}
}

// check returns what is wrong with a piece's header. limit is the length of the longest
// message.
func (h *header) check(limit int) error {
	switch {
	case h.kind != kindPiece:
		return fmt.Errorf("a header of kind %#x", h.kind)
	case uint64(h.total) > uint64(limit):
		return fmt.Errorf("a message of %d bytes; the limit is %d", h.total, limit)
	case uint64(h.offset)+uint64(h.length) > uint64(h.total):
		return fmt.Errorf("a piece of %d bytes at %d of a message of %d", h.length, h.offset, h.total)
	}
	return nil
}
