package colltest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long ranks may take from one operation to the next before they count as stuck.
// It only serves to end tests that would never end.
const patience = 5 * time.Minute

// Run runs the suite on an engine. open creates a communicator of n ranks, with rank r as element
// r, and registers its cleanup with t. Each rank is used by one goroutine.
func Run(t *testing.T, o Options, open func(t *testing.T, n int) []Comm) {
	for _, n := range o.ranks(testing.Short()) {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			ops := o.plan(n, testing.Short())
			comms := open(t, n)
			if len(comms) != n {
				t.Fatalf("open gave %d ranks; want %d", len(comms), n)
			}
			if err := conform(comms, ops, patience); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d operations", len(ops))
		})
	}
}

// A walker runs the operations on one rank.
type walker struct {
	at   atomic.Int64 // index of the current operation, or through
	errs []error
}

const through = -1

// maxErrors limits the recorded errors of a rank: enough to see a pattern.
const maxErrors = 3

// conform runs the operations on all ranks side by side. A wrong result is recorded and the rank
// continues, because the others wait for it; an error of the engine ends the rank.
func conform(comms []Comm, ops []operation, patience time.Duration) error {
	for r, c := range comms {
		if c.Rank() != r || c.Size() != len(comms) {
			return fmt.Errorf("rank %d of %d says that it is %d of %d", r, len(comms), c.Rank(), c.Size())
		}
	}
	walkers := make([]walker, len(comms))
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() { walkers[r].walk(c, ops) })
	}
	errs := []error{watch(walkers, ops, &wg, patience)}
	for r := range walkers {
		if walkers[r].at.Load() == through { // else it is stuck, and may still write
			errs = append(errs, walkers[r].errs...)
		}
	}
	return errors.Join(errs...)
}

func (w *walker) walk(c Comm, ops []operation) {
	defer w.at.Store(through)
	for i, o := range ops {
		w.at.Store(int64(i))
		err := o.run(c)
		if err != nil && len(w.errs) < maxErrors {
			w.errs = append(w.errs, fmt.Errorf("rank %d of %d, %v: %w", c.Rank(), c.Size(), o, err))
		}
		if _, wrong := errors.AsType[*wrongResult](err); err != nil && !wrong {
			return
		}
	}
}

// watch waits for all ranks as long as there is progress. Without progress it returns where each
// rank is; their goroutines remain.
func watch(walkers []walker, ops []operation, wg *sync.WaitGroup, patience time.Duration) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	last := ""
	for {
		select {
		case <-done:
			return nil
		case <-time.After(patience):
		}
		now := where(walkers, ops)
		if now == last {
			return fmt.Errorf("no rank moves on:\n%s", now)
		}
		last = now
	}
}

func where(walkers []walker, ops []operation) string {
	var b strings.Builder
	for r := range walkers {
		if at := walkers[r].at.Load(); at != through {
			fmt.Fprintf(&b, "rank %d is in operation %d, %v\n", r, at, ops[at])
		} else {
			fmt.Fprintf(&b, "rank %d is through\n", r)
		}
	}
	return b.String()
}
