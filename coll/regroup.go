package coll

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
)

// Shrink and Grow create communicators with other ranks than the parent. One of the parent's
// ranks tells the others where the new ranks meet, by a report: a report reaches all ranks that
// are alive, and waits for none.

// A regrouping is a rank's call of Shrink or Grow, as it is reported to the others.
type regrouping struct {
	Number  int    `json:"number"`            // counts the Shrinks and Grows of the communicator
	Without []int  `json:"without,omitempty"` // Shrink
	Size    int    `json:"size,omitempty"`    // Grow
	ID      []byte `json:"id"`                // of the new communicator
}

// same reports whether two ranks made the same call.
func (r regrouping) same(o regrouping) bool {
	return r.Size == o.Size && slices.Equal(r.Without, o.Without)
}

func (r regrouping) String() string {
	if r.Size > 0 {
		return fmt.Sprintf("grows the communicator to %d ranks", r.Size)
	}
	return fmt.Sprintf("shrinks the communicator without ranks %v", r.Without)
}

// regroupings are the reported regroupings, by number.
type regroupings struct {
	mu     sync.Mutex
	called int
	told   map[int]regrouping
	by     map[int]int
	news   chan struct{} // closed when another one arrives; nil: nothing waits
}

// regroupTime limits the time between the ranks' calls of a Shrink or Grow, and the time to join.
// Some ranks may be dead unnoticed.
const regroupTime = 2 * time.Minute

// Revoke ends what is enqueued on device memory, at all ranks; the results are undefined.
// Afterwards no operation is possible except a Shrink; Destroy or Abort frees the communicator.
// Revoke does not wait.
func (c *Comm) Revoke() error {
	const op = "CommRevoke"
	if c.closed.Load() {
		return c.refuse(op, ErrDestroyed)
	}
	c.fault.Set(c.errorOf(InvalidUsage, op, "%w", ErrAborted))
	if d := c.accel.Load(); d != nil {
		d.Abort(c.fault.Err())
	}
	return nil
}

// Shrink creates a communicator of this one's ranks without some of them, in the same order. The
// ranks that stay call it with the same list; those in the list do not, and may be dead. This
// communicator may have failed or been revoked. It stays as it is, and must still be destroyed or
// aborted.
func (c *Comm) Shrink(ctx context.Context, without []int, as Child) (*Comm, error) {
	const op = "CommShrink"
	without = slices.Compact(slices.Sorted(slices.Values(without)))
	var members []int
	for r := range c.size {
		if !slices.Contains(without, r) {
			members = append(members, r)
		}
	}
	switch {
	case c.size-len(members) != len(without):
		return nil, c.errorOf(InvalidArgument, op, "the list %v has ranks that there are not: there are %d", without, c.size)
	case !slices.Contains(members, c.rank):
		return nil, c.errorOf(InvalidArgument, op, "the rank itself is in the list %v: only those that stay call it", without)
	}
	cfg, err := c.forChild(op, as)
	if err != nil {
		return nil, err
	}
	var id *UniqueID
	if members[0] == c.rank {
		root, err := bootstrap.NewRoot(c.cfg.boot)
		if err != nil {
			return nil, c.errorOf(SystemError, op, "%w", err)
		}
		defer root.Close() // by then all have joined, or one has failed to
		own := root.ID()
		id = &own
	}
	return c.regroup(ctx, op, regrouping{Without: without}, id, len(members), slices.Index(members, c.rank), cfg)
}

// Grow creates a communicator of n ranks, of which the first are this one's. All ranks of this
// one call it, one of them with an ID of GetUniqueID, the others with nil. The new ranks join
// with CommInitRank and that ID.
func (c *Comm) Grow(ctx context.Context, n int, id *UniqueID, as Child) (*Comm, error) {
	const op = "CommGrow"
	if n <= c.size {
		return nil, c.errorOf(InvalidArgument, op, "%d ranks are not more than the %d that there are", n, c.size)
	}
	cfg, err := c.forChild(op, as)
	if err != nil {
		return nil, err
	}
	return c.regroup(ctx, op, regrouping{Size: n}, id, n, c.rank, cfg)
}

// regroup sends the ID to the others, or waits for it from the rank that has it, and joins.
func (c *Comm) regroup(ctx context.Context, op string, mine regrouping, id *UniqueID, size, rank int, cfg Config) (*Comm, error) {
	if c.closed.Load() {
		return nil, c.refuse(op, ErrDestroyed)
	}
	g := &c.regroupings
	g.mu.Lock()
	g.called++
	mine.Number = g.called
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, regroupTime)
	defer cancel()
	if id != nil {
		mine.ID = id[:]
		go c.tellRegrouping(ctx, mine)
	} else {
		theirs, by, err := g.wait(ctx, mine.Number)
		if err != nil {
			return nil, c.errorOf(Timeout, op, "it is not known where the new ranks meet: %w", err)
		}
		if !mine.same(theirs) || len(theirs.ID) != len(UniqueID{}) {
			e := c.errorOf(InvalidUsage, op, "rank %d %v; this rank %v", by, theirs, mine)
			e.Peer = by
			return nil, e
		}
		id = (*UniqueID)(theirs.ID)
	}
	return CommInitRank(ctx, size, *id, rank, cfg)
}

// tellRegrouping repeats the report until all have joined, because a report may be dropped.
func (r *ranks) tellRegrouping(ctx context.Context, called regrouping) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.report(report{Regroup: &called})
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// heard records a rank's report. The bootstrap calls it.
func (g *regroupings) heard(from int, r regrouping) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told == nil {
		g.told, g.by = map[int]regrouping{}, map[int]int{}
	}
	g.told[r.Number], g.by[r.Number] = r, from
	if g.news != nil {
		close(g.news)
		g.news = nil
	}
}

// wait returns the regrouping with a number, and the rank that reported it, once it has arrived.
func (g *regroupings) wait(ctx context.Context, number int) (r regrouping, by int, err error) {
	for {
		g.mu.Lock()
		r, ok := g.told[number]
		by := g.by[number]
		if g.news == nil {
			g.news = make(chan struct{})
		}
		news := g.news
		g.mu.Unlock()
		if ok {
			return r, by, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return r, by, context.Cause(ctx)
		}
	}
}
