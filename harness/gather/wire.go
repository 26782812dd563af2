package gather

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/assay-hpc/assay/internal/handshake"
)

// A connection begins with a handshake, in which the caller says that it is rank
// from 4 of size 4 and wants rank to 4; then come frames: length of the payload
// 4, kind 1, payload. Integers are big endian.
var protocol = handshake.Protocol{Magic: "assay\x00g1", Label: "assay gather 1", Claim: 12}

type kind byte

const (
	frameHost     kind = iota + 1 // caller: the host that it runs on
	frameDocument                 // caller: rank 4, a document
	frameSummary                  // caller: a part
	frameTaken                    // listener: I have it
	framePassed                   // listener: so has who is above me
	frameRefused                  // listener: why it does not take it
)

// greet is the caller's side.
func greet(c io.ReadWriter, token []byte, from, to, size int) error {
	var claim []byte
	for _, n := range []int{from, to, size} {
		claim = binary.BigEndian.AppendUint32(claim, uint32(n))
	}
	return protocol.Greet(c, token, claim)
}

// examine is the listener's side; it returns who calls.
func examine(c io.ReadWriter, token []byte, to, size int) (from int, err error) {
	claim, err := protocol.Examine(c, token)
	if err != nil {
		return 0, err
	}
	at := func(i int) int { return int(binary.BigEndian.Uint32(claim[4*i:])) }
	if at(1) != to || at(2) != size || at(0) >= size {
		return 0, fmt.Errorf("it is rank %d and wants rank %d of %d; this is rank %d of %d", at(0), at(1), at(2), to, size)
	}
	return at(0), nil
}

func writeFrame(w io.Writer, k kind, payload []byte) error {
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), byte(k))
	if c, ok := w.(net.Conn); ok {
		_, err := (&net.Buffers{head, payload}).WriteTo(c)
		return err
	}
	_, err := w.Write(append(head, payload...))
	return err
}

// readFrame reads a frame of at most limit bytes. What a frame says of its
// length is not allocated before it comes.
func readFrame(r io.Reader, limit int) (kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > int64(limit) {
		return 0, nil, fmt.Errorf("a frame of %d bytes; at most %d are possible", n, limit)
	}
	var p bytes.Buffer
	p.Grow(int(min(n, 64<<10)) + bytes.MinRead) // room to see the end
	if _, err := io.CopyN(&p, r, n); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind(head[4]), p.Bytes(), nil
}
