// Package meet is the only means by which assay's processes connect over TCP: all code that a
// stranger can reach is here.
//
// # The handshake
//
// The two ends of a connection prove to each other that they know a shared secret, which is never
// sent. The caller sends first:
//
//	caller → listener   hello: magic 8, claim, nonce 32
//	listener → caller   magic 8, nonce 32, HMAC(secret, "listener" hello nonce) 32
//	caller → listener   HMAC(secret, "caller" hello nonce) 32
//	listener → caller   1 byte: admitted; or another, with the reason: length 1, text
//
// Both codes cover both nonces, so that nothing can be replayed; the side, so that nothing can be
// reflected; and the hello with the protocol and the claim, so that a code for one purpose is not
// valid for another. The codes use SHA-256. Each connection has its own key, derived from the same
// inputs, for data that must be encrypted. The data after the handshake is neither encrypted nor
// signed: this protects against attackers that can connect, not against those that can modify
// packets.
//
// # The rest
//
// A [Gate] listens, with limits for connections that are not authenticated. A [Caller] dials, once
// or until it is admitted. [WriteFrame] and [ReadFrame] split the data that follows into messages.
// [Interfaces] chooses addresses.
package meet

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	family     = "assay\x00" // common prefix of the magic of all protocols
	magicBytes = len(family) + 2
	nonceBytes = 32
	macBytes   = sha256.Size
	replyBytes = magicBytes + nonceBytes + macBytes

	welcome = 0x06
	refusal = 0x15
)

// ErrRefused marks handshake errors that a retry would meet again: the other side uses another
// protocol, has another secret, or gives a reason for not admitting the caller. Other errors may be
// temporary.
var ErrRefused = errors.New("not authenticated")

type refused struct{ text string }

func (r *refused) Error() string        { return r.text }
func (r *refused) Is(target error) bool { return target == ErrRefused }

func refusef(format string, a ...any) error { return &refused{fmt.Sprintf(format, a...)} }

// A Protocol is what two ends speak. All ends of a protocol share a secret.
type Protocol struct {
	Name  string // two characters: the purpose's letter, and the version
	Claim int    // number of bytes by which the caller describes itself and its request
}

func (p Protocol) magic() string {
	if len(p.Name) != magicBytes-len(family) {
		panic(fmt.Sprintf("meet: a protocol's name of %d bytes: %q", len(p.Name), p.Name))
	}
	return family + p.Name
}

// differs returns the error for a peer that speaks another protocol.
func (p Protocol) differs(magic string) error {
	if name, ok := strings.CutPrefix(magic, family); ok {
		return refusef("it speaks assay's protocol %q and not %q: it is another part of assay, or another version", name, p.Name)
	}
	return refusef("it does not speak this protocol: it begins with %q", magic)
}

func code(secret []byte, what string, hello, nonce []byte) []byte {
	m := hmac.New(sha256.New, secret)
	io.WriteString(m, "assay meet 1 "+what+"\x00")
	m.Write(hello)
	m.Write(nonce)
	return m.Sum(nil)
}

// Greet is the caller's side of the handshake. It returns when the listener has admitted the
// caller, with a key of 32 bytes that only the two ends of this connection have. The connection's
// deadline applies until the listener has authenticated itself; then it is cleared.
func (p Protocol) Greet(c io.ReadWriter, secret, claim []byte) (key []byte, err error) {
	if len(claim) != p.Claim {
		panic(fmt.Sprintf("meet: a claim of %d bytes; those of %q have %d", len(claim), p.Name, p.Claim))
	}
	var own [nonceBytes]byte
	rand.Read(own[:])
	hello := append(append([]byte(p.magic()), claim...), own[:]...)
	if _, err := c.Write(hello); err != nil {
		return nil, err
	}
	var reply [replyBytes]byte
	if n, err := io.ReadFull(c, reply[:]); err != nil && n < magicBytes {
		return nil, fmt.Errorf("it hung up during the handshake: %w", err)
	} else if magic := string(reply[:magicBytes]); magic != p.magic() {
		return nil, p.differs(magic)
	} else if err != nil {
		return nil, fmt.Errorf("it broke off during the handshake: %w", err)
	}
	nonce, proof := reply[magicBytes:][:nonceBytes], reply[magicBytes+nonceBytes:]
	if !hmac.Equal(proof, code(secret, "listener", hello, nonce)) {
		return nil, refusef("what listens there does not know the secret")
	}
	// From here on the listener may count the caller as admitted, and the caller must wait for it:
	// giving up and calling again would make it arrive twice.
	if d, ok := c.(interface{ SetDeadline(time.Time) error }); ok {
		d.SetDeadline(time.Time{})
	}
	if _, err := c.Write(code(secret, "caller", hello, nonce)); err != nil {
		return nil, err
	}
	var word [1]byte
	if _, err := io.ReadFull(c, word[:]); err != nil {
		return nil, fmt.Errorf("it hung up after the handshake: %w", err)
	}
	if word[0] != welcome {
		var text [255]byte
		n := 0
		if _, err := io.ReadFull(c, word[:]); err == nil {
			n, _ = io.ReadFull(c, text[:word[0]])
		}
		return nil, refusef("it says: %q", text[:n])
	}
	return code(secret, "key", hello, nonce), nil
}

// Examine is the listener's side up to the decision, which is sent by Welcome or Refuse. It returns
// the caller's claim, and the key.
func (p Protocol) Examine(c io.ReadWriter, secret []byte) (claim, key []byte, err error) {
	hello := make([]byte, magicBytes+p.Claim+nonceBytes)
	if _, err := io.ReadFull(c, hello[:magicBytes]); err != nil {
		return nil, nil, fmt.Errorf("it said nothing: %w", err)
	}
	if magic := string(hello[:magicBytes]); magic != p.magic() {
		if strings.HasPrefix(magic, family) {
			io.WriteString(c, p.magic()) // tells the caller which protocol this is
		}
		return nil, nil, p.differs(magic)
	}
	if _, err := io.ReadFull(c, hello[magicBytes:]); err != nil {
		return nil, nil, fmt.Errorf("it broke off: %w", err)
	}
	var nonce [nonceBytes]byte
	rand.Read(nonce[:])
	reply := append(append([]byte(p.magic()), nonce[:]...), code(secret, "listener", hello, nonce[:])...)
	if _, err := c.Write(reply); err != nil {
		return nil, nil, err
	}
	var answer [macBytes]byte
	if _, err := io.ReadFull(c, answer[:]); err == io.EOF {
		return nil, nil, refusef("it hung up on the challenge: it has another secret, most likely")
	} else if err != nil {
		return nil, nil, fmt.Errorf("it did not answer the challenge: %w", err)
	}
	if !hmac.Equal(answer[:], code(secret, "caller", hello, nonce[:])) {
		return nil, nil, refusef("it does not know the secret")
	}
	return hello[magicBytes:][:p.Claim], code(secret, "key", hello, nonce[:]), nil
}

// Welcome admits the caller that Examine authenticated.
func Welcome(c io.Writer) error {
	_, err := c.Write([]byte{welcome})
	return err
}

// Refuse sends the caller the reason for its rejection, in up to 255 bytes.
func Refuse(c io.Writer, why error) error {
	text := why.Error()
	text = text[:min(len(text), 255)]
	_, err := c.Write(append([]byte{refusal, byte(len(text))}, text...))
	return err
}
