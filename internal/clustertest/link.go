package clustertest

import (
	"fmt"
	"strings"
)

// A Link describes what happens to the packets of a host.
type Link struct {
	Send, Receive         int     // bits per second; 0: as fast as the kernel is
	SendLoss, ReceiveLoss float64 // share of packets
}

// SetLink changes a host's link. Outgoing packets are delayed on the host's side, incoming ones on
// the switch's, as with a real port. The switch drops packets before it delays them.
func (h *Host) SetLink(l Link) {
	h.c.t.Helper()
	h.Link = l
	if h.fakeMachine == nil {
		return // Boot applies it
	}
	err := h.tc(shape("eth0", l.Send))
	if err == nil {
		err = h.c.hub.tc(shape(h.port(), l.Receive))
	}
	if err == nil {
		err = h.c.hub.nft(h.c.losses())
	}
	if err != nil {
		h.c.t.Fatalf("%s: %v", h.Name, err)
	}
}

// queue is how many bytes may wait for a link before packets are dropped: enough for TCP's data in
// flight, so that a rate limit alone drops no packets.
const queue = 8 << 20

// shape returns a batch for tc.
func shape(device string, rate int) string {
	if rate == 0 {
		return ""
	}
	return fmt.Sprintf("qdisc replace dev %s root tbf rate %dbit burst 16kb limit %d\n", device, rate, queue)
}

// losses returns the nft rules for all links.
func (c *Cluster) losses() string {
	var b strings.Builder
	b.WriteString("flush chain bridge loss forward\n")
	for _, h := range c.Hosts {
		for _, way := range []struct {
			match string
			share float64
		}{{"iifname", h.Link.SendLoss}, {"oifname", h.Link.ReceiveLoss}} {
			if way.share > 0 {
				fmt.Fprintf(&b, "add rule bridge loss forward %s %s numgen random mod 10000 < %.0f drop\n", way.match, h.port(), way.share*10000)
			}
		}
	}
	return b.String()
}
