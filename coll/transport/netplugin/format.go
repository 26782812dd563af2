//go:build cgo

package netplugin

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/assay-hpc/assay/coll/transport"
)

// Kinds of messages.
const (
	kindMessage = 0x6e50a1b2
	kindFiller  = 0x6e50b2c3 // for a receive that nobody wants any more
)

// putHeader writes the header of a message of n bytes. number is the message's
// on its connection, from 0.
func putHeader(b []byte, kind, number uint32, n int, h transport.Header) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint32(b, kind)
	binary.LittleEndian.PutUint32(b[4:], number)
	binary.LittleEndian.PutUint32(b[8:], h.Seq)
	binary.LittleEndian.PutUint32(b[12:], h.Sign)
	binary.LittleEndian.PutUint32(b[16:], uint32(n))
}

// parseHeader reads the header of message number, in its slot, and how long the
// message is.
func parseHeader(slot []byte, number uint32) (h transport.Header, n int, err error) {
	b := slot[:headerSize]
	kind, got := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	if kind != kindMessage || got != number {
		return h, 0, fmt.Errorf("message %d of kind %#x where message %d was due", got, kind, number)
	}
	n = int(binary.LittleEndian.Uint32(b[16:]))
	if n > len(slot)-headerSize {
		return h, 0, fmt.Errorf("a message of %d bytes; they are at most %d", n, len(slot)-headerSize)
	}
	return transport.Header{Seq: binary.LittleEndian.Uint32(b[8:]), Sign: binary.LittleEndian.Uint32(b[12:])}, n, nil
}

// What goes over the TCP connection of two ranks, each in a fixed length:
//
//	sender → receiver   ask: number of the device, longest message
//	receiver → sender   offer: 0 and the handle; or the length of a text that says why not, and the text
//	sender → receiver   wordBye, messages sent       when it closes, or hears the other
//	receiver → sender   wordEnd, receives begun      when it closes, or hears the other

const (
	offerSize = 4 + HandleSize
	maxReason = 1000 // bytes
)

// Words of the goodbye.
const (
	wordBye = 0x62796521
	wordEnd = 0x656e6421
)

// later is the greater one of two counts, which may have wrapped around.
func later(a, b uint32) uint32 {
	if int32(a-b) > 0 {
		return a
	}
	return b
}

// pairOf is two numbers as they are sent.
func pairOf(a, b uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, a), b)
}

func readPair(r io.Reader) (a, b uint32, err error) {
	var p [8]byte
	_, err = io.ReadFull(r, p[:])
	return binary.LittleEndian.Uint32(p[:]), binary.LittleEndian.Uint32(p[4:]), err
}

// offer is a handle, or why there is none.
func offer(handle [HandleSize]byte, failure error) []byte {
	if failure == nil {
		return append(make([]byte, 4, offerSize), handle[:]...)
	}
	text := failure.Error()
	text = text[:min(len(text), maxReason)]
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
}

func readOffer(r io.Reader) (handle [HandleSize]byte, err error) {
	var status [4]byte
	if _, err := io.ReadFull(r, status[:]); err != nil {
		return handle, fmt.Errorf("it offered no handle: %w", err)
	}
	n := binary.LittleEndian.Uint32(status[:])
	if n == 0 {
		_, err = io.ReadFull(r, handle[:])
		return handle, err
	}
	text := make([]byte, min(n, maxReason))
	if _, err := io.ReadFull(r, text); err != nil {
		return handle, err
	}
	return handle, fmt.Errorf("it cannot listen: %s", text)
}
