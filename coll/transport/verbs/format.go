//go:build cgo && linux

package verbs

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/coll/transport"
	rdma "github.com/assay-hpc/assay/perftest/verbs"
)

// headerSize is the length of what goes before each message in its slot, in
// bytes. It keeps the message aligned for every element.
const headerSize = 32

// slots is how many messages each end of a connection has room for.
const slots = 8

// kindMessage is the first word of a message.
const kindMessage = 0x6962a1b2

// putHeader writes the header of a message of n bytes. number is the message's
// on its connection, from 0.
func putHeader(b []byte, number uint32, n int, h transport.Header) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint32(b, kindMessage)
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
	length := binary.LittleEndian.Uint32(b[16:])
	if uint64(length) > uint64(len(slot)-headerSize) {
		return h, 0, fmt.Errorf("a message of %d bytes; they are at most %d", length, len(slot)-headerSize)
	}
	return transport.Header{Seq: binary.LittleEndian.Uint32(b[8:]), Sign: binary.LittleEndian.Uint32(b[12:])}, int(length), nil
}

// An immediate has the message's number, without its upper bits, and how many
// parts it comes in.
const immBits = 24

// immediate makes one, in network order.
func immediate(number uint32, parts int) uint32 {
	return netOrder(number&(1<<immBits-1) | uint32(parts)<<immBits)
}

// parseImmediate returns how far its message is from a number, and the parts.
func parseImmediate(imm, from uint32) (ahead uint32, parts int) {
	u := netOrder(imm)
	return (u - from) & (1<<immBits - 1), int(u >> immBits)
}

// netOrder turns a number into network order, or back.
func netOrder(u uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], u)
	return binary.NativeEndian.Uint32(b[:])
}

// What goes over the TCP connection of two ranks:
//
//	sender → receiver   the sender's half, JSON behind its length
//	receiver → sender   the receiver's half, or why there is none
//	each, once          wordBye, messages sent or released: nothing is posted any more

// wordBye is the goodbye.
const wordBye = 0x69627921

// maxHalf bounds the text of a half, in bytes.
const maxHalf = 64 << 10

// A half is what one end of a connection tells the other.
type half struct {
	Failure string `json:"failure,omitempty"` // why the receiver has none

	Device   int       `json:"device"` // the sender's, by its number among those it uses
	Name     string    `json:"name"`   // of device and port, for errors
	Max      int       `json:"max"`    // bytes of the longest message
	MTU      rdma.MTU  `json:"mtu"`
	Ethernet bool      `json:"ethernet"`
	LID      uint16    `json:"lid"`
	GID      rdma.GID  `json:"gid"`
	QPs      []qpNames `json:"qps"`

	// Where the peer may write: the receiver's slots, the sender's credit.
	Address uint64 `json:"address"`
	Key     uint32 `json:"key"`
}

// qpNames are a queue pair's number and its first packet's.
type qpNames struct {
	QPN uint32 `json:"qpn"`
	PSN uint32 `json:"psn"`
}

func (h *half) check() error {
	switch {
	case h.Failure != "":
		return errors.New(h.Failure)
	case len(h.QPs) < 1 || len(h.QPs) > MaxQPs:
		return fmt.Errorf("it has %d queue pairs; there are 1 to %d", len(h.QPs), MaxQPs)
	case h.Device < 0 || h.Max < 1 || h.Max > maxMaxMessage || h.MTU.Bytes() == 0:
		return fmt.Errorf("device %d, messages of %d bytes, MTU %d: one of these cannot be", h.Device, h.Max, h.MTU)
	}
	return nil
}

// maxMaxMessage is the longest message there can be, in bytes.
const maxMaxMessage = 1 << 29

func writeHalf(w io.Writer, h *half) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func readHalf(r io.Reader) (h half, err error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return h, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxHalf {
		return h, fmt.Errorf("a description of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return h, err
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return h, err
	}
	return h, h.check()
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

// infoVersion is the first word of an Info. It changes with what ranks say to
// each other.
const infoVersion = "verbs/1"

// An info is what an endpoint tells its peers, as three words of text.
type info struct {
	maxMessage int
	point      string // of a rendezvous.Point
}

func (i info) marshal() []byte {
	return fmt.Appendf(nil, "%s %d %s", infoVersion, i.maxMessage, i.point)
}

func parseInfo(data []byte) (i info, err error) {
	words := strings.Split(string(data), " ")
	if len(words) != 3 || words[0] != infoVersion {
		return i, fmt.Errorf("%.40q is not of version %s; all ranks must run the same build", data, infoVersion)
	}
	n, err := strconv.ParseUint(words[1], 10, 30)
	if err != nil || n == 0 {
		return i, fmt.Errorf("message size %q is not a positive number", words[1])
	}
	return info{int(n), words[2]}, nil
}
