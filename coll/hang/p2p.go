package hang

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// What verdicts say of Sends and Recvs.

// peer returns a count of Sends or Recvs with a rank.
func peer(of []uint32, r int) uint32 {
	if r < len(of) {
		return of[r]
	}
	return 0
}

// partnerless returns findings about the ranks, of those that may be the cause, that have not
// called a Send or Recv which another rank waits for.
func (g *hang) partnerless(may func(head) bool) (found []finding) {
	for r := range g.size {
		h, ok := g.heads[r]
		if !ok || !may(h) {
			continue
		}
		for q := range g.size {
			p := g.heads[q]
			if q == r || !p.waits() || len(p.For) > 0 && !slices.Contains(p.For, r) {
				continue
			}
			what, n := "", uint32(0)
			if n = peer(h.Rcvd, q); n < peer(p.Sent, r) {
				what = "Recv #%d from rank %d"
			} else if n = peer(h.Sent, q); n < peer(p.Rcvd, r) {
				what = "Send #%d to rank %d"
			}
			if what != "" {
				found = append(found, finding{Unmatched, []int{r}, fmt.Sprintf("%s has not called "+what+", which waits in %s: %s", g.name(r), n+1, q, p.in(), h.last())})
			}
		}
	}
	return found
}

// unmatched returns findings about Sends and Recvs that wait.
func (g *hang) unmatched() (found []finding) {
	if found = g.partnerless(head.waits); len(found) > 0 {
		return found
	}
	for r := range g.size {
		h, ok := g.heads[r]
		in := h.at()
		if !ok || !h.waits() || in.P2P == 0 || h.Graph {
			continue
		}
		peers := h.For
		if len(peers) == 0 && in.Peer != op.NoPeer {
			peers = []int{in.Peer}
		}
		with := "several ranks"
		if len(peers) > 0 {
			var texts []string
			for _, p := range peers {
				texts = append(texts, fmt.Sprintf("rank %d (%s)", p, g.heads[p].last()))
			}
			with = few(texts, " and ")
		}
		found = append(found, finding{Unmatched, slices.Clone(peers), fmt.Sprintf("%s waits in Sends or Recvs with %s", g.name(r), with)})
	}
	return found
}

// unreceived returns findings about the ranks that have not called a Recv whose Send has ended:
// what it has sent is in the way of later operations.
func (g *hang) unreceived() (found []finding) {
	for r := range g.size {
		h, ok := g.heads[r]
		for q := range g.size {
			if n := peer(h.Rcvd, q); ok && n < peer(g.heads[q].Sent, r) {
				found = append(found, finding{Unmatched, []int{r}, fmt.Sprintf("%s has not called Recv #%d from rank %d, which has sent it; the operation that has not ended is %s", g.name(r), n+1, q, g.first())})
			}
		}
	}
	return found
}
