package colltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// A Chaos repeatedly kills a random rank of a job, at a random moment.
type Chaos struct {
	Job      JobOptions // its program must run until it is killed or fails
	Rounds   int
	Ready    string        // a line that all ranks print before the moment is counted; "" counts from the start
	Moment   time.Duration // the kill comes within this time after that
	Deadline time.Duration // every survivor must end within this time after the kill
	Seed     uint64        // of ranks and moments: the same seed gives the same ones
	// Survivor returns what is wrong with how a surviving rank ended, nil if nothing is: it
	// should have failed with a typed error, which names the victim.
	Survivor func(r Result, victim int) error
}

// Run runs the rounds. The test fails if a survivor does not end, if Survivor returns an error,
// or if there is shared memory left that no process has any more. Run returns how long the
// slowest survivor took in each round.
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

// judge checks how all ranks ended.
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
			if err := c.Survivor(r, victim); err != nil {
				errs = append(errs, fmt.Errorf("a survivor: %w\n%v", err, r))
			}
		}
	}
	return errors.Join(errs...)
}
