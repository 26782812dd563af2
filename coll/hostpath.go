package coll

import (
	"context"
	"errors"
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/session"
	"github.com/assay-hpc/assay/coll/transport"
)

// A hostPath is a rank's connections, and its operations on host memory over them. The goroutine that
// runs an operation uses it.
type hostPath struct {
	shared *ranks
	links  *session.Links
	forced *forced
	watch  host.Watch
	waits  *hang.Waits

	seq    uint32 // of the last collective
	sent   []uint32
	rcvd   []uint32
	last   repeat
	chosen choose.Choice // for the last collective
	one    host.Run
	single [1]*host.Run
	pool   runPool // for groups
}

// open opens the connections. A lane's name precedes those of its connections.
func (h *hostPath) open(ctx context.Context, lane string) (err error) {
	h.links, err = h.shared.session.Open(ctx, lane)
	h.watch = host.Watch{
		Waiter: h.links.Waiter, Fault: h.shared.fault.Err, Timeout: h.shared.cfg.Timeout, Slow: hang.Slow,
		Late: func(_ int, header transport.Header, b host.Blocked, d time.Duration) { h.waits.Late(header, b, d) },
	}
	return err
}

// begin prepares an operation that was checked.
func (h *hostPath) begin(a *call) error {
	if err := h.start(&h.one, a); err != nil {
		return err
	}
	if a.Coll != pointToPoint {
		h.last = repeat{op: a.Op, plan: h.one.Plan(), inPlace: h.one.InPlace}
	}
	return nil
}

// start prepares a run for host.Drive.
func (h *hostPath) start(r *host.Run, a *call) error {
	o := host.Op{Op: a.Op, InPlace: overlap(a.Send, a.Recv)}
	if a.Coll == op.AllToAll { // no schedule does it in place
		o.InPlace, o.Keep = false, o.InPlace
	}
	switch {
	case a.Red != Avg || !a.Coll.Reduces():
	case a.Type.Float():
		o.Scale, o.Scaled = 1/float64(h.shared.size), true
	default:
		o.Divisor = h.shared.size
	}
	if !h.shared.session.Env.Unchecked {
		o.Header.Sign = a.Signature()
	}
	var (
		plan *host.Plan
		err  error
	)
	if a.Coll == pointToPoint {
		n := h.rcvd
		if a.sends() {
			n = h.sent
		}
		n[a.peer]++
		o.Header.Seq = n[a.peer]
		plan, err = h.links.PairPlan(a.peer, a.sends())
	} else {
		h.seq++
		o.Header.Seq = h.seq
		p := h.choose(a)
		o.Window, o.Copy = int(p.Window), p.Protocol == choose.LL
		h.chosen = p
		plan, err = h.links.Plan(a.Coll, p.Algorithm, a.Root, p.Channels)
	}
	if err != nil {
		return err
	}
	r.Start(plan, o)
	return nil
}

// choose returns the algorithm, protocol, channels and window for a collective.
func (h *hostPath) choose(a *call) choose.Choice {
	switch f := h.forced; {
	case f == nil:
		return h.links.Pick(&a.Op)
	case f.coll == a.Coll:
		return f.Choice
	}
	return h.links.Tuner.Pick(a.Coll, a.Bytes())
}

// drive runs the operation that h.one was started with.
func (h *hostPath) drive() error {
	_, err := host.Drive(h.single[:], &h.watch)
	if err == nil {
		h.waits.Over()
	}
	return err
}

// late turns a time-out into the error that says for whom the ranks wait.
func (h *hostPath) late(err error) error {
	late, ok := errors.AsType[*host.TimeoutError](err)
	if !ok {
		return err
	}
	peer, why := h.waits.Blame(late)
	return &Error{Code: Timeout, Rank: h.shared.rank, Peer: peer, Err: why}
}

// leftover returns an error if a peer sent a message that this rank never received.
func (h *hostPath) leftover() error {
	if peer, header, ok := h.links.Pending(); ok {
		e := h.shared.errorOf(InvalidUsage, "Destroy", "rank %d sent a message of %v that this rank never took", peer, header)
		e.Peer = peer
		return e
	}
	return nil
}

// A runPool has the runs of a group's operations, which the next group uses again.
type runPool struct {
	runs []*host.Run
	used int
}

func (p *runPool) next() *host.Run {
	if p.used == len(p.runs) {
		p.runs = append(p.runs, new(host.Run))
	}
	p.used++
	return p.runs[p.used-1]
}
