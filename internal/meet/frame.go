package meet

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
)

// A Kind is the type of a frame. After the handshake a connection may carry frames: length of the
// payload 4, kind 1, payload. Integers are big endian.
type Kind byte

const (
	frameHeader = 5
	// small is the largest payload that is copied to be contiguous with its header.
	small = 1024
	// trusted is how much memory is allocated for a frame's length before its bytes arrive.
	trusted = 1 << 20
)

// Frame returns a frame to write. It may refer to payload.
func Frame(k Kind, payload []byte) net.Buffers {
	b := make([]byte, 0, frameHeader+min(len(payload), small))
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(payload))), byte(k))
	if len(payload) > small {
		return net.Buffers{b, payload}
	}
	return net.Buffers{append(b, payload...)}
}

// WriteFrame writes a frame.
func WriteFrame(w io.Writer, k Kind, payload []byte) error {
	b := Frame(k, payload)
	_, err := b.WriteTo(w)
	return err
}

// ReadFrame reads a frame with at most limit bytes of payload, into new memory. The error is io.EOF
// only between frames.
func ReadFrame(r io.Reader, limit int) (Kind, []byte, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > limit {
		return 0, nil, fmt.Errorf("a frame of %d bytes; at most %d are possible", n, limit)
	}
	var p []byte
	for len(p) < n {
		have := len(p)
		p = slices.Grow(p, min(n-have, max(have, trusted)))
		p = p[:min(n, cap(p))]
		if _, err := io.ReadFull(r, p[have:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
	}
	return Kind(head[4]), p, nil
}
