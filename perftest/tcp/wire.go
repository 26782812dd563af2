package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// A measurement has a control connection and, for each direction, several streams. On the control
// connection:
//
//	caller → server   request
//	server → caller   accepted
//	(the caller opens the streams)
//	server → caller   ready
//	caller → server   run: the directions to measure at once
//	(both sides measure them)
//	server → caller   result: what it received, and its kernel's report of what it sent
//
// More runs follow while directions are left. Instead of any of its messages the server may send
// refused, with the reason. For pings:
//
//	caller → server   ping: for how long
//	server → caller   ping at: the UDP port where it answers, and the key of the packets
//	(the caller sends packets, the server answers)
//	caller → server   ping
//	server → caller   pinged: which packets arrived
//
// Integers are big-endian.

var protocol = meet.Protocol{Name: "p2", Claim: claimBytes}

const (
	frameRequest meet.Kind = iota + 1
	frameAccepted
	frameReady
	frameRun
	frameResult
	frameRefused
	framePing
	framePingAt
	framePinged
)

const (
	claimBytes   = 20
	requestBytes = 26
	resultBytes  = 48
	maxPayload   = 1024
	maxPinged    = 8 + maxPings/8 // the payload of pinged
)

// A direction is a bit set of directions.
type direction byte

const (
	forward direction = 1 << iota // from the caller to the server
	back
	both = forward | back
)

type sessionID [16]byte

// A claim is the purpose of a connection, as the caller sends it: control, if it has no direction,
// or a stream.
type claim struct {
	direction direction
	stream    int
	session   sessionID
}

func (c claim) encode() []byte {
	b := make([]byte, claimBytes)
	b[0] = byte(c.direction)
	binary.BigEndian.PutUint16(b[2:], uint16(c.stream))
	copy(b[4:], c.session[:])
	return b
}

func decodeClaim(b []byte) (c claim, err error) {
	if len(b) == claimBytes {
		c = claim{direction: direction(b[0]), stream: int(binary.BigEndian.Uint16(b[2:])), session: sessionID(b[4:])}
	}
	if len(b) != claimBytes || b[1] != 0 || c.direction > back || c.stream >= maxStreams || c.direction == 0 && c.stream != 0 {
		return claim{}, errors.New("it asks for what this version does not know")
	}
	return c, nil
}

// A request describes a measurement.
type request struct {
	warmup, duration time.Duration
	limit            time.Duration // for the whole measurement
	streams          int           // per direction
}

func (r request) encode() []byte {
	b := make([]byte, 0, requestBytes)
	for _, d := range []time.Duration{r.warmup, r.duration, r.limit} {
		b = binary.BigEndian.AppendUint64(b, uint64(d))
	}
	return binary.BigEndian.AppendUint16(b, uint16(r.streams))
}

func decodeRequest(b []byte) (request, error) {
	if len(b) != requestBytes {
		return request{}, fmt.Errorf("a request of %d bytes; it has %d", len(b), requestBytes)
	}
	at := func(i int) time.Duration { return time.Duration(binary.BigEndian.Uint64(b[8*i:])) }
	r := request{warmup: at(0), duration: at(1), limit: at(2), streams: int(binary.BigEndian.Uint16(b[24:]))}
	return r, r.check()
}

func (r request) check() error {
	switch {
	case r.duration <= 0 || r.duration > maxDuration || r.warmup < 0 || r.warmup > maxDuration:
		return fmt.Errorf("%v after a warm-up of %v; both may be up to %v, the first above 0", r.duration, r.warmup, maxDuration)
	case r.limit <= 0 || r.limit > maxLimit:
		return fmt.Errorf("a limit of %v; it may be up to %v", r.limit, maxLimit)
	case r.streams < 1 || r.streams > maxStreams:
		return fmt.Errorf("%d streams; 1 to %d are possible", r.streams, maxStreams)
	}
	return nil
}

// A result is one side's report of a run.
type result struct {
	received
	sent
}

func (r result) encode() []byte {
	b := make([]byte, 0, resultBytes)
	for _, n := range []int64{r.bytes, int64(r.took), r.segments, r.resent, int64(r.rtt), int64(r.minRTT)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func decodeResult(b []byte) (r result, err error) {
	if len(b) != resultBytes {
		return r, fmt.Errorf("a result of %d bytes; it has %d", len(b), resultBytes)
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
	r.bytes, r.took = at(0), time.Duration(at(1))
	r.segments, r.resent, r.rtt, r.minRTT = at(2), at(3), time.Duration(at(4)), time.Duration(at(5))
	if min(r.bytes, int64(r.took), r.segments, r.resent, int64(r.rtt), int64(r.minRTT)) < 0 || (r.bytes > 0) != (r.took > 0) {
		return result{}, errors.New("a result with figures that cannot be")
	}
	return r, nil
}

// expect reads a frame of the given kind.
func expect(r io.Reader, want meet.Kind) ([]byte, error) {
	most := maxPayload
	if want == framePinged {
		most = maxPinged
	}
	k, p, err := meet.ReadFrame(r, most)
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it hung up")
	case err != nil:
		return nil, err
	case k == frameRefused:
		return nil, fmt.Errorf("it says: %q", p)
	case k != want:
		return nil, unexpected(k, want)
	}
	return p, nil
}

func unexpected(k, want meet.Kind) error {
	return fmt.Errorf("it sent nonsense: a message of kind %d, not %d", k, want)
}
