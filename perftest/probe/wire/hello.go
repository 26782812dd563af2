package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"
)

// Hello contains what the sides tell each other first.
type Hello struct {
	Version string // of the protocol: "6.29"
	Cycle   int    // bytes: the cycle buffer, which is the page size
	Line    int    // bytes: the CPU's cache line
	MTU     int    // bytes: 256, 512, 1024, 2048 or 4096
}

// Sizes of the first messages.
const (
	versionBytes = 16
	intBytes     = 4
	mtuBytes     = 2
)

// Limits of a peer's values, so that a wrong message is not taken for a request to allocate
// gigabytes. Linux has pages of up to 256 KiB and cache lines of up to 256 bytes.
const (
	maxCycle = 1 << 21
	maxLine  = 1 << 12
)

const oldestVersion = 570 // 5.70, in hundredths

// Hello makes the first exchanges: version, cycle buffer, cache line, and MTU unless that is
// skipped (raw Ethernet). Both sides use the larger buffer and line, and the smaller MTU. If
// mine.Version is empty, it is Version.
func (c *Conn) Hello(ctx context.Context, mine Hello, skipMTU bool) (agreed, peer Hello, err error) {
	mine.Version = cmp.Or(mine.Version, Version)
	if err := mine.check(skipMTU); err != nil {
		return agreed, peer, err
	}
	if peer.Version, err = c.swapVersion(ctx, mine.Version); err != nil {
		return agreed, peer, err
	}
	if c.cm {
		c.binary = binaryLength(peer.Version)
	}
	if peer.Cycle, err = c.swapInt(ctx, "the cycle buffer's size", mine.Cycle, maxCycle); err != nil {
		return agreed, peer, err
	}
	if peer.Line, err = c.swapInt(ctx, "the cache line's size", mine.Line, maxLine); err != nil {
		return agreed, peer, err
	}
	agreed = Hello{Version: mine.Version, Cycle: max(mine.Cycle, peer.Cycle), Line: max(mine.Line, peer.Line)}
	if skipMTU {
		return agreed, peer, nil
	}
	peer.MTU, err = c.swapMTU(ctx, mine.MTU)
	agreed.MTU = min(mine.MTU, peer.MTU)
	return agreed, peer, err
}

// check returns an error for values that cannot be sent.
func (h Hello) check(skipMTU bool) error {
	switch _, ok := parseVersion(h.Version); {
	case !ok:
		return fmt.Errorf("%w: the version %q is none such as 6.06", ErrLocal, h.Version)
	case h.Cycle < 1 || h.Cycle > maxCycle:
		return fmt.Errorf("%w: a cycle buffer of %d bytes is not between 1 and %d", ErrLocal, h.Cycle, maxCycle)
	case h.Line < 1 || h.Line > maxLine:
		return fmt.Errorf("%w: a cache line of %d bytes is not between 1 and %d", ErrLocal, h.Line, maxLine)
	}
	if _, ok := mtuDigit(h.MTU); !ok && !skipMTU {
		return fmt.Errorf("%w: an MTU of %d bytes is not one of 256, 512, 1024, 2048 and 4096", ErrLocal, h.MTU)
	}
	return nil
}

const versionExchange = "the protocol version"

func (c *Conn) swapVersion(ctx context.Context, mine string) (string, error) {
	b, err := c.swap(ctx, versionExchange, marshalVersion(mine))
	if err != nil {
		return "", err
	}
	theirs, err := unmarshalVersion(b)
	if err != nil {
		return "", c.fail(c.garbage(b))
	}
	if n, _ := parseVersion(theirs); n < oldestVersion {
		return "", c.fail(&Error{Peer: c.Peer(), Exchange: versionExchange, Kind: ErrVersion,
			Hint: fmt.Sprintf("it announces %s, and 5.70 is the oldest: install a perftest of 4.5 or later there", theirs)})
	}
	return theirs, nil
}

// garbage explains a first message that is not a version.
func (c *Conn) garbage(b []byte) *Error {
	e := &Error{Peer: c.Peer(), Exchange: versionExchange, Kind: ErrGarbage, Got: b,
		Hint: "is there another service at this port, or a port scanner?"}
	if name := foreign(b); name != "" {
		e.Hint = "this is " + name
	}
	return e
}

func marshalVersion(v string) []byte {
	b := make([]byte, versionBytes)
	copy(b, v)
	return b
}

// unmarshalVersion reads the first message: 16 bytes with a number such as 6.06 in ASCII, followed
// by at least one NUL. The bytes after the NUL have no meaning.
func unmarshalVersion(b []byte) (string, error) {
	if len(b) != versionBytes {
		return "", fmt.Errorf("a version has %d bytes, not %d", versionBytes, len(b))
	}
	text, _, ended := bytes.Cut(b, []byte{0})
	if _, ok := parseVersion(string(text)); !ok || !ended {
		return "", fmt.Errorf("%s is not a version such as 6.06", printable(b))
	}
	return string(text), nil
}

// parseVersion reads a version as the C tools do, as a decimal number, in
// hundredths: 6.1 is 610.
func parseVersion(s string) (hundredths int, ok bool) {
	if !versionPrefix([]byte(s)) || !bytes.Contains([]byte(s), []byte{'.'}) || s[len(s)-1] == '.' {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return int(math.Round(v * 100)), err == nil
}

// versionPrefix reports whether bytes can be the beginning of a version: one or two digits, a
// point, one to three digits, a NUL.
func versionPrefix(b []byte) bool {
	text, _, _ := bytes.Cut(b, []byte{0})
	whole, part, point := bytes.Cut(text, []byte{'.'})
	return len(whole) >= 1 && len(whole) <= 2 && len(part) <= 3 && digits(whole) && digits(part) && (point || len(text) == len(b))
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// peekVersion reads the first message to a server ahead, and fails as soon as the bytes cannot be a
// version.
func (c *Conn) peekVersion(ctx context.Context, limit time.Duration) error {
	defer c.limit(ctx, limit)()
	b := make([]byte, versionBytes)
	n := 0
	for n < len(b) {
		m, err := c.nc.Read(b[n:])
		n += m
		if n > 0 && !versionPrefix(b[:n]) {
			return c.garbage(b[:n])
		}
		if err != nil && n < len(b) {
			return c.silent(b[:n], err)
		}
	}
	if _, err := unmarshalVersion(b); err != nil {
		return c.garbage(b)
	}
	c.early = b
	return nil
}

// silent explains a connection that sent no complete first message.
func (c *Conn) silent(got []byte, err error) error {
	e := &Error{Peer: c.Peer(), Exchange: versionExchange, Kind: ErrGarbage, Got: got, Err: err,
		Hint: "it connected and closed, as port scanners and health checks do"}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.Err, e.Hint = nil, "it connected and sent nothing that could be a version"
	}
	return e
}

// swapInt exchanges a positive number.
func (c *Conn) swapInt(ctx context.Context, what string, mine, most int) (int, error) {
	b, err := c.swap(ctx, what, binary.BigEndian.AppendUint32(nil, uint32(mine)))
	if err != nil {
		return 0, err
	}
	v := binary.BigEndian.Uint32(b)
	if v < 1 || v > uint32(most) {
		return 0, c.fail(&Error{Peer: c.Peer(), Exchange: what, Kind: ErrGarbage, Got: b,
			Hint: fmt.Sprintf("%d is not between 1 and %d bytes", v, most)})
	}
	return int(v), nil
}

// swapMTU exchanges the MTU as the digit of the verbs' enumeration.
func (c *Conn) swapMTU(ctx context.Context, mine int) (int, error) {
	const what = "the MTU"
	d, _ := mtuDigit(mine)
	b, err := c.swap(ctx, what, []byte{d, 0})
	if err != nil {
		return 0, err
	}
	if b[0] < '1' || b[0] > '5' || b[1] != 0 {
		return 0, c.fail(&Error{Peer: c.Peer(), Exchange: what, Kind: ErrMismatch, Got: b,
			Hint: "it is a digit from 1 to 5; a side that tests raw Ethernet sends none"})
	}
	return 128 << (b[0] - '0'), nil
}

// mtuDigit is the verbs' enumeration value of an MTU, as a digit.
func mtuDigit(mtu int) (byte, bool) {
	for d := byte('1'); d <= '5'; d++ {
		if 128<<(d-'0') == mtu {
			return d, true
		}
	}
	return '0', false
}

// NeedsParams reports whether the two sides exchange the parameter block after their Hello: 6.28
// always requires it, later versions exchange it if both have it.
func (h Hello) NeedsParams(peer Hello) bool {
	m, _ := parseVersion(h.Version)
	p, _ := parseVersion(peer.Version)
	return m == 628 || p == 628 || m > 628 && p > 628
}
