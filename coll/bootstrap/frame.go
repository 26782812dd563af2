package bootstrap

import (
	"encoding/binary"
	"fmt"
	"io"
)

// After the handshake a connection carries frames: length of the payload 4,
// kind 1, payload. Integers are big endian.

type kind byte

const (
	// Between a rank and the root.
	frameHere   kind = iota + 1 // rank: I listen at address 18; who I am
	framePeers                  // root: your neighbours: (rank 4, address 18)…
	frameLinked                 // rank: all my links stand
	frameFailed                 // either: it failed: code 1, text
	frameGo                     // root: all links of all ranks stand

	// Between ranks.
	frameBeat   // I am alive
	frameUp     // part of an exchange, towards rank 0
	frameDown   // part of an exchange, from rank 0
	frameDeath  // rank 4, noticed by 4, after nanoseconds 8, what
	frameReport // from 4, number 4, payload
	frameLeave  // I close; nothing more comes
	frameAbort  // I abort; 1 if because of a death that I have told before

	// Of a Crew, besides here, go, failed, beat, leave and death, which is empty.
	framePart // number 4, a rank's part of an exchange, or rank 0's answer
)

const (
	frameHeader = 5
	// maxFrame leaves room for one block of MaxBlock and its headers.
	maxFrame = MaxBlock + 64
	// maxHello bounds what a rank and the root say to each other.
	maxHello = 4096
)

func appendFrame(b []byte, k kind, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, byte(k))
	return append(b, payload...)
}

func writeFrame(w io.Writer, k kind, payload []byte) error {
	_, err := w.Write(appendFrame(make([]byte, 0, frameHeader+len(payload)), k, payload))
	return err
}

// readFrame reads a frame of at most limit bytes of payload. The payload is
// new memory. The error is io.EOF only between frames.
func readFrame(r io.Reader, limit int) (kind, []byte, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if uint64(n) > uint64(limit) {
		return 0, nil, fmt.Errorf("frame of %d bytes; at most %d are allowed", n, limit)
	}
	if n == 0 {
		return kind(head[4]), nil, nil
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind(head[4]), p, nil
}
