package verbs

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Transport is the transport service of a QP.
type Transport int

// The numbers are libibverbs'.
const (
	RC Transport = 2 // reliable connection
	UC Transport = 3 // unreliable connection
	UD Transport = 4 // unreliable datagram
)

func (t Transport) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	}
	return fmt.Sprintf("transport %d", int(t))
}

// A qpState is a QP's state.
type qpState int

// The numbers are libibverbs'.
const (
	stateReset qpState = iota
	stateInit
	stateRTR // ready to receive
	stateRTS // ready to send
	stateSQD // send queue drained
	stateSQE // send queue in error
	stateErr
)

func (s qpState) String() string {
	return name(int(s), "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
}

func name(i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return strconv.Itoa(i)
	}
	return names[i]
}

// Access is a set of operations that are allowed on a memory region, or through a QP.
type Access int

// The numbers are libibverbs'.
const (
	LocalWrite      Access = 1 << 0
	RemoteWrite     Access = 1 << 1
	RemoteRead      Access = 1 << 2
	RemoteAtomic    Access = 1 << 3
	OnDemand        Access = 1 << 6  // pages are mapped when they are accessed, and not locked
	RelaxedOrdering Access = 1 << 20 // PCIe writes may overtake others; ignored if not supported
)

// An MTU is libibverbs' number of a path's packet size: 1 is 256 bytes, 5 is 4096.
type MTU int

// MTUOf returns the MTU of a size in bytes, 0 if there is none.
func MTUOf(bytes int) MTU {
	for m := MTU(1); m <= 5; m++ {
		if m.Bytes() == bytes {
			return m
		}
	}
	return 0
}

// Bytes returns the size in bytes, 0 for an invalid MTU.
func (m MTU) Bytes() int {
	if m < 1 || m > 5 {
		return 0
	}
	return 128 << m
}

// A portState is the logical state of a port.
type portState int

// portActive is libibverbs' number.
const portActive portState = 4

func (s portState) String() string {
	return name(int(s), "NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
}

// A GID is a port's address, as it goes over the wire.
type GID [16]byte

// parseGID parses the form of sysfs: eight groups of four hexadecimal digits.
func parseGID(s string) (g GID, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(s), ":", ""))
	if err != nil || len(b) != len(g) {
		return g, fmt.Errorf("%.60q is no GID such as fe80:0000:0000:0000:0011:22ff:fe33:4455", s)
	}
	copy(g[:], b)
	return g, nil
}

// String returns the IPv6 form, or the IPv4 form if the GID is IPv4-mapped: an address that a
// person can ping.
func (g GID) String() string { return netip.AddrFrom16(g).Unmap().String() }

// IsIPv4 reports whether the GID is an IPv4 address: ::ffff:a.b.c.d.
func (g GID) IsIPv4() bool { return netip.AddrFrom16(g).Is4In6() }

// IsZero reports whether the GID is zero, as in empty table entries.
func (g GID) IsZero() bool { return g == GID{} }

// A GIDEntry is one of a port's addresses.
type GIDEntry struct {
	Index  int
	GID    GID
	RoCE   roce   // the version of packets to and from it, 1 or 2; 0: not known
	Netdev string // the interface it belongs to, if any
}

// A roce is a version of RoCE.
type roce int

func (r roce) String() string { return name(int(r), "unknown", "RoCE v1", "RoCE v2") }

// DefaultGID returns the index that perftest 4.5 uses without -x, and whether there is any. It goes
// through the table, and each entry that is better than the best one so far replaces it. An IPv4
// address is better than another one (with ipv6 it is the other way round), and within a family
// RoCE v2 is better than v1.
func DefaultGID(table []GIDEntry, ipv6 bool) (index int, ok bool) {
	var best GIDEntry
	for _, e := range table {
		if e.GID.IsZero() {
			continue
		}
		if ok && !better(e, best, ipv6) {
			continue
		}
		best, ok = e, true
	}
	return best.Index, ok
}

func better(e, than GIDEntry, ipv6 bool) bool {
	if e.GID.IsIPv4() != than.GID.IsIPv4() {
		return e.GID.IsIPv4() != ipv6
	}
	return e.RoCE > than.RoCE
}

// An opcode is the operation of a work request.
type opcode int32

// The numbers are libibverbs'.
const (
	opWrite opcode = iota
	opWriteImm
	opSend
	opSendImm
	opRead
	opCompSwap
	opFetchAdd
)

// Flags of a send request, as libibverbs numbers them.
const (
	Signaled uint32 = 1 << 1
	Inline   uint32 = 1 << 3
)

// A WC is a work completion, in libibverbs' layout.
type WC struct {
	ID          uint64
	Status      status
	Opcode      int32 // wcRecv and above are receives
	VendorError uint32
	Bytes       uint32 // valid for receives
	Imm         uint32 // in network order, valid with wcWithImm in Flags
	QPN, SrcQPN uint32
	Flags       uint32
	PKeyIndex   uint16
	SLID        uint16
	SL          uint8
	DLIDPath    uint8
}

// Bits of a completion's Opcode and Flags.
const (
	wcRecv    int32  = 1 << 7
	wcWithImm uint32 = 1 << 1
)

// An Event is an asynchronous event.
type Event struct {
	Type eventType
	QPN  uint32 // for events of a QP of this package, else 0
	Port int    // for events of a port, else 0
}

func (e Event) String() string {
	switch {
	case e.Port != 0:
		return fmt.Sprintf("%v on port %d", e.Type, e.Port)
	case e.QPN != 0:
		return fmt.Sprintf("%v on QP 0x%06x", e.Type, e.QPN)
	}
	return e.Type.String()
}

// Established reports that the first message of a connection arrived before this side was ready to
// send.
func (e Event) Established() bool { return e.Type == eventCommEst }

// Dead reports that the device has failed.
func (e Event) Dead() bool { return e.Type == eventDeviceDead }

// Down reports that the port lost its link.
func (e Event) Down() bool { return e.Type == eventPortDown }

// An eventType is libibverbs' number of an asynchronous event.
type eventType int

// The events that are handled.
const (
	eventQPFatal    eventType = 1
	eventCommEst    eventType = 4
	eventDeviceDead eventType = 8
	eventPortActive eventType = 9
	eventPortDown   eventType = 10
)

func (t eventType) String() string {
	return name(int(t), "CQ error", "QP fatal error", "QP request error", "QP access error", "communication established", "send queue drained",
		"path migrated", "path migration error", "device fatal error", "port active", "port error", "LID change", "P_Key change", "SM change",
		"SRQ error", "SRQ limit reached", "last WQE reached", "client reregister", "GID change", "WQ fatal error")
}

// roceVersion converts the type of a GID in sysfs. For an InfiniBand port sysfs also shows "IB/RoCE
// v1", which does not matter there.
func roceVersion(s string) roce {
	switch s {
	case "RoCE v2":
		return 2
	case "IB/RoCE v1":
		return 1
	}
	return 0
}
