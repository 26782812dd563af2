package bootstrap

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The handshake at the start of every connection. The caller speaks first:
//
//	caller → listener   hello: magic 8, purpose 1, zero 3, from 4, to 4, size 4, nonce 32
//	listener → caller   nonce 32, HMAC(secret, "listener" hello nonce) 32
//	caller → listener   HMAC(secret, "caller" hello nonce) 32
//	listener → caller   1 byte: come in
//
// Both nonces are in both codes, so nothing can be replayed; the label of the
// direction is, so nothing can be reflected; who calls whom for what is, so
// that a code for one purpose is good for no other. Integers are big endian.

const (
	helloMagic = "assay\x00b1"
	helloBytes = 56
	nonceBytes = 32
	macBytes   = sha256.Size
	welcome    = 0x06
)

// A purpose says what a connection is for.
type purpose byte

const (
	toRoot  purpose = 'R' // a rank reports to the root
	toPeer  purpose = 'L' // a link between two ranks
	toShare purpose = 'S' // a rank asks for the ID
	toCrew  purpose = 'C' // a rank comes to a Crew's rank 0
)

// nobodyRank stands for the root, which has no rank.
const nobodyRank = -1

// A hello says who calls whom, and for what.
type hello struct {
	purpose purpose
	from    int32
	to      int32
	size    int32
	nonce   [nonceBytes]byte
}

func (h *hello) encode() []byte {
	b := make([]byte, helloBytes)
	copy(b, helloMagic)
	b[8] = byte(h.purpose)
	binary.BigEndian.PutUint32(b[12:], uint32(h.from))
	binary.BigEndian.PutUint32(b[16:], uint32(h.to))
	binary.BigEndian.PutUint32(b[20:], uint32(h.size))
	copy(b[24:], h.nonce[:])
	return b
}

func decodeHello(b []byte) (h hello, err error) {
	if len(b) != helloBytes || string(b[:8]) != helloMagic || b[9]|b[10]|b[11] != 0 {
		return h, errors.New("it does not speak this protocol")
	}
	h.purpose = purpose(b[8])
	h.from = int32(binary.BigEndian.Uint32(b[12:]))
	h.to = int32(binary.BigEndian.Uint32(b[16:]))
	h.size = int32(binary.BigEndian.Uint32(b[20:]))
	copy(h.nonce[:], b[24:])
	return h, nil
}

// proof is one side's answer to the other's challenge.
func proof(secret []byte, side string, hello, nonce []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("assay bootstrap 1 handshake " + side + "\x00"))
	m.Write(hello)
	m.Write(nonce)
	return m.Sum(nil)
}

// greet is the caller's side. ErrRefused says that the listener does not know
// the secret; other errors may pass when tried again. What the two agreed on
// is returned for deriving keys from.
func greet(c io.ReadWriter, secret []byte, h hello) (transcript []byte, err error) {
	rand.Read(h.nonce[:])
	first := h.encode()
	if _, err := c.Write(first); err != nil {
		return nil, err
	}
	var reply [nonceBytes + macBytes]byte
	if _, err := io.ReadFull(c, reply[:]); err != nil {
		return nil, fmt.Errorf("it hung up during the handshake: %w", err)
	}
	nonce := reply[:nonceBytes]
	if !hmac.Equal(reply[nonceBytes:], proof(secret, "listener", first, nonce)) {
		return nil, wrapf(ErrRefused, "who listens there does not know the secret")
	}
	if _, err := c.Write(proof(secret, "caller", first, nonce)); err != nil {
		return nil, err
	}
	var ok [1]byte
	if _, err := io.ReadFull(c, ok[:]); err != nil || ok[0] != welcome {
		return nil, fmt.Errorf("it hung up after the handshake: %w", err)
	}
	return append(first, nonce...), nil
}

// examine is the listener's side up to the welcome, which it leaves to the
// caller: it has found out who calls.
func examine(c io.ReadWriter, secret []byte) (h hello, transcript []byte, err error) {
	first := make([]byte, helloBytes, helloBytes+nonceBytes)
	if _, err := io.ReadFull(c, first[:len(helloMagic)]); err != nil {
		return h, nil, fmt.Errorf("it said nothing: %w", err)
	}
	if string(first[:len(helloMagic)]) != helloMagic {
		return h, nil, errors.New("it does not speak this protocol")
	}
	if _, err := io.ReadFull(c, first[len(helloMagic):]); err != nil {
		return h, nil, fmt.Errorf("it broke off: %w", err)
	}
	if h, err = decodeHello(first); err != nil {
		return h, nil, err
	}
	nonce := make([]byte, nonceBytes, nonceBytes+macBytes)
	rand.Read(nonce)
	if _, err := c.Write(append(nonce, proof(secret, "listener", first, nonce)...)); err != nil {
		return h, nil, err
	}
	var answer [macBytes]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return h, nil, fmt.Errorf("it did not answer the challenge: %w", err)
	}
	if !hmac.Equal(answer[:], proof(secret, "caller", first, nonce)) {
		return h, nil, errors.New("it does not know the secret")
	}
	return h, append(first, nonce...), nil
}
