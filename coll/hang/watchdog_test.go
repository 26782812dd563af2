package hang

import (
	"context"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
)

// An idle executor has done everything.
type idle struct{ executor.Executor }

func (idle) Idle() bool               { return true }
func (idle) Progress() executor.State { return executor.State{} }

// watchdogs returns those of the ranks of a communicator, which hear one another's Reports. Each has
// called one collective.
func watchdogs(t *testing.T, size int) []*Watchdog {
	all := make([]*Watchdog, size)
	var processes Processes
	for r := range size {
		processes = append(processes, ThisProcess(r, -1))
	}
	for r := range size {
		c := &Comm{Rank: r, Size: size, Fault: new(transport.Fault), Broken: context.Background(), After: time.Hour, Verdicts: true}
		c.Send = func(report Report) {
			for to, w := range all {
				if to != r {
					w.Heard(r, report)
				}
			}
		}
		all[r] = NewWatchdog(c, idle{}, r, processes)
		all[r].Collective(1, (&op.Op{Type: elem.Int64, Count: 8, Root: op.NoPeer}).Signature(), 8, op.NoPeer, 0)
		t.Cleanup(all[r].Close)
	}
	return all
}

// TestReportedOnce: rank 1 gives its verdict while rank 0's poll is on its way. Rank 0 learns of it
// before it has rank 1's answer, so that it gives none. Answers to other polls do not count as
// answers to its own.
func TestReportedOnce(t *testing.T) {
	all := watchdogs(t, 3)
	reported := func(r int) uint64 {
		all[r].mu.Lock()
		defer all[r].mu.Unlock()
		return all[r].reported
	}
	answers := func() int {
		all[0].mu.Lock()
		defer all[0].mu.Unlock()
		return len(all[0].polls[0].answers)
	}
	ask := func() {
		if _, ok := all[0].poll(0); !ok {
			t.Error("the communicator was closed")
		}
	}
	if ask(); reported(0) != 0 || answers() != 2 {
		t.Errorf("there is no verdict, and %d of 2 ranks answered", answers())
	}
	all[1].mu.Lock()
	all[1].ownVerdict = time.Now()
	all[1].mu.Unlock()
	if ask(); reported(0) != 1 || reported(1) != 0 {
		t.Errorf("ranks 0 and 1 know of verdicts about calls up to %d and %d, not 1 and 0", reported(0), reported(1))
	}
	all[0].mu.Lock()
	all[0].polls[0] = &poll{answers: map[int]Answer{}}
	all[0].mu.Unlock()
	all[0].Heard(1, Report{Ask: &Ask{}})
	all[0].Heard(1, Report{Answer: &Answer{To: 2}})
	all[0].Heard(1, Report{Answer: &Answer{Seq: 7}})
	if n := answers(); n != 0 {
		t.Errorf("%d answers to other polls count", n)
	}
}
