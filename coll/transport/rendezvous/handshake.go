package rendezvous

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

// The handshake, in fixed lengths so that nothing is read that belongs to what
// comes behind it:
//
//	acceptor → dialer   challenge: magic, nonce A
//	dialer → acceptor   hello: magic, who and what, nonce D, MAC
//	acceptor → dialer   answer: MAC
//
// Both MACs are HMAC-SHA256 under the communicator's key, over a word for the
// direction, the communicator's name, both nonces and the hello: neither side
// can be replayed, reflected, or taken from another connection.
const (
	magic         = "assay/meet/1"
	nonceSize     = 32
	challengeSize = len(magic) + nonceSize
	bodySize      = len(magic) + 3*4 + nonceSize
	macSize       = sha256.Size
)

// helloPatience is how long an acceptor waits for a hello.
const helloPatience = 10 * time.Second

// A hello says who wants which connection.
type hello struct{ source, dest, channel int }

var errMagic = errors.New("it does not speak this protocol")

func (h hello) marshal() []byte {
	b := append(make([]byte, 0, bodySize), magic...)
	for _, v := range []int{h.source, h.dest, h.channel} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	return append(b, nonce[:]...)
}

// parseHello reads the body of a hello, whose MAC was checked before.
func parseHello(b []byte) (h hello, err error) {
	if len(b) != bodySize || string(b[:len(magic)]) != magic {
		return h, errMagic
	}
	var v [3]int
	for i := range v {
		u := binary.LittleEndian.Uint32(b[len(magic)+4*i:])
		if u > 1<<30 {
			return h, fmt.Errorf("field %d of the hello is %d", i, u)
		}
		v[i] = int(u)
	}
	return hello{v[0], v[1], v[2]}, nil
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
func (o *Options) greet(c io.ReadWriter, h hello) error {
	var challenge [challengeSize]byte
	if _, err := io.ReadFull(c, challenge[:]); err != nil {
		return fmt.Errorf("no challenge: %w", err)
	}
	if string(challenge[:len(magic)]) != magic {
		return errMagic
	}
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

// receive is the acceptor's side.
func (o *Options) receive(c io.ReadWriter) (h hello, err error) {
	challenge := append(make([]byte, 0, challengeSize), magic...)
	challenge = challenge[:challengeSize]
	rand.Read(challenge[len(magic):])
	if _, err := c.Write(challenge); err != nil {
		return h, err
	}
	var b [bodySize + macSize]byte
	if n, err := io.ReadFull(c, b[:]); err != nil {
		if n >= len(magic) && string(b[:len(magic)]) != magic {
			err = errMagic
		}
		return h, err
	}
	if string(b[:len(magic)]) != magic {
		return h, errMagic
	}
	body := b[:bodySize]
	if !hmac.Equal(b[bodySize:], o.mac("dial", challenge, body)) {
		return h, errors.New("it does not have this communicator's key")
	}
	if h, err = parseHello(body); err != nil {
		return h, err
	}
	if h.dest != o.Rank || h.source == o.Rank {
		return h, fmt.Errorf("it is from rank %d to rank %d; this is rank %d", h.source, h.dest, o.Rank)
	}
	_, err = c.Write(o.mac("accept", challenge, body))
	return h, err
}

// keep ends the handshake: deadlines go, and the kernel is to notice a peer
// that does not answer any more.
func (o *Options) keep(c net.Conn) error {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil // a pipe, in tests
	}
	every := max(o.Timeout/4, time.Second)
	if err := t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: every, Interval: every, Count: 3}); err != nil {
		return err
	}
	return setUserTimeout(t, o.Timeout)
}
