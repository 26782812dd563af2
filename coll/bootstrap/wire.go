package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/assay-hpc/assay/internal/meet"
)

// A caller's claim contains its rank, the rank that it calls, and the purpose: purpose (1
// byte), zero (3), from (4), to (4), size (4). Integers are big endian.
var protocol = meet.Protocol{Name: "b2", Claim: 16}

// A purpose is the purpose of a connection.
type purpose byte

const (
	toRoot  purpose = 'R' // a rank reports to the root
	toPeer  purpose = 'L' // a link between two ranks
	toShare purpose = 'S' // a rank requests the ID
	toGroup purpose = 'C' // a rank joins at a Group's rank 0
)

// nobodyRank stands for the root, which has no rank.
const nobodyRank = -1

// A hello contains the calling rank, the called rank, and the purpose.
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

// Frames after the handshake, with the lengths of fixed fields in bytes.
const (
	// Between a rank and the root.
	frameHere   meet.Kind = iota + 1 // rank: where it listens: addrs, host and process
	framePeers                       // root: the rank's neighbours: rank (4), addrs; repeated
	frameLinked                      // rank: all its links are up
	frameFailed                      // either: a failure: code (1), text
	frameGo                          // root: all links of all ranks are up

	// Between ranks. In a Group also frameFailed: number (4), why there is no answer.
	frameBeat   // heartbeat
	framePart   // part of an exchange, to or from rank 0; in a Group: number (4), block
	frameDeath  // rank (4), noticed by (4), nanoseconds of silence (8), text; in a Group: nothing
	frameReport // from (4), number (8), payload
	frameLeave  // the sender closes and sends nothing more; in a Group: the reason
	frameAbort  // the sender aborts; 1 if because of a death that it has reported before
)

const (
	// maxFrame is enough for one block of MaxBlock bytes and its headers.
	maxFrame = MaxBlock + 64
	// maxHello bounds the frames between a rank and the root.
	maxHello = 4096
)

// gate returns a gate that lets in callers with a hello that admit accepts.
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

// call dials the listener at those of the ID's addresses that o admits. With global, it
// uses link-local addresses only if there are no others.
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
