package keep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Slot is the right of one keeper to have its node out of service, as the API server stores it.
// There are as many as nodes may be withdrawn at one time.
type Slot struct {
	Index   int
	Holder  string // name of the node; "": nobody
	Version string // another one after each write; "": it was never written
}

// ErrTaken says that a slot was written since it was read.
var ErrTaken = errors.New("another keeper was first")

// Slots are where all keepers of a cluster find the slots.
type Slots interface {
	// Nodes returns the number of nodes that have a keeper.
	Nodes(ctx context.Context) (int, error)
	// List returns the slots that were ever written.
	List(ctx context.Context) ([]Slot, error)
	// Write writes a slot if it still has the given version, and returns it with its new one. Its
	// error is ErrTaken if it has not.
	Write(ctx context.Context, s Slot) (Slot, error)
}

// A Share says how many nodes may be withdrawn at one time.
type Share struct {
	Percent float64 // of all nodes, rounded down
	Count   int     // if Percent is 0
}

// ParseShare reads "5%" or a number.
func ParseShare(s string) (Share, error) {
	if percent, ok := strings.CutSuffix(s, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(p > 0 && p <= 100) {
			return Share{}, fmt.Errorf("%q is no share above 0%% and up to 100%%", s)
		}
		return Share{Percent: p}, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return Share{}, fmt.Errorf("%q is neither a share of the nodes, such as 5%%, nor a number of them from 1 on", s)
	}
	return Share{Count: n}, nil
}

// Of returns how many of a number of nodes that are: one at least.
func (s Share) Of(nodes int) int {
	if s.Percent == 0 {
		return max(s.Count, 1)
	}
	return max(int(float64(nodes)*s.Percent/100), 1)
}

// A sighting is when this process first saw a version of a slot. Clocks of nodes differ, so that
// only this shows for how long a holder has been silent.
type sighting struct {
	version string
	at      time.Time
}

// A turnstile is a keeper's view of the slots.
type turnstile struct {
	seen  map[int]sighting
	held  *Slot
	since time.Time // held since
	// untold is since when the site could not be told how the node is without the slot, which is no
	// longer needed.
	untold time.Time
	// free is since when looks found a free slot, except a single one now and then; none is
	// whether the last look found none.
	free time.Time
	none bool
}

// silence is the time after which a holder that writes nothing is dead: longer than a
// certification, and than some turns that come late.
func (k *Keeper) silence() time.Duration {
	return k.Limit + k.Settle + 3*k.Every + time.Minute
}

// enter takes a slot, or writes the one that this node has again. Who is patient takes a slot only
// if one was free at two looks, so that those go first who need it for minutes, and never the first
// of several. One slot for several nodes must have been free for as long as one who is patient may have
// it, so that half of the time is left to the others.
func (k *Keeper) enter(ctx context.Context, patient bool) (bool, error) {
	t := &k.turnstile
	t.untold = time.Time{}
	if t.held != nil {
		if kept, err := k.renew(ctx); kept || err != nil {
			return kept, err
		} // another keeper has it, or this one's last write was done without an answer
	}
	nodes, err := k.Slots.Nodes(ctx)
	if err != nil {
		return false, err
	}
	list, err := k.Slots.List(ctx)
	if err != nil {
		return false, err
	}
	limit := k.Share.Of(nodes)
	free := map[int]Slot{}
	for i := range limit {
		free[i] = Slot{Index: i}
	}
	taken := 0
	for _, s := range list {
		switch {
		case s.Holder == k.Node: // of this keeper before it was started again
			t.held, t.since = &s, k.Now()
			return k.renew(ctx)
		case k.alive(s):
			taken++
			delete(free, s.Index)
		case s.Index < limit:
			free[s.Index] = s
		}
	}
	if patient && limit > 1 {
		delete(free, 0)
	}
	if taken >= limit || len(free) == 0 {
		if t.none { // longer than by a certification
			t.free = time.Time{}
		}
		t.none = true
		return false, nil
	}
	t.none = false
	if patient {
		first, rest := t.free.IsZero(), time.Duration(0)
		if first {
			t.free = k.Now()
		}
		if limit == 1 && nodes > 1 {
			rest = k.MaxAge / drains
		}
		if first || k.Now().Sub(t.free) < rest {
			return false, nil
		}
	}
	t.free = time.Time{}
	candidates := slices.Sorted(maps.Keys(free))
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	for _, i := range candidates[:min(len(candidates), 3)] {
		s := free[i]
		s.Holder = k.Node
		if s, err = k.Slots.Write(ctx, s); err == nil {
			t.held, t.since = &s, k.Now()
			return true, nil
		}
		if !errors.Is(err, ErrTaken) {
			return false, err
		}
	}
	return false, nil
}

// alive reports whether a slot's holder has written it lately.
func (k *Keeper) alive(s Slot) bool {
	t := &k.turnstile
	if t.seen == nil {
		t.seen = map[int]sighting{}
	}
	if t.seen[s.Index].version != s.Version {
		t.seen[s.Index] = sighting{s.Version, k.Now()}
	}
	return s.Holder != "" && k.Now().Sub(t.seen[s.Index].at) < k.silence()
}

// renew writes the held slot again. If another keeper has it, because this one was silent for too
// long, it is lost.
func (k *Keeper) renew(ctx context.Context) (bool, error) {
	t := &k.turnstile
	s, err := k.Slots.Write(ctx, *t.held)
	switch {
	case errors.Is(err, ErrTaken):
		t.held = nil
		return false, nil
	case err != nil:
		return false, err
	}
	t.held = &s
	return true, nil
}

// leave gives the held slot back, if there is one. One that cannot be given back expires.
func (k *Keeper) leave(ctx context.Context) error {
	t := &k.turnstile
	if t.held == nil {
		return nil
	}
	s := *t.held
	s.Holder, t.held = "", nil
	if _, err := k.Slots.Write(ctx, s); err != nil && !errors.Is(err, ErrTaken) {
		return err
	}
	return nil
}
