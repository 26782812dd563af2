package coll

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
)

// A shrinking is what the lowest of the ranks that stay tells the others.
type shrinking struct {
	Number  int    `json:"number"` // of Shrinks of the communicator
	Without []int  `json:"without"`
	ID      []byte `json:"id"` // of the new communicator
}

// shrinks are what was told, by whom and by number.
type shrinks struct {
	mu     sync.Mutex
	called int
	told   map[[2]int]shrinking
	news   chan struct{} // closed and made anew when there is more
}

// Shrink makes a communicator of this one's ranks without some of them, in the order
// that they have here. The ranks that stay call it with the same list; those of the
// list do not, and may be dead. The communicator may have failed. It stays as it is,
// to be destroyed or aborted; but with abort what is enqueued on it ends first, with
// whatever result, and it is of no more use.
func (c *Comm) Shrink(ctx context.Context, without []int, abort bool) (*Comm, error) {
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
	case c.closed.Load():
		return nil, c.refuse(ErrDestroyed)
	}
	if abort {
		c.fault.Set(c.errorOf(InvalidUsage, op, "%w", ErrAborted))
		if d := c.accel.Load(); d != nil {
			d.Abort(c.fault.Err())
		}
	}
	s := &c.shrinks
	s.mu.Lock()
	s.called++
	number := s.called
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, shrinkTime)
	defer cancel()
	var id UniqueID
	if leader := members[0]; leader == c.rank {
		root, err := bootstrap.NewRoot(c.cfg.boot)
		if err != nil {
			return nil, c.errorOf(SystemError, op, "%w", err)
		}
		id = root.ID()
		defer root.Close() // when all have joined, or one will not
		go c.tellShrinking(ctx, shrinking{number, without, id[:]})
	} else {
		t, err := s.wait(ctx, leader, number)
		if err != nil {
			e := c.errorOf(Timeout, op, "rank %d, the lowest that stays, has not called it: %w", leader, err)
			e.Peer = leader
			return nil, e
		}
		if !slices.Equal(t.Without, without) || len(t.ID) != len(id) {
			e := c.errorOf(InvalidUsage, op, "rank %d shrinks the communicator without ranks %v, and this rank without %v", leader, t.Without, without)
			e.Peer = leader
			return nil, e
		}
		copy(id[:], t.ID)
	}
	return CommInitRank(ctx, len(members), id, slices.Index(members, c.rank), c.forChild())
}

// shrinkTime is how long ranks may come apart to a Shrink, and take to join. Some may
// be dead without anybody knowing.
const shrinkTime = 2 * time.Minute

// tellShrinking tells, until all have joined: a report may be dropped.
func (c *Comm) tellShrinking(ctx context.Context, s shrinking) {
	payload, err := json.Marshal(report{Shrink: &s})
	if err != nil {
		panic(fmt.Sprintf("a report that is no JSON: %v", err))
	}
	for tick := time.NewTicker(500 * time.Millisecond); ; {
		c.net.Report(payload)
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// heard takes note of what a rank tells. It is called by the bootstrap.
func (s *shrinks) heard(from int, t shrinking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil {
		s.told = map[[2]int]shrinking{}
	}
	s.told[[2]int{from, t.Number}] = t
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// wait returns what a rank has told, or will.
func (s *shrinks) wait(ctx context.Context, from, number int) (shrinking, error) {
	for {
		s.mu.Lock()
		t, ok := s.told[[2]int{from, number}]
		if s.news == nil {
			s.news = make(chan struct{})
		}
		news := s.news
		s.mu.Unlock()
		if ok {
			return t, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return t, context.Cause(ctx)
		}
	}
}
