package socket

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The handshake, on each stream, in fixed lengths so that nothing is read
// that belongs to the messages behind it:
//
//	acceptor → dialer   challenge: magic, nonce A
//	dialer → acceptor   hello: magic, who and what, nonce D, MAC
//	acceptor → dialer   answer: MAC
//
// Both MACs are HMAC-SHA256 under the communicator's key, over a word for the
// direction, the communicator's name, both nonces and the hello: neither side
// can be replayed, reflected, or taken from another stream.
const (
	magic     = "assay/tcp/1\x00"
	nonceSize = 32
	bodySize  = len(magic) + 5*4 + nonceSize
	macSize   = sha256.Size
	helloSize = bodySize + macSize
)

// helloPatience is how long an acceptor waits for a hello.
const helloPatience = 10 * time.Second

// A hello says which stream of which connection this is.
type hello struct {
	source, dest   int // ranks
	channel        int
	index, streams int // this stream's number, how many there are
	nonce          [nonceSize]byte
}

func (h *hello) marshal() []byte {
	b := make([]byte, 0, helloSize)
	b = append(b, magic...)
	for _, v := range []int{h.source, h.dest, h.channel, h.index, h.streams} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return append(b, h.nonce[:]...)
}

var errMagic = errors.New("it does not speak this protocol")

// parseHello reads the body of a hello; its MAC was checked before.
func parseHello(b []byte) (hello, error) {
	if len(b) != bodySize {
		return hello{}, fmt.Errorf("a hello of %d bytes; want %d", len(b), bodySize)
	}
	if string(b[:len(magic)]) != magic {
		return hello{}, errMagic
	}
	var v [5]int
	b = b[len(magic):]
	for i := range v {
		u := binary.LittleEndian.Uint32(b[4*i:])
		if u > 1<<30 {
			return hello{}, fmt.Errorf("field %d of the hello is %d", i, u)
		}
		v[i] = int(u)
	}
	h := hello{source: v[0], dest: v[1], channel: v[2], index: v[3], streams: v[4]}
	if h.streams < 1 || h.streams > 1+MaxStreams || h.index >= h.streams {
		return hello{}, fmt.Errorf("stream %d of %d; want at most %d", h.index, h.streams, 1+MaxStreams)
	}
	copy(h.nonce[:], b[5*4:])
	return h, nil
}

// mac authenticates one direction of a handshake.
func (o *Options) mac(word string, challenge, body []byte) []byte {
	m := hmac.New(sha256.New, o.Key)
	io.WriteString(m, word)
	m.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(o.Comm))))
	m.Write(o.Comm)
	m.Write(challenge)
	m.Write(body)
	return m.Sum(nil)
}

// greet is the dialer's side. It returns once the acceptor has proved itself.
func (o *Options) greet(c net.Conn, h hello) error {
	var challenge [len(magic) + nonceSize]byte
	if _, err := io.ReadFull(c, challenge[:]); err != nil {
		return fmt.Errorf("no challenge: %w", err)
	}
	if string(challenge[:len(magic)]) != magic {
		return errMagic
	}
	rand.Read(h.nonce[:])
	body := h.marshal()
	if _, err := c.Write(append(body, o.mac("dial", challenge[:], body)...)); err != nil {
		return err
	}
	var answer [macSize]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return fmt.Errorf("the hello was not accepted (is it the same communicator?): %w", err)
	}
	if !hmac.Equal(answer[:], o.mac("accept", challenge[:], body)) {
		return errors.New("the answer is not of this communicator")
	}
	return nil
}

// A welcome is a hello that was found genuine, and what it is owed.
type welcome struct {
	hello
	answer []byte
}

// receive is the first part of the acceptor's side: all but the answer, which
// is sent when there is a place for the stream.
func (o *Options) receive(c io.ReadWriter) (welcome, error) {
	var challenge [len(magic) + nonceSize]byte
	copy(challenge[:], magic)
	rand.Read(challenge[len(magic):])
	if _, err := c.Write(challenge[:]); err != nil {
		return welcome{}, err
	}
	var b [helloSize]byte
	if n, err := io.ReadFull(c, b[:]); err != nil {
		if n >= len(magic) && string(b[:len(magic)]) != magic {
			err = errMagic
		}
		return welcome{}, err
	}
	return o.verify(challenge[:], b[:])
}

// verify judges a hello that answers a challenge.
func (o *Options) verify(challenge, b []byte) (welcome, error) {
	if string(b[:len(magic)]) != magic {
		return welcome{}, errMagic
	}
	body := b[:bodySize]
	if !hmac.Equal(b[bodySize:], o.mac("dial", challenge, body)) {
		return welcome{}, errors.New("it does not have this communicator's key")
	}
	h, err := parseHello(body)
	if err != nil {
		return welcome{}, err
	}
	if h.dest != o.Rank || h.source == o.Rank {
		return welcome{}, fmt.Errorf("it is from rank %d to rank %d; this is rank %d", h.source, h.dest, o.Rank)
	}
	return welcome{h, o.mac("accept", challenge, body)}, nil
}
