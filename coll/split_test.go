package coll

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
)

// TestSplitKeys: keys may be anything, and their differences more than an int
// holds.
func TestSplitKeys(t *testing.T) {
	keys := []int{math.MaxInt, math.MinInt, 0, -1, math.MaxInt - 1}
	want := []int{4, 0, 2, 1, 3}
	withRanks(t, len(keys), testConfig(), func(c *Comm) error {
		s, err := c.Split(context.Background(), 0, keys[c.Rank()], Child{})
		if err != nil {
			return err
		}
		if s.Rank() != want[c.Rank()] {
			t.Errorf("key %d: rank %d; want %d", keys[c.Rank()], s.Rank(), want[c.Rank()])
		}
		if err := sumOnce(s, 100); err != nil {
			return err
		}
		return s.Destroy()
	})
}

// TestSplitGivenUp: when one rank's patience ends, the others do not wait until
// theirs does.
func TestSplitGivenUp(t *testing.T) {
	comms, err := CommInitAll(context.Background(), 3, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if r == 1 {
				cancel()
			}
			_, errs[r] = c.Split(ctx, 0, 0, Child{})
		})
	}
	wg.Wait()
	for r, err := range errs {
		if err == nil || r != 1 && (CodeOf(err) != RemoteError || !strings.Contains(err.Error(), "rank 1 gave up")) {
			t.Errorf("rank %d: %v; want an error that names rank 1", r, err)
		}
	}
	for _, c := range comms {
		_ = c.Abort()
	}
}

// TestChild: a child has the settings that it is given, or its parent's.
func TestChild(t *testing.T) {
	cfg := testConfig()
	cfg.Name = "parent"
	comms, err := CommInitAll(t.Context(), 2, cfg)
	if err != nil {
		t.Fatal(err)
	}
	split := func(as Child) []*Comm {
		t.Helper()
		children, errs := make([]*Comm, 2), make([]error, 2)
		var wg sync.WaitGroup
		for r, c := range comms {
			wg.Go(func() { children[r], errs[r] = c.Split(t.Context(), 0, 0, as) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		return children
	}
	parent := comms[0].cfg
	same := split(Child{})
	if got := same[0].cfg; got.name != "parent" || got.MaxChannels != parent.MaxChannels {
		t.Errorf("a child like its parent has %q, %d channels", got.name, got.MaxChannels)
	}
	other := split(Child{Environ: []string{"NCCL_MAX_NRINGS=3", "NCCL_COMM_ID=127.0.0.1:1"}, Name: "child"})
	if got := other[1].cfg; got.name != "child" || got.MaxChannels != 3 || parent.MaxChannels == 3 || got.CommID != "" {
		t.Errorf("a child of its own has %q, %d channels, the ID %q", got.name, got.MaxChannels, got.CommID)
	}
	if _, err := comms[0].Split(t.Context(), 0, 0, Child{Environ: []string{"ASSAY_TIMEOUT=30s"}}); CodeOf(err) != InvalidArgument {
		t.Errorf("a setting that is none: %v", err)
	}
	for _, all := range [][]*Comm{same, other, comms} {
		destroyAll(t, all)
	}
}
