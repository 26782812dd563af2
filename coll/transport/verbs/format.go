//go:build cgo && linux

package verbs

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	rdma "github.com/assay-hpc/assay/internal/verbs"
)

// An immediate contains the low bits of the message's number, and the number of its
// parts.
const immBits = 24

// immediate encodes an immediate in network order.
func immediate(number uint32, parts int) uint32 {
	return netOrder(number&(1<<immBits-1) | uint32(parts)<<immBits)
}

// parseImmediate returns how many messages the message is ahead of number from, and the
// number of its parts.
func parseImmediate(imm, from uint32) (ahead uint32, parts int) {
	u := netOrder(imm)
	return (u - from) & (1<<immBits - 1), int(u >> immBits)
}

// netOrder converts a number to network order, or back.
func netOrder(u uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], u)
	return binary.NativeEndian.Uint32(b[:])
}

// A half describes one end of a connection to the other end.
type half struct {
	Name     string    `json:"name"` // of device and port, for errors
	MTU      rdma.MTU  `json:"mtu"`
	Ethernet bool      `json:"ethernet"`
	LID      uint16    `json:"lid"`
	GID      rdma.GID  `json:"gid"`
	QPs      []qpNames `json:"qps"`

	// Where the peer may write: the receiver's slots, the sender's credit.
	Address uint64 `json:"address"`
	Key     uint32 `json:"key"`
}

// qpNames contains a queue pair's number and the number of its first packet.
type qpNames struct {
	QPN uint32 `json:"qpn"`
	PSN uint32 `json:"psn"`
}

func (h *half) check() error {
	switch {
	case len(h.QPs) < 1 || len(h.QPs) > maxQPs:
		return fmt.Errorf("it has %d queue pairs; there are 1 to %d", len(h.QPs), maxQPs)
	case h.MTU.Bytes() == 0:
		return fmt.Errorf("there is no MTU %d", h.MTU)
	}
	return nil
}

func parseHalf(b []byte) (h half, err error) {
	if err := json.Unmarshal(b, &h); err != nil {
		return h, err
	}
	return h, h.check()
}
