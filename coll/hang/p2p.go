package hang

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// What verdicts say of Sends and Recvs.

// with returns a count of Sends or Recvs with a rank.
func with(of []uint32, r int) uint32 {
	if r < len(of) {
		return of[r]
	}
	return 0
}

// partnerless returns findings about the ranks, of those that may be the cause, that have not
// called a Send or Recv which another rank waits for.
func (d *diagnosis) partnerless(may func(Snapshot) bool) (found []finding) {
	for r := range d.processes {
		s, ok := d.snapshots[r]
		if !ok || !may(s) {
			continue
		}
		for q := range d.processes {
			p := d.snapshots[q]
			if q == r || !p.waits() || len(p.WaitsFor) > 0 && !slices.Contains(p.WaitsFor, r) {
				continue
			}
			what, n := "", uint32(0)
			if n = with(s.Rcvd, q); n < with(p.Sent, r) {
				what = "Recv #%d from rank %d"
			} else if n = with(s.Sent, q); n < with(p.Rcvd, r) {
				what = "Send #%d to rank %d"
			}
			if what != "" {
				found = append(found, finding{Unmatched, []int{r}, fmt.Sprintf("%s has not called "+what+", which waits in %s: %s", d.processes.name(r), n+1, q, p.currentText(), s.lastCall())})
			}
		}
	}
	return found
}

// unmatched returns findings about Sends and Recvs that wait.
func (d *diagnosis) unmatched() (found []finding) {
	if found = d.partnerless(Snapshot.waits); len(found) > 0 {
		return found
	}
	for r := range d.processes {
		s, ok := d.snapshots[r]
		in := s.current()
		if !ok || !s.waits() || in.P2P == 0 || s.Graph {
			continue
		}
		peers := s.WaitsFor
		if len(peers) == 0 && in.Peer != op.NoPeer {
			peers = []int{in.Peer}
		}
		with := "several ranks"
		if len(peers) > 0 {
			var texts []string
			for _, p := range peers {
				texts = append(texts, fmt.Sprintf("rank %d (%s)", p, d.snapshots[p].lastCall()))
			}
			with = join(texts, " and ")
		}
		found = append(found, finding{Unmatched, slices.Clone(peers), fmt.Sprintf("%s waits in Sends or Recvs with %s", d.processes.name(r), with)})
	}
	return found
}

// unreceived returns findings about the ranks that have not called a Recv whose Send has ended:
// what it has sent is in the way of later operations.
func (d *diagnosis) unreceived() (found []finding) {
	for r := range d.processes {
		s, ok := d.snapshots[r]
		for q := range d.processes {
			if n := with(s.Rcvd, q); ok && n < with(d.snapshots[q].Sent, r) {
				found = append(found, finding{Unmatched, []int{r}, fmt.Sprintf("%s has not called Recv #%d from rank %d, which has sent it; the operation that has not ended is %s", d.processes.name(r), n+1, q, d.oldest())})
			}
		}
	}
	return found
}
