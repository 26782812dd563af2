package wire

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// An Address describes one of a side's queue pairs. The same records are used as barriers later.
type Address struct {
	LID      uint16 // 0 on RoCE
	OutReads int    // RDMA reads in flight that this side accepts, 1 for other tests; 0..65535
	QPN, PSN uint32 // 24 bits each: number, and the first packet's sequence number
	RKey     uint32 // of the memory that the peer may access, see VAddr
	VAddr    uint64 // start of that memory
	GID      [16]byte
	HasGID   bool   // the long form: this side uses a GID
	GIDIndex int    // its index; over rdma_cm only
	SRQN     uint32 // shared receive queue, 0 for none
}

// The two forms of a record, in bytes including the NUL at the end.
const (
	longRecord  = 108
	shortRecord = 59
)

// An addressReader parses colon-separated hex fields of fixed width.
type addressReader struct {
	b   []byte
	at  int
	err error
}

// check returns an error for a value that does not fit its field.
func (a Address) check() error {
	for _, f := range []struct {
		name  string
		value int64
		most  int64
	}{
		{"outstanding reads", int64(a.OutReads), 1<<16 - 1}, {"QP number", int64(a.QPN), 1<<24 - 1}, {"PSN", int64(a.PSN), 1<<24 - 1},
	} {
		if f.value < 0 || f.value > f.most {
			return fmt.Errorf("%w: the %s %d is not between 0 and %d", ErrLocal, f.name, f.value, f.most)
		}
	}
	return nil
}

// Marshal returns the record, in the long form if the address has a GID.
func (a Address) Marshal() ([]byte, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	b := fmt.Appendf(make([]byte, 0, longRecord), "%04x:%04x:%06x:%06x:%08x:%016x:", a.LID, a.OutReads, a.QPN, a.PSN, a.RKey, a.VAddr)
	if !a.HasGID {
		return fmt.Appendf(b, "%08x\x00", a.SRQN), nil
	}
	for _, c := range a.GID {
		b = fmt.Appendf(b, "%02x:", c)
	}
	return fmt.Appendf(b, "%08x:\x00", a.SRQN), nil
}

// parseAddress reads a record of either form, strictly: the digits are lower case, each field has
// its width, the NUL is the last byte. Marshal reproduces every accepted record byte by byte.
func parseAddress(b []byte) (Address, error) {
	if len(b) != longRecord && len(b) != shortRecord {
		return Address{}, fmt.Errorf("an address record has %d or %d bytes, not %d", shortRecord, longRecord, len(b))
	}
	r := addressReader{b: b}
	a := Address{
		LID: uint16(r.hex("LID", 4)), OutReads: int(r.hex("outstanding reads", 4)), QPN: uint32(r.hex("QP number", 6)),
		PSN: uint32(r.hex("PSN", 6)), RKey: uint32(r.hex("remote key", 8)), VAddr: r.hex("address", 16), HasGID: len(b) == longRecord,
	}
	if a.HasGID {
		for i := range a.GID {
			a.GID[i] = byte(r.hex("GID", 2))
		}
		a.SRQN = uint32(r.hex("SRQ number", 8))
	} else {
		a.SRQN = uint32(r.digits("SRQ number", 8))
	}
	r.byte("end", 0)
	return a, r.err
}

// hex reads a field and the colon after it.
func (r *addressReader) hex(field string, width int) uint64 {
	v := r.digits(field, width)
	r.byte(field, ':')
	return v
}

func (r *addressReader) digits(field string, width int) uint64 {
	if r.err != nil {
		return 0
	}
	text := r.b[r.at : r.at+width]
	r.at += width
	if !lowerHex(text) {
		r.err = fmt.Errorf("the %s %q is not %d hex digits", field, text, width)
		return 0
	}
	v, err := strconv.ParseUint(string(text), 16, 64)
	r.err = err
	return v
}

func (r *addressReader) byte(field string, want byte) {
	if r.err != nil {
		return
	}
	if r.b[r.at] != want {
		r.err = fmt.Errorf("byte %d, behind the %s, is %q, not %q", r.at, field, r.b[r.at], want)
	}
	r.at++
}

func lowerHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Reaches returns an error if one side uses an IPv4-mapped GID and the other an IPv6 one: they
// would connect and then lose every packet. The C tools make the same check after the first
// records.
func (a Address) Reaches(peer Address) error {
	if !a.HasGID || !peer.HasGID {
		return nil
	}
	here, there := netip.AddrFrom16(a.GID), netip.AddrFrom16(peer.GID)
	if here.Is4In6() == there.Is4In6() {
		return nil
	}
	return fmt.Errorf("%w: the GID is %v here and %v at the peer, of which one is IPv4 and one IPv6: choose alike with -x on both sides (harness ib devices lists GIDs)",
		ErrMismatch, here, there)
}

// Duplicate returns a remark if both sides have the same GID and are not known to be on one host, or
// "". Two hosts with one address do not reach each other; two containers that share a device do.
func (a Address) Duplicate(peer Address, sameHost bool) string {
	if sameHost || !a.HasGID || !peer.HasGID || a.GID != peer.GID {
		return ""
	}
	return fmt.Sprintf("both sides have the GID %v: on two hosts this is a duplicate address, and nothing arrives: give each interface its own, or choose another GID with -x (harness ib devices lists them)",
		netip.AddrFrom16(a.GID).Unmap())
}

// SameHost reports whether the peer's address is one of this host's own.
func (c *Conn) SameHost() bool {
	remote, _, err := net.SplitHostPort(c.Peer())
	if err != nil {
		return true // not known
	}
	at, err := netip.ParseAddr(remote)
	if err != nil || at.IsLoopback() {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		return ok && ip.Unmap() == at.WithZone("").Unmap()
	})
}

// SwapFor makes one exchange of records. The received record must have the same form as the sent
// one. Errors contain what: "QP 1's address record", "the barrier before the measurement".
func (c *Conn) SwapFor(ctx context.Context, what string, mine Address) (Address, error) {
	b, err := c.record(mine)
	if err != nil {
		return Address{}, fmt.Errorf("%s: %w", what, err)
	}
	got, err := c.swap(ctx, what, b)
	if err != nil {
		return Address{}, err
	}
	theirs, err := c.parseRecord(got)
	if err != nil {
		return Address{}, c.mismatch(what, got, err)
	}
	return theirs, nil
}
