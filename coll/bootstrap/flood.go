package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/internal/meet"
)

// MaxReport is the maximum length of a report's payload, in bytes.
const MaxReport = 64 << 10

// Messages for all ranks go over all links: a rank that receives one for the first time
// forwards it to all neighbours except the one that sent it. A graph of ring and tree has
// less than 4 links per rank, so a flood costs less than 4 small frames per rank.

// died records a death, if it is new, and forwards it.
func (n *Net) died(e *transport.PeerError, from *link) {
	if !n.spread(e, from) {
		return
	}
	n.o.Logf("rank %d: %v", n.rank, e)
	if f := n.o.OnDeath; f != nil {
		what := fmt.Sprintf("%s (noticed by rank %d)", e.What, e.By)
		if e.Wait > 0 {
			what = fmt.Sprintf("%s since %v (noticed by rank %d)", e.What, e.Wait, e.By)
		}
		n.events.add(func() { f(e.Rank, what) })
	}
}

// spread floods a death and reports whether it was new. The death is queued for the
// neighbours before this rank does anything because of it, such as aborting.
func (n *Net) spread(e *transport.PeerError, from *link) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead[e.Rank] {
		return false
	}
	n.dead[e.Rank] = true
	n.floodLocked(frameDeath, encodeDeath(e), from)
	n.failLocked(e)
	return true
}

// floodLocked sends to all neighbours except from. It drops a report for a link that is
// far behind.
func (n *Net) floodLocked(k meet.Kind, p []byte, from *link) {
	for _, l := range n.links {
		if l != from && (k != frameReport || !l.full()) {
			l.send(k, p)
		}
	}
}

func encodeDeath(e *transport.PeerError) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(e.Rank))
	p = binary.BigEndian.AppendUint32(p, uint32(e.By))
	p = binary.BigEndian.AppendUint64(p, uint64(e.Wait))
	return append(p, e.What[:min(len(e.What), 512)]...)
}

func decodeDeath(p []byte, size int) (*transport.PeerError, error) {
	if len(p) < 16 {
		return nil, errors.New("it sent a death that is cut off")
	}
	rank, by := binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:])
	if rank >= uint32(size) || by >= uint32(size) {
		return nil, fmt.Errorf("it sent the death of rank %d, noticed by %d, of %d", rank, by, size)
	}
	return &transport.PeerError{
		Rank: int(rank), By: int(by), Wait: time.Duration(binary.BigEndian.Uint64(p[8:])), What: string(p[16:]),
	}, nil
}

func (n *Net) heardOfDeath(l *link, p []byte) error {
	e, err := decodeDeath(p, n.size)
	if err != nil {
		return err
	}
	n.died(e, l)
	return nil
}

// errAborted ends the link of a neighbour that aborted.
var errAborted = errors.New("it aborted")

// neighbourAborted: an abort counts as a death, unless it was caused by a death that the
// neighbour has already reported.
func (n *Net) neighbourAborted(l *link, p []byte) error {
	if len(p) == 1 && p[0] == 1 {
		l.left.Store(true)
	}
	return errAborted
}

// neighbourLeft fails the Net if an exchange still needs the neighbour, which has left.
func (n *Net) neighbourLeft(l *link) {
	if n.ops.active(l, n) {
		n.fail(fmt.Errorf("rank %d has left (its communicator was closed) during an exchange with rank %d", l.rank, n.rank))
	}
}

// Report sends payload, at most MaxReport bytes, to OnReport of all other ranks. It does
// not wait, and does not tell whether the report arrived: a report is dropped where a
// link is far behind. A rank's reports arrive in order.
func (n *Net) Report(payload []byte) {
	payload = payload[:min(len(payload), MaxReport)]
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reported++
	p := binary.BigEndian.AppendUint32(nil, uint32(n.rank))
	p = binary.BigEndian.AppendUint64(p, n.reported)
	n.floodLocked(frameReport, append(p, payload...), nil)
}

// Heard returns when OnDeath and OnReport have been called for all that this rank has heard so far,
// or after as long as Abort takes. Neither of them may call it.
func (n *Net) Heard() {
	done := make(chan struct{})
	n.events.add(func() { close(done) })
	select {
	case <-done:
	case <-time.After(abortTime):
	}
}

// Flush returns when the kernel has all reports, so that the process may end; it waits for at most
// so long as Abort does.
func (n *Net) Flush() {
	for end := time.Now().Add(abortTime); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		if !slices.ContainsFunc(n.links, func(l *link) bool { return !l.sent() }) {
			return
		}
	}
}

// heardReport: links preserve order and reports are forwarded when first seen, so a rank
// that has seen number 7 of another rank has seen all earlier ones that were not dropped.
func (n *Net) heardReport(l *link, p []byte) error {
	if len(p) < 12 {
		return errors.New("it sent a report that is cut off")
	}
	from, number := int(binary.BigEndian.Uint32(p)), binary.BigEndian.Uint64(p[4:])
	if from >= n.size {
		return fmt.Errorf("it sent a report of rank %d of %d", from, n.size)
	}
	n.mu.Lock()
	defer n.mu.Unlock() // held throughout, or the next report could overtake
	if from == n.rank || number <= n.reports[from] {
		return nil
	}
	n.reports[from] = number
	n.floodLocked(frameReport, p, l)
	if f := n.o.OnReport; f != nil {
		payload := append([]byte(nil), p[12:]...) // p is still being sent
		n.events.add(func() { f(from, payload) })
	}
	return nil
}
