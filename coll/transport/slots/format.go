package slots

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/rendezvous"
)

// HeaderSize is the length of what goes before each message in its slot, in
// bytes. It keeps the message aligned for every element.
const HeaderSize = 32

// Kinds of messages.
const (
	message = 0x6c50a1b2
	filler  = 0x6c50b2c3
)

// putHeader writes the header of a message of n bytes. number is the message's
// on its connection, from 0.
func putHeader(b []byte, kind, number uint32, n int, h transport.Header) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint32(b, kind)
	binary.LittleEndian.PutUint32(b[4:], number)
	binary.LittleEndian.PutUint32(b[8:], h.Seq)
	binary.LittleEndian.PutUint32(b[12:], h.Sign)
	binary.LittleEndian.PutUint32(b[16:], uint32(n))
}

// parseHeader reads the header of message number, in its slot, and how long the
// message is.
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

// What goes over the TCP connection of two ranks, numbers of four bytes and
// texts behind their length:
//
//	sender → receiver   device, longest message, what the network adds
//	receiver → sender   granted and what the network adds, or refused and why
//	each, once          wordBye and a number that the network knows
const (
	granted = 0
	refused = 1
	wordBye = 0x62796521
)

// maxText bounds a text on the wire, in bytes.
const maxText = 64 << 10

// pairOf is two numbers as they are sent.
func pairOf(a, b uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, a), b)
}

func readPair(r io.Reader) (a, b uint32, err error) {
	var p [8]byte
	_, err = io.ReadFull(r, p[:])
	return binary.LittleEndian.Uint32(p[:]), binary.LittleEndian.Uint32(p[4:]), err
}

// readText reads a text of n bytes.
func readText(r io.Reader, n uint32) ([]byte, error) {
	if n > maxText {
		return nil, fmt.Errorf("a text of %d bytes; they are at most %d", n, maxText)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// An ask is what a sender says first.
type ask struct {
	device, maxMessage uint32
	text               []byte
}

func (a ask) marshal() []byte {
	b := pairOf(a.device, a.maxMessage)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(a.text))), a.text...)
}

func readAsk(r io.Reader) (a ask, err error) {
	if a.device, a.maxMessage, err = readPair(r); err != nil {
		return a, err
	}
	var n [4]byte
	if _, err = io.ReadFull(r, n[:]); err != nil {
		return a, err
	}
	a.text, err = readText(r, binary.LittleEndian.Uint32(n[:]))
	return a, err
}

// answer is what the receiver says to it.
func answer(text []byte, failure error) []byte {
	word := uint32(granted)
	if failure != nil {
		word, text = refused, []byte(failure.Error())
		text = text[:min(len(text), maxText)]
	}
	return append(pairOf(word, uint32(len(text))), text...)
}

func readAnswer(r io.Reader) ([]byte, error) {
	word, n, err := readPair(r)
	if err != nil {
		return nil, fmt.Errorf("the receiver does not answer: %w", err)
	}
	text, err := readText(r, n)
	switch {
	case err != nil:
		return nil, err
	case word == refused:
		return nil, errors.New("the receiver: " + string(text))
	case word != granted:
		return nil, fmt.Errorf("the receiver answers with the word %#x", word)
	}
	return text, nil
}

// infoVersion is the first word of an Info. It changes with what ranks say to
// each other.
const infoVersion = "slots/2"

// An info is what an endpoint tells its peers, as four words of text.
type info struct {
	maxMessage int
	point      rendezvous.Addrs
	network    string // its name
}

func (i info) marshal() []byte {
	return fmt.Appendf(nil, "%s %d %v %q", infoVersion, i.maxMessage, i.point, i.network)
}

func parseInfo(data []byte) (i info, err error) {
	words := strings.SplitN(string(data), " ", 4)
	if len(words) != 4 || words[0] != infoVersion {
		return i, fmt.Errorf("%.40q is not of version %s; all ranks must run the same build", data, infoVersion)
	}
	n, err := strconv.ParseUint(words[1], 10, 30)
	if err != nil || n == 0 {
		return i, fmt.Errorf("message size %q is not a positive number", words[1])
	}
	point, err := rendezvous.ParseAddrs(words[2])
	if err != nil {
		return i, err
	}
	name, err := strconv.Unquote(words[3])
	if err != nil {
		return i, fmt.Errorf("%q is no name of a network", words[3])
	}
	return info{int(n), point, name}, nil
}
