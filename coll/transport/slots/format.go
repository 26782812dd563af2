package slots

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/internal/meet"
)

// HeaderSize is the length of the header before each message in its slot, in bytes. It
// keeps the message aligned for every element type.
const HeaderSize = 32

// Kinds of messages.
const (
	message = 0x6c50a1b2
	filler  = 0x6c50b2c3
)

// putHeader writes the header of a message of n bytes. number counts the messages of the
// connection, from 0.
func putHeader(b []byte, kind, number uint32, n int, h transport.Header) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint32(b, kind)
	binary.LittleEndian.PutUint32(b[4:], number)
	binary.LittleEndian.PutUint32(b[8:], h.Seq)
	binary.LittleEndian.PutUint32(b[12:], h.Sign)
	binary.LittleEndian.PutUint32(b[16:], uint32(n))
}

// parseHeader reads the header of message number in its slot, and returns the length of
// the message.
func parseHeader(slot []byte, number uint32) (h transport.Header, n int, err error) {
	b := slot[:HeaderSize]
	kind, got := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	if kind != message || got != number {
		return h, 0, fmt.Errorf("message %d of kind %#x where message %d was due", got, kind, number)
	}
	length := binary.LittleEndian.Uint32(b[16:])
	if uint64(length) > uint64(len(slot)-HeaderSize) {
		return h, 0, fmt.Errorf("a message of %d bytes; they are at most %d", length, len(slot)-HeaderSize)
	}
	return transport.Header{Seq: binary.LittleEndian.Uint32(b[8:]), Sign: binary.LittleEndian.Uint32(b[12:])}, int(length), nil
}

// Frames on the TCP connection of two ranks. Numbers are big endian.
const (
	frameAsk     meet.Kind = iota + 1 // sender: device (4 bytes), longest message (4 bytes), the network's data
	frameGranted                      // receiver: the network's data
	frameRefused                      // receiver: the reason
	frameBye                          // each end, once: a number (4 bytes) with a meaning for the network
)

// maxText bounds a text on the wire, in bytes.
const maxText = 64 << 10

// An ask is the sender's first frame.
type ask struct {
	device, maxMessage uint32
	text               []byte
}

func (a ask) write(w io.Writer) error {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, a.device), a.maxMessage)
	return meet.WriteFrame(w, frameAsk, append(b, a.text...))
}

func readAsk(r io.Reader) (a ask, err error) {
	k, p, err := meet.ReadFrame(r, 8+maxText)
	switch {
	case err != nil:
		return a, err
	case k != frameAsk || len(p) < 8:
		return a, fmt.Errorf("it begins with %d bytes of kind %d", len(p), k)
	}
	return ask{binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:]), p[8:]}, nil
}

// writeAnswer writes the receiver's answer to an ask.
func writeAnswer(w io.Writer, text []byte, failure error) error {
	k := frameGranted
	if failure != nil {
		k, text = frameRefused, []byte(failure.Error())
		text = text[:min(len(text), maxText)]
	}
	return meet.WriteFrame(w, k, text)
}

func readAnswer(r io.Reader) ([]byte, error) {
	k, text, err := meet.ReadFrame(r, maxText)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the receiver does not answer: %w", err)
	case k == frameRefused:
		return nil, errors.New("the receiver: " + string(text))
	case k != frameGranted:
		return nil, fmt.Errorf("the receiver answers with a frame of kind %d", k)
	}
	return text, nil
}

// readBye reads the last frame.
func readBye(r io.Reader) (n uint32, err error) {
	k, p, err := meet.ReadFrame(r, 4)
	switch {
	case err != nil:
		return 0, err
	case k != frameBye || len(p) != 4:
		return 0, fmt.Errorf("it sent %d bytes of kind %d in place of a goodbye", len(p), k)
	}
	return binary.BigEndian.Uint32(p), nil
}
