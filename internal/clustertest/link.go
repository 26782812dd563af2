package clustertest

import (
	"fmt"
	"strings"
)

// A Link is what one does to packets.
type Link struct {
	Send, Receive         int     // bits a second; 0: as fast as the kernel is
	SendLoss, ReceiveLoss float64 // share of packets
}

// SetLink changes a host's link. What it sends is held back on its own side, what
// it receives on the switch's, as a real port does; the switch loses packets,
// before it holds them back.
func (h *Host) SetLink(l Link) {
	h.c.t.Helper()
	h.Link = l
	if h.machine == nil {
		return // comes with Boot
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

// queue is how much waits for a link before packets are lost: what TCP may have
// on its way, so that a rate alone loses none.
const queue = 8 << 20

// shape is a batch for tc.
func shape(device string, rate int) string {
	if rate == 0 {
		return ""
	}
	return fmt.Sprintf("qdisc replace dev %s root tbf rate %dbit burst 16kb limit %d\n", device, rate, queue)
}

// losses are the rules of all links.
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
