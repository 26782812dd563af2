//go:build cgo && linux

package verbs

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	rdma "github.com/assay-hpc/assay/perftest/verbs"
)

// An immediate has the message's number, without its upper bits, and how many
// parts it comes in.
const immBits = 24

// immediate makes one, in network order.
func immediate(number uint32, parts int) uint32 {
	return netOrder(number&(1<<immBits-1) | uint32(parts)<<immBits)
}

// parseImmediate returns how far its message is from a number, and the parts.
func parseImmediate(imm, from uint32) (ahead uint32, parts int) {
	u := netOrder(imm)
	return (u - from) & (1<<immBits - 1), int(u >> immBits)
}

// netOrder turns a number into network order, or back.
func netOrder(u uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], u)
	return binary.NativeEndian.Uint32(b[:])
}

// A half is what one end of a connection tells the other.
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

// qpNames are a queue pair's number and its first packet's.
type qpNames struct {
	QPN uint32 `json:"qpn"`
	PSN uint32 `json:"psn"`
}

func (h *half) check() error {
	switch {
	case len(h.QPs) < 1 || len(h.QPs) > MaxQPs:
		return fmt.Errorf("it has %d queue pairs; there are 1 to %d", len(h.QPs), MaxQPs)
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
