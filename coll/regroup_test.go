package coll

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
)

// TestShrink: ranks that stay go on among themselves, twice, whether the communicator
// is whole, has failed because a rank has died, or is ended on purpose.
func TestShrink(t *testing.T) {
	for name, c := range map[string]struct {
		dies, abort bool
	}{"whole": {}, "a rank is dead": {dies: true}, "revoked": {abort: true}} {
		t.Run(name, func(t *testing.T) {
			colltest.Watch(t)
			const n = 5
			comms, err := CommInitAll(t.Context(), n, testConfig())
			if err != nil {
				t.Fatal(err)
			}
			if c.dies {
				comms[0].net.Abort() // as if its process had ended
			}
			var wg sync.WaitGroup
			for r := range n {
				if r == 0 || r == 3 {
					continue
				}
				wg.Go(func() {
					for c.dies && comms[r].AsyncError() == nil {
						time.Sleep(time.Millisecond)
					}
					if c.abort {
						if err := comms[r].Revoke(); err != nil {
							t.Errorf("rank %d: %v", r, err)
						}
					}
					first, err := comms[r].Shrink(t.Context(), []int{3, 0}, Child{})
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
					if want := map[int]int{1: 0, 2: 1, 4: 2}[r]; first.Rank() != want || first.Size() != 3 {
						t.Errorf("rank %d is %d of %d; want %d of 3", r, first.Rank(), first.Size(), want)
					}
					if err := sumOnce(first, 1000); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
					if failed := comms[r].AsyncError() != nil; failed != (c.dies || c.abort) {
						t.Errorf("rank %d: the first communicator: %v", r, comms[r].AsyncError())
					}
					if r != 4 {
						second, err := first.Shrink(t.Context(), []int{2}, Child{})
						if err != nil {
							t.Errorf("rank %d: %v", r, err)
							return
						}
						if err := errors.Join(sumOnce(second, 10), second.Destroy()); err != nil {
							t.Errorf("rank %d: %v", r, err)
						}
					}
					if err := first.Destroy(); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				})
			}
			wg.Wait()
			for _, c := range comms {
				_ = c.Abort()
			}
		})
	}
}

// TestShrinkWrong: lists that cannot be, and lists that are not the same.
func TestShrinkWrong(t *testing.T) {
	withRanks(t, 3, testConfig(), func(c *Comm) error {
		for list, want := range map[string]struct {
			ranks []int
			say   string
		}{"too high": {[]int{3}, "has ranks that there are not"}, "negative": {[]int{-1}, "has ranks that there are not"}, "oneself": {[]int{c.Rank()}, "the rank itself is in the list"}} {
			if s, err := c.Shrink(t.Context(), want.ranks, Child{}); s != nil || CodeOf(err) != InvalidArgument || !strings.Contains(err.Error(), want.say) {
				t.Errorf("%s: %v, %v", list, s, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		switch c.Rank() {
		case 0:
			if _, err := c.Shrink(ctx, nil, Child{}); err == nil {
				t.Error("rank 0 went on alone")
			}
		case 1:
			if _, err := c.Shrink(ctx, []int{2}, Child{}); CodeOf(err) != InvalidUsage || !strings.Contains(err.Error(), "rank 0 shrinks the communicator without ranks []; this rank shrinks the communicator without ranks [2]") {
				t.Errorf("rank 1: %v", err)
			}
		}
		return nil
	})
}

// TestGrow: two ranks become four, and the two go on among themselves, too.
func TestGrow(t *testing.T) {
	colltest.Watch(t)
	comms, err := CommInitAll(t.Context(), 2, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	id, err := GetUniqueID(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for r := range 4 {
		wg.Go(func() {
			var grown *Comm
			var err error
			switch r {
			case 0:
				grown, err = comms[0].Grow(t.Context(), 4, nil, Child{})
			case 1:
				grown, err = comms[1].Grow(t.Context(), 4, &id, Child{})
			default:
				grown, err = CommInitRank(t.Context(), 4, id, r, testConfig())
			}
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			err = sumOnce(grown, 100)
			if r < 2 {
				err = errors.Join(err, sumOnce(comms[r], 100))
			}
			if err := errors.Join(err, grown.Destroy()); err != nil || grown.Rank() != r {
				t.Errorf("rank %d of the new ones is %d: %v", r, grown.Rank(), err)
			}
		})
	}
	wg.Wait()
	for _, c := range comms {
		if _, err := c.Grow(t.Context(), 2, nil, Child{}); CodeOf(err) != InvalidArgument {
			t.Errorf("to two: %v", err)
		}
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	}
}
