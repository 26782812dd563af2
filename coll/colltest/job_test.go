package colltest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestJob(t *testing.T) {
	Watch(t)
	j := Start(t, JobOptions{Program: "talk", Ranks: 3, Env: []string{"EXTRA=x"}, EnvOf: func(rank int) []string { return []string{fmt.Sprint("EXTRA=", rank)} }})
	j.Await(t, "got hello", 5*time.Minute)
	for r, res := range j.Wait(5 * time.Minute) {
		if err := res.Clean(); err != nil {
			t.Error(err)
		}
		if want := []string{fmt.Sprintf("rank %d of 3", r), "got hello"}; !slices.Equal(res.Stdout, want) {
			t.Errorf("rank %d said %q; want %q", r, res.Stdout, want)
		}
		if want := fmt.Sprintf("extra=%d", r); !slices.Contains(res.Stderr, want) {
			t.Errorf("rank %d wrote %q; want %q", r, res.Stderr, want)
		}
	}
}

func TestJobErrors(t *testing.T) {
	results := Start(t, JobOptions{Program: "talk", Ranks: 2, Arg: "fail"}).Wait(5 * time.Minute)
	if err := results[0].Clean(); err != nil {
		t.Error(err)
	}
	if r := results[1]; r.Code != 1 || !slices.Equal(r.Errors(), []string{"as asked"}) || r.Clean() == nil {
		t.Errorf("want exit status 1 and the error: %v", r)
	}
	if r := Start(t, JobOptions{Program: "nonsense", Ranks: 1}).Wait(5 * time.Minute)[0]; r.Code != 1 || !strings.Contains(r.String(), "knows no program") {
		t.Errorf("want an error: %v", r)
	}
}

// TestJobThatHangs: it is ended, and shows where it was. A rank that is
// stopped as well.
func TestJobThatHangs(t *testing.T) {
	Watch(t)
	j := Start(t, JobOptions{Program: "hang", Ranks: 3})
	j.Await(t, "hanging", 5*time.Minute)
	j.Ranks[1].Signal(syscall.SIGSTOP)
	j.Ranks[2].Signal(syscall.SIGKILL)
	results := j.Wait(100 * time.Millisecond)
	for _, r := range results[:2] {
		if !r.TimedOut || !strings.Contains(r.String(), "colltest.hang") {
			t.Errorf("want a time-out and a trace of hang: %v", r)
		}
	}
	if r := results[2]; r.TimedOut || r.Signal != syscall.SIGKILL || r.Code != -1 {
		t.Errorf("want killed: %v", r)
	}
}

func TestChaos(t *testing.T) {
	Watch(t)
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	c := Chaos{
		Job: JobOptions{Program: "ring", Ranks: 4}, Rounds: rounds, Moment: 150 * time.Millisecond, Deadline: 5 * time.Minute, Seed: 11,
		Survivor: func(r Result, _ int) error {
			if e := r.Errors(); len(e) != 1 || !strings.HasPrefix(e[0], "a neighbour is lost") {
				return fmt.Errorf("errors %q; want a neighbour lost", e)
			}
			return nil
		},
	}
	for _, c.Ready = range []string{"", "listening"} {
		if got := len(c.Run(t)); got != rounds {
			t.Errorf("%d rounds; want %d", got, rounds)
		}
	}
}

func TestChaosJudges(t *testing.T) {
	c := Chaos{Survivor: func(r Result, _ int) error {
		if len(r.Errors()) == 0 {
			return fmt.Errorf("no error")
		}
		return nil
	}}
	victim := Result{Rank: 0, Code: -1, Signal: syscall.SIGKILL}
	good := Result{Rank: 1, Code: 1, Stderr: []string{"error: rank 0 is lost"}}
	if err := c.judge([]Result{victim, good}, 0); err != nil {
		t.Error(err)
	}
	for want, results := range map[string][]Result{
		"has not ended":             {victim, {Rank: 1, TimedOut: true, Signal: syscall.SIGQUIT}},
		"no error":                  {victim, {Rank: 1}},
		"the victim was not killed": {{Rank: 0}, good},
	} {
		if err := c.judge(results, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestOrphans: a file that a killed process has left in /dev/shm is found, and
// not while somebody uses it.
func TestOrphans(t *testing.T) {
	name := fmt.Sprintf("colltest-orphan-%d", os.Getpid())
	path := "/dev/shm/" + name
	before := sharedMemory()
	j := Start(t, JobOptions{Program: "deaf", Ranks: 1, Arg: name})
	defer os.Remove(path)
	for {
		if _, err := os.Stat(path); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if left := orphans(before); slices.Contains(left, name) {
		t.Errorf("%s is in use and called left behind", name)
	}
	f.Close()
	j.Ranks[0].Signal(syscall.SIGKILL)
	if r := j.Wait(5 * time.Minute)[0]; r.Signal != syscall.SIGKILL {
		t.Errorf("want killed: %v", r)
	}
	if left := orphans(before); !slices.Contains(left, name) {
		t.Errorf("left %v; want %s", left, name)
	}
}
