package colltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// A Chaos kills one rank of a job, at random and at a random moment, again and
// again.
type Chaos struct {
	Job      JobOptions // its program must run until it is killed or fails
	Rounds   int
	Ready    string        // a line that all ranks say before the moment is counted; "" counts from the start
	Moment   time.Duration // the kill comes between then and so long after
	Deadline time.Duration // so long after the kill every survivor must have ended
	Seed     uint64        // of ranks and moments; the same ones come again
	// Survivor says what is wrong with how a rank that was not killed ended,
	// nil if nothing is: it should have failed with a typed error.
	Survivor func(Result) error
}

// Run plays the rounds. A survivor that does not end, or that Survivor objects
// to, fails the test; so does shared memory that no process has any more. It
// returns how long the slowest survivor took in each round.
func (c Chaos) Run(t *testing.T) []time.Duration {
	t.Helper()
	rng := rand.New(rand.NewPCG(c.Seed, 0))
	var slowest []time.Duration
	for round := range c.Rounds {
		victim, moment := rng.IntN(c.Job.Ranks), time.Duration(rng.Int64N(int64(c.Moment)+1))
		name := fmt.Sprintf("round=%d,victim=%d,after=%v", round, victim, moment.Round(time.Millisecond))
		if !t.Run(name, func(t *testing.T) { slowest = append(slowest, c.round(t, victim, moment)) }) {
			break // one trace is enough to look at
		}
	}
	return slowest
}

func (c Chaos) round(t *testing.T, victim int, moment time.Duration) time.Duration {
	before := sharedMemory()
	job := Start(t, c.Job)
	from := job.start
	if c.Ready != "" {
		job.Await(t, c.Ready, c.Deadline)
		from = time.Now()
	}
	time.Sleep(time.Until(from.Add(moment)))
	if err := job.Ranks[victim].Signal(syscall.SIGKILL); err != nil {
		t.Fatalf("rank %d ended before it was killed: %v\n%v", victim, err, job.Wait(0)[victim])
	}
	killed := time.Now()
	results := job.Wait(c.Deadline)
	if err := c.judge(results, victim); err != nil {
		t.Fatal(err)
	}
	if left := orphans(before); len(left) > 0 {
		t.Errorf("left in /dev/shm: %v", left)
	}
	var slowest time.Duration
	for _, r := range results {
		slowest = max(slowest, r.End.Sub(killed))
	}
	return slowest
}

// judge looks at how all ranks ended.
func (c Chaos) judge(results []Result, victim int) error {
	var errs []error
	for _, r := range results {
		switch {
		case r.Rank == victim:
			if r.Signal != syscall.SIGKILL {
				errs = append(errs, fmt.Errorf("the victim was not killed: %v", r))
			}
		case r.TimedOut:
			errs = append(errs, fmt.Errorf("%v after rank %d was killed, a survivor has not ended: %v", c.Deadline, victim, r))
		default:
			if err := c.Survivor(r); err != nil {
				errs = append(errs, fmt.Errorf("a survivor: %w\n%v", err, r))
			}
		}
	}
	return errors.Join(errs...)
}
