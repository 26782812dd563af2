// Package handshake lets the two ends of a connection prove to each other that
// they know one token, which never crosses the wire. The caller speaks first:
//
//	caller → listener   magic, claim, nonce 32
//	listener → caller   nonce 32, HMAC(token, "listener" hello nonce) 32
//	caller → listener   HMAC(token, "caller" hello nonce) 32
//
// where hello is all of the caller's first message. Both nonces are in both
// codes, so nothing can be replayed; the side is, so nothing can be reflected;
// so is the claim, which says who calls and for what. The codes are SHA-256's.
// What follows is neither encrypted nor signed, and deadlines are the caller's
// matter.
package handshake

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

const nonceBytes = 32

// ErrStranger is the answer to who does not know the token.
var ErrStranger = errors.New("it does not know the token")

// A Protocol is what the two sides must have in common besides the token.
type Protocol struct {
	Magic string // how the caller begins
	Label string // keeps the codes of one protocol from being good in another
	Claim int    // how many bytes the caller says of itself
}

func (p Protocol) proof(token []byte, side string, hello, nonce []byte) []byte {
	m := hmac.New(sha256.New, token)
	m.Write([]byte(p.Label + " " + side + "\x00"))
	m.Write(hello)
	m.Write(nonce)
	return m.Sum(nil)
}

// Greet is the caller's side. ErrStranger says that the listener does not know
// the token; whether it takes the caller for one shows in what follows.
func (p Protocol) Greet(c io.ReadWriter, token, claim []byte) error {
	if len(claim) != p.Claim {
		panic(fmt.Sprintf("handshake: a claim of %d bytes; %q has %d", len(claim), p.Label, p.Claim))
	}
	hello := append([]byte(p.Magic), claim...)
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
	if !hmac.Equal(reply[nonceBytes:], p.proof(token, "listener", hello, reply[:nonceBytes])) {
		return ErrStranger
	}
	_, err := c.Write(p.proof(token, "caller", hello, reply[:nonceBytes]))
	return err
}

// Examine is the listener's side; it returns what the caller says of itself.
func (p Protocol) Examine(c io.ReadWriter, token []byte) (claim []byte, err error) {
	hello := make([]byte, len(p.Magic)+p.Claim+nonceBytes)
	if _, err := io.ReadFull(c, hello[:len(p.Magic)]); err != nil {
		return nil, fmt.Errorf("it said nothing: %w", err)
	}
	if string(hello[:len(p.Magic)]) != p.Magic {
		return nil, errors.New("it does not speak this protocol")
	}
	if _, err := io.ReadFull(c, hello[len(p.Magic):]); err != nil {
		return nil, fmt.Errorf("it broke off: %w", err)
	}
	nonce := make([]byte, nonceBytes)
	rand.Read(nonce)
	if _, err := c.Write(append(nonce, p.proof(token, "listener", hello, nonce)...)); err != nil {
		return nil, err
	}
	var answer [sha256.Size]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return nil, fmt.Errorf("it did not answer the challenge: %w", err)
	}
	if !hmac.Equal(answer[:], p.proof(token, "caller", hello, nonce[:nonceBytes])) {
		return nil, ErrStranger
	}
	return hello[len(p.Magic):][:p.Claim], nil
}
