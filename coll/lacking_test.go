package coll

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/op"
)

// A lack says what one rank of a job has too little of, and from when on. It is the argument of
// the program lacking, after the transport.
type lack struct {
	what          string // "descriptors" or "memory"; "" for a limit that the process starts with
	victim, after int    // rank; number of operations before
	left          int    // descriptors, or MiB
	seed          uint64 // of the operations
}

func (l lack) String() string {
	return fmt.Sprintf("%q %d %d %d %d", l.what, l.victim, l.after, l.left, l.seed)
}

func (l lack) begin() (end func(), err error) {
	if l.what == "memory" {
		var pages uint64
		statm, err := os.ReadFile("/proc/self/statm")
		if err == nil {
			_, err = fmt.Sscan(string(statm), &pages)
		}
		limit := pages*uint64(os.Getpagesize()) + uint64(l.left)<<20
		return func() {}, errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: limit, Max: limit}))
	}
	var all []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		all = append(all, f)
	}
	for _, f := range all[len(all)-min(l.left, len(all)):] {
		f.Close()
	}
	return func() { runtime.KeepAlive(all) }, nil
}

// lacking calls 60 collectives of all kinds and sizes, and begins the lack before one of them.
func lacking(s colltest.Self) error {
	var transport string
	var l lack
	if _, err := fmt.Sscanf(s.Arg, "%s %q %d %d %d %d", &transport, &l.what, &l.victim, &l.after, &l.left, &l.seed); err != nil {
		return err
	}
	c, err := join(s, 5*time.Minute, time.Minute)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(l.seed, 2)) // the same on all ranks
	a, b := make([]float32, 1<<20), make([]float32, 1<<20)
	for i := range 60 {
		if l.what != "" && i == l.after && s.Rank == l.victim {
			end, err := l.begin()
			if err != nil {
				return err
			}
			defer end()
		}
		n, root := 1<<rng.IntN(17), rng.IntN(s.Size)
		switch []op.Collective{op.AllReduce, op.Broadcast, op.Reduce, op.AllGather, op.ReduceScatter, op.AllToAll}[rng.IntN(6)] {
		case op.AllReduce:
			err = c.AllReduce(Of(a), Of(b), n, Float32, Sum)
		case op.Broadcast:
			err = c.Broadcast(Of(a), Of(b), n, Float32, root)
		case op.Reduce:
			err = c.Reduce(Of(a), Of(b), n, Float32, Max, root)
		case op.AllGather:
			err = c.AllGather(Of(a), Of(b), n, Float32)
		case op.ReduceScatter:
			err = c.ReduceScatter(Of(a), Of(b), n, Float32, Sum)
		default:
			err = c.AllToAll(Of(a), Of(b), n, Float32)
		}
		if err != nil {
			return fmt.Errorf("code=%d %w", CodeOf(err), err)
		}
	}
	return c.Destroy()
}

// named returns what is wrong with how a job ended of which one rank may have lacked something.
func (l lack) named(results []colltest.Result) error {
	texts := make([]string, len(results))
	for i, r := range results {
		texts[i] = strings.Join(r.Errors(), "\n")
	}
	victim := results[l.victim]
	cause := ""
	for _, c := range []string{"too many open files", "cannot allocate memory"} {
		if strings.Contains(texts[l.victim], c) {
			cause = c
		}
	}
	var errs []error
	for i, r := range results {
		joining := strings.Contains(texts[i], "CommInitRank: ") || strings.Contains(texts[i], `waiting for "id"`)
		switch {
		case r.TimedOut:
			errs = append(errs, fmt.Errorf("rank %d has not ended", i))
		case r.Clean() == nil || i == l.victim && l.endedByRuntime(victim):
		case i == l.victim && cause == "" && !joining:
			errs = append(errs, errors.New("the rank's own error has no cause"))
		case i != l.victim && victim.Clean() == nil:
			errs = append(errs, fmt.Errorf("rank %d failed, and the one that lacked something did not", i))
		case joining: // the root, or a rank that was never there
		case !strings.Contains(texts[i], fmt.Sprintf("rank %d", l.victim)), !strings.Contains(texts[i], cause):
			errs = append(errs, fmt.Errorf("rank %d does not name rank %d and %q", i, l.victim, cause))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	for i, r := range results {
		errs = append(errs, fmt.Errorf("rank %d: %s\n%v", i, texts[i], r))
	}
	return errors.Join(errs...)
}

// endedByRuntime says that the process had no memory for what runs it: then it ends at once, without
// a word of ours. Go's runtime does so with code 2. The race detector's, a part of tests alone, has
// several texts with its name in them; a data race that it finds has not.
func (l lack) endedByRuntime(r colltest.Result) bool {
	return r.Code == 2 || l.what == "memory" && strings.Contains(strings.Join(r.Stderr, "\n"), "ThreadSanitizer: ")
}

// TestLacking: whatever one rank has too little of, and from whatever moment on, it says so, and
// all others name it with its cause. ASSAY_TEST_KILLS=200 is the long form.
func TestLacking(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	failed := 0
	var slowest time.Duration
	for round := range killRounds(30) {
		l := lack{victim: rng.IntN(4), after: rng.IntN(20), left: rng.IntN(6), seed: uint64(round)}
		o := colltest.JobOptions{Program: "lacking", Ranks: 4}
		prefix := []string{"prlimit", "--nofile=200"}
		switch round % 3 {
		case 0:
			l.what = "descriptors"
		case 1:
			l.what = "memory"
		default:
			prefix = []string{"prlimit", fmt.Sprintf("--nofile=%d", 12+rng.IntN(30))}
		}
		o.Prefix = func(rank int) []string {
			if rank != l.victim {
				return nil
			}
			return prefix
		}
		o.Arg = fmt.Sprint([]string{"shm ", "socket "}[rng.IntN(2)], l)
		t.Run(fmt.Sprintf("round=%d", round), func(t *testing.T) {
			results := colltest.Start(t, o).Wait(5 * time.Minute)
			if err := l.named(results); err != nil {
				t.Errorf("%s, %v: %v", o.Arg, prefix, err)
			}
			if results[l.victim].Clean() == nil {
				return
			}
			failed++
			for _, r := range results {
				slowest = max(slowest, r.End.Sub(results[l.victim].End))
			}
		})
	}
	t.Logf("in %d rounds the rank could not go on; the last of the others returned at most %v after it", failed, slowest)
}
