package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/assay-hpc/assay/internal/meet"
)

// A caller claims its rank and the one that it wants, and for what: purpose 1, zero 3,
// from 4, to 4, size 4. Integers are big endian.
var protocol = meet.Protocol{Name: "b2", Claim: 16}

// A purpose says what a connection is for.
type purpose byte

const (
	toRoot  purpose = 'R' // a rank reports to the root
	toPeer  purpose = 'L' // a link between two ranks
	toShare purpose = 'S' // a rank asks for the ID
	toGroup purpose = 'C' // a rank comes to a Group's rank 0
)

// nobodyRank stands for the root, which has no rank.
const nobodyRank = -1

// A hello says which rank calls which one, and for what.
type hello struct {
	purpose purpose
	from    int32
	to      int32
	size    int32
}

func (h hello) encode() []byte {
	b := []byte{byte(h.purpose), 0, 0, 0}
	for _, v := range []int32{h.from, h.to, h.size} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

func decodeHello(b []byte) (h hello, err error) {
	if len(b) != protocol.Claim || b[1]|b[2]|b[3] != 0 {
		return h, errors.New("it asks for what this version does not know")
	}
	at := func(i int) int32 { return int32(binary.BigEndian.Uint32(b[4*i:])) }
	return hello{purpose(b[0]), at(1), at(2), at(3)}, nil
}

// What is said after the handshake.
const (
	// Between a rank and the root.
	frameHere   meet.Kind = iota + 1 // rank: I listen at address 18; who I am
	framePeers                       // root: your neighbours: (rank 4, address 18)…
	frameLinked                      // rank: all my links stand
	frameFailed                      // either: it failed: code 1, text
	frameGo                          // root: all links of all ranks stand

	// Between ranks. Those of a Group say failed, too: number 4, why there is no answer.
	frameBeat   // I am alive
	framePart   // part of an exchange, towards rank 0 or from there; in a Group: number 4, block
	frameDeath  // rank 4, noticed by 4, after nanoseconds 8, what; in a Group: nothing
	frameReport // from 4, number 4, payload
	frameLeave  // I close; nothing more comes
	frameAbort  // I abort; 1 if because of a death that I have told before
)

const (
	// maxFrame leaves room for one block of MaxBlock and its headers.
	maxFrame = MaxBlock + 64
	// maxHello bounds what a rank and the root say to each other.
	maxHello = 4096
)

// gate is one whose callers are to say a hello that admit expects.
func (o Options) gate(name string, secret []byte, admit func(hello) error, enter func(h hello, c net.Conn, key []byte)) *meet.Gate {
	return &meet.Gate{Protocol: protocol, Secret: secret, Name: name, Logf: o.Logf, Admit: func(claim []byte) error {
		h, err := decodeHello(claim)
		if err == nil {
			err = admit(h)
		}
		return err
	}, Enter: func(c net.Conn, claim, key []byte) {
		h, _ := decodeHello(claim)
		enter(h, c, key)
	}}
}

// call calls the listener at the ID's addresses, by those that o admits. global: if
// there are some, not by link-local ones.
func (id ID) call(ctx context.Context, h hello, o Options, global bool) (net.Conn, error) {
	all, err := id.addrs()
	if err != nil {
		return nil, err
	}
	admits, err := meet.Family(o.Family)
	if err != nil {
		return nil, err
	}
	var addrs, others []string
	for _, a := range all {
		if !admits(a.Addr()) {
			continue
		}
		for _, z := range meet.Zones(a, o.Ifname) {
			if global && z.Addr().IsLinkLocalUnicast() {
				others = append(others, z.String())
			} else {
				addrs = append(addrs, z.String())
			}
		}
	}
	if len(addrs) == 0 {
		addrs = others
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("no interface leads to it within the family %q", o.Family)
	}
	c := meet.Caller{Protocol: protocol, Secret: id.secret(), Claim: h.encode(), Late: id.late()}
	conn, _, err := c.Call(ctx, addrs)
	return conn, err
}
