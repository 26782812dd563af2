//go:build cgo && linux

package probe

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/assay-hpc/assay/internal/verbs"
)

// info returns the content of the header.
func (r *runner) info() Info {
	c, e := r.c, r.e
	link := "IB"
	if e.port.Ethernet {
		link = "Ethernet"
	}
	i := Info{
		Device: e.ctx.Name(), Transport: "IB", Link: link, GIDIndex: e.gid.Index, MTU: e.mtu.Bytes(), TxDepth: c.SendDepth(), RxDepth: c.ReceiveDepth(),
		CQModeration: c.CQMod(), Inline: e.inline(), OutReads: e.outReads(), Relaxed: c.RelaxedOrdering(),
		Local: e.mine, Remote: e.peers, Peer: r.conn.Peer(), PeerVersion: r.peerVersion,
	}
	return i
}

func (r *runner) row(out *Outcome, row Row) {
	out.Rows = append(out.Rows, row)
	r.ev.TellRow(row)
}

// result makes the line of one size.
func (r *runner) result(size uint64, t transfer) BandwidthResult {
	messages, each := t.sent, r.c.Iters()
	if !r.c.Sends() || r.c.Bidirectional && r.c.Receives() && r.c.Duration > 0 {
		// As in perftest: in a test with a duration, both directions are one sum.
		messages += t.received
	}
	each = cmp.Or(each, messages)
	b := averaged(size, each, messages, time.Duration(t.elapsed))
	if t.elapsed > 0 { // more precise than whole nanoseconds
		b.Rate = float64(messages) / t.elapsed * 1e9
		b.Average = b.Rate * float64(size)
	}
	if t.shortest > 0 && !math.IsInf(t.shortest, 1) {
		b.Peak = float64(size) / t.shortest * 1e9
	}
	b.CPU = t.cpu
	return b
}

// swapReport exchanges results, and checks that the peer's is plausible. The peer may still measure.
func (r *runner) swapReport(ctx context.Context, own BandwidthResult) (BandwidthResult, error) {
	defer r.keep()()
	theirs, err := r.conn.SwapReport(ctx, own.Report(r.c.Gbits))
	if err != nil {
		return BandwidthResult{}, err
	}
	if err := theirs.Check(); err != nil {
		return BandwidthResult{}, err
	}
	return fromReport(theirs, r.c.Gbits), nil
}

// latencyResult makes the line of one size.
func (r *runner) latencyResult(size uint64, l latencies) LatencyResult {
	trips := r.c.RoundTrips()
	if l.posts == nil {
		_, sampled := r.c.Window()
		if l.elapsed > 0 { // from the first to the last counted message
			sampled = time.Duration(l.elapsed)
		}
		out := timedLatency(size, l.count, sampled, r.histogram(l.buckets), trips)
		out.Cycles = r.clock.rate
		return out
	}
	deltas := make([]int64, 0, len(l.posts))
	for i := 1; i < len(l.posts); i++ {
		deltas = append(deltas, int64(math.Round(r.clock.ns(l.posts[i]-l.posts[i-1]))))
	}
	out := newLatency(size, l.count, deltas, trips)
	out.Cycles = r.clock.rate
	return out
}

// histogram converts the loop's buckets of cycles, 32 for each power of two, to a histogram of
// nanoseconds. The count of each bucket is added at the middle of the bucket.
func (r *runner) histogram(buckets []uint32) *histogram {
	h := new(histogram)
	for i, n := range buckets {
		if n == 0 {
			continue
		}
		power, fraction := i/32, i%32
		middle := math.Ldexp(1+(float64(fraction)+0.5)/32, power)
		h.addMany(int64(math.Round(middle/r.clock.rate)), uint64(n))
	}
	return h
}

// patience is the longest time without progress.
func (r *runner) patience() time.Duration {
	return cmp.Or(r.c.Timeout, defaultPatience)
}

// defaultPatience is longer than a reliable QP retries: 4.096 µs << 14, 7 times and more.
const defaultPatience = 30 * time.Second

// available converts an error that means that there is no RDMA here to a *NotAvailable.
func available(err error) error {
	if errors.Is(err, verbs.ErrNoLibrary) {
		return &NotAvailable{err.Error()}
	}
	return err
}
