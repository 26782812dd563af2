package gather

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// A connection begins with a handshake, the caller first:
//
//	caller → listener   magic 8, from 4, to 4, size 4, nonce 32
//	listener → caller   nonce 32, HMAC(token, "listener" hello nonce) 32
//	caller → listener   HMAC(token, "caller" hello nonce) 32
//
// then frames: length of the payload 4, kind 1, payload. Integers are big
// endian.

const (
	magic      = "assay\x00g1"
	helloBytes = 20 + nonceBytes
	nonceBytes = 32
)

type kind byte

const (
	frameHost     kind = iota + 1 // caller: the host that it runs on
	frameDocument                 // caller: rank 4, a document
	frameSummary                  // caller: a part
	frameTaken                    // listener: I have it
	framePassed                   // listener: so has who is above me
	frameRefused                  // listener: why it does not take it
)

// errStranger: who is at the other end does not know the token.
var errStranger = errors.New("it does not know the token")

func proof(token []byte, side string, hello, nonce []byte) []byte {
	m := hmac.New(sha256.New, token)
	m.Write([]byte("assay gather 1 " + side + "\x00"))
	m.Write(hello)
	m.Write(nonce)
	return m.Sum(nil)
}

// greet is the caller's side.
func greet(c io.ReadWriter, token []byte, from, to, size int) error {
	hello := []byte(magic)
	for _, n := range []int{from, to, size} {
		hello = binary.BigEndian.AppendUint32(hello, uint32(n))
	}
	nonce := make([]byte, nonceBytes)
	rand.Read(nonce)
	hello = append(hello, nonce...)
	if _, err := c.Write(hello); err != nil {
		return err
	}
	var reply [nonceBytes + sha256.Size]byte
	if _, err := io.ReadFull(c, reply[:]); err != nil {
		return fmt.Errorf("it did not answer: %w", err)
	}
	if !hmac.Equal(reply[nonceBytes:], proof(token, "listener", hello, reply[:nonceBytes])) {
		return errStranger
	}
	_, err := c.Write(proof(token, "caller", hello, reply[:nonceBytes]))
	return err
}

// examine is the listener's side; it returns who calls.
func examine(c io.ReadWriter, token []byte, to, size int) (from int, err error) {
	hello := make([]byte, helloBytes)
	if _, err := io.ReadFull(c, hello[:len(magic)]); err != nil {
		return 0, fmt.Errorf("it said nothing: %w", err)
	}
	if string(hello[:len(magic)]) != magic {
		return 0, errors.New("it does not speak this protocol")
	}
	if _, err := io.ReadFull(c, hello[len(magic):]); err != nil {
		return 0, fmt.Errorf("it broke off: %w", err)
	}
	nonce := make([]byte, nonceBytes)
	rand.Read(nonce)
	if _, err := c.Write(append(nonce, proof(token, "listener", hello, nonce)...)); err != nil {
		return 0, err
	}
	var answer [sha256.Size]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return 0, fmt.Errorf("it did not answer the challenge: %w", err)
	}
	if !hmac.Equal(answer[:], proof(token, "caller", hello, nonce[:nonceBytes])) {
		return 0, errStranger
	}
	at := func(i int) int { return int(binary.BigEndian.Uint32(hello[len(magic)+4*i:])) }
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
