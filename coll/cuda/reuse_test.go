//go:build cuda && cgo

package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// How often memory is allocated, used and freed on a communicator, and how many
// of these there are, one after the other: 1,000 rounds in all. With -short it
// is a few.
func reuseTimes(short bool) (comms, rounds int) {
	if short {
		return 2, 20
	}
	return 5, 200
}

// A reuser is a rank that uses memory it has just allocated, and gives it back.
// The driver hands out addresses once more that other memory had, and so it does
// with the windows of communicators.
type reuser struct {
	*gpuRank
	rng  *rand.Rand // the same on all ranks
	seen map[uintptr]bool
	tally

	round      int
	n          int // elements
	send, recv coll.Buffer
	exchange   bool // with the next rank and the one before, instead of a reduction
	inPlace    bool
}

// A tally is what came of a rank's rounds.
type tally struct {
	rounds, wrong int
	again         int // addresses that came back
	first         string
}

func newReuser(g *gpuRank, comm int) *reuser {
	return &reuser{gpuRank: g, rng: rand.New(rand.NewPCG(uint64(comm), 0)), seen: map[uintptr]bool{}}
}

func (u *reuser) value(rank, i int) int32 { return int32(rank + u.round*7 + i%1000) }

// begin allocates. No rank may launch a kernel before all have done so: what
// allocates and frees may wait for the kernels of a device, and those for a rank
// that has yet to come.
func (u *reuser) begin() error {
	u.n = 1 + u.rng.IntN(1<<u.rng.IntN(23))
	if most := limit(16<<20) / 4; u.n > most {
		u.n = most
	}
	u.exchange = u.rng.IntN(4) == 0
	u.inPlace = !u.exchange && u.rng.IntN(4) == 0
	for _, b := range [...]*coll.Buffer{&u.send, &u.recv} {
		if u.inPlace && b == &u.recv {
			u.recv = u.send
			break
		}
		var err error
		if *b, err = u.alloc(4 * u.n); err != nil {
			return err
		}
		if at := b.Addr(); u.seen[at] {
			u.again++
		} else {
			u.seen[at] = true
		}
	}
	in := make([]int32, u.n)
	for i := range in {
		in[i] = u.value(u.Rank(), i)
	}
	return u.dev.in(func() error { return driver.CopyToDevice(driver.Ptr(u.send.Addr()), words(in)) })
}

func words(p []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(p))), 4*len(p))
}

// end does the operation, looks at the result, and frees.
func (u *reuser) end() error {
	next, prev := (u.Rank()+1)%u.Size(), (u.Rank()+u.Size()-1)%u.Size()
	var err error
	if u.exchange {
		u.group.Start()
		u.group.Add(u.Comm)
		_ = u.Send(u.send, u.n, coll.Int32, next) // End returns the error
		_ = u.Recv(u.recv, u.n, coll.Int32, prev)
		err = u.group.End()
	} else {
		err = u.Comm.AllReduce(u.send, u.recv, u.n, coll.Int32, coll.Sum)
	}
	if err = errors.Join(err, u.wait(), u.AsyncError()); err != nil {
		return fmt.Errorf("round %d: %w", u.round, err)
	}
	out := make([]int32, u.n)
	if err := u.dev.in(func() error { return driver.CopyFromDevice(words(out), driver.Ptr(u.recv.Addr())) }); err != nil {
		return err
	}
	for i, v := range out {
		want := u.value(prev, i)
		if !u.exchange {
			want = int32(u.Size())*u.value(0, i) + int32(u.Size()*(u.Size()-1)/2)
		}
		if v != want {
			if u.wrong++; u.wrong == 1 {
				u.first = fmt.Sprintf("rank %d, round %d, by %s: element %d of %d is %d; want %d", u.Rank(), u.round, u.Chosen(), i, u.n, v, want)
			}
		}
	}
	if !u.inPlace {
		err = u.free(u.recv)
	}
	u.round++
	u.rounds++
	return errors.Join(err, u.free(u.send))
}

// TestReuse: results are right where memory comes back at the address of other
// memory that was freed, with ranks that are threads and ranks that are
// processes.
func TestReuse(t *testing.T) {
	devices := gpuCount(t)
	for name, w := range places(devices) {
		if w.ranks == 1 {
			continue
		}
		t.Run("threads, "+name, func(t *testing.T) { reuseThreads(t, w) })
	}
	for _, how := range []string{"", "hosted", "staged"} {
		t.Run("processes "+how, func(t *testing.T) {
			if testing.Short() {
				how += " short"
			}
			job := colltest.Start(t, colltest.JobOptions{Program: "reuse", Ranks: max(2, min(devices, maxRanks)), Arg: fmt.Sprintf("%d %s", devices, how)})
			for _, r := range job.Wait(8 * time.Minute) {
				if err := r.Clean(); err != nil {
					t.Error(err)
				} else if said := strings.Join(r.Stdout, "\n"); !strings.Contains(said, "#wrong 0") {
					t.Errorf("rank %d: %s", r.Rank, said)
				} else {
					t.Log(said)
				}
			}
		})
	}
}

func reuseThreads(t *testing.T, w world) {
	comms, rounds := reuseTimes(testing.Short())
	var sum tally
	for comm := range comms {
		t.Run(fmt.Sprint(comm), func(t *testing.T) {
			all := w.open(t)
			users := make([]*reuser, len(all))
			for r, g := range all {
				users[r] = newReuser(g, comm)
			}
			for range rounds {
				each(t, all, func(g *gpuRank) error { return users[g.Rank()].begin() })
				each(t, all, func(g *gpuRank) error { return users[g.Rank()].end() })
			}
			for _, u := range users {
				sum.add(u.tally)
			}
		})
	}
	if t.Failed() {
		return
	}
	t.Log(sum)
	if err := sum.err(); err != nil {
		t.Error(err)
	}
}

func (s *tally) add(o tally) {
	s.rounds, s.wrong, s.again = s.rounds+o.rounds, s.wrong+o.wrong, s.again+o.again
	if s.first == "" {
		s.first = o.first
	}
}

func (s tally) String() string {
	return fmt.Sprintf("%d rounds, %d addresses came back, #wrong %d", s.rounds, s.again, s.wrong)
}

func (s tally) err() error {
	switch {
	case s.wrong > 0:
		return errors.New(s.first)
	case s.again == 0:
		return errors.New("no address came back: this tests nothing")
	}
	return nil
}

// reuse is one process of TestReuse.
func reuse(s colltest.Self) error {
	comms, rounds := reuseTimes(strings.Contains(s.Arg, "short"))
	var sum tally
	for comm := range comms {
		g, err := joinProcess(s, fmt.Sprint("id", comm))
		if err != nil {
			return err
		}
		u := newReuser(g, comm)
		for range rounds {
			if err := errors.Join(u.begin(), u.end()); err != nil {
				return err
			}
		}
		sum.add(u.tally)
		if err := g.close(); err != nil {
			return err
		}
	}
	s.Say("%v", sum)
	return sum.err()
}

// TestAbortFree: as soon as Abort has returned, buffers can be freed, whatever
// the other ranks of the process are doing. With -short these are 3 aborts for
// each placement, else 20.
func TestAbortFree(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	for name, w := range places(gpuCount(t)) {
		if w.ranks == 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for round := range rounds {
				t.Run(fmt.Sprint(round), func(t *testing.T) { abortFree(t, w, round) })
			}
			works(t, w)
		})
	}
}

func abortFree(t *testing.T, w world, round int) {
	all := w.open(t)
	count := limit(16<<20) / 4
	buffers := make([][2]coll.Buffer, w.ranks)
	each(t, all, func(g *gpuRank) (err error) { // no kernel runs yet
		for i := range buffers[g.Rank()] {
			if buffers[g.Rank()][i], err = g.alloc(4 * count); err != nil {
				return err
			}
		}
		return nil
	})
	rng := rand.New(rand.NewPCG(uint64(round), 0))
	victim, moment := round%w.ranks, time.Duration(rng.IntN(5000))*time.Microsecond
	var running sync.WaitGroup
	running.Add(w.ranks)
	each(t, all, func(g *gpuRank) error {
		aborted := make(chan error, 1)
		abort := func() { aborted <- g.Abort() }
		b := buffers[g.Rank()]
		var err error
		for o := 0; err == nil; o++ {
			err = g.Comm.AllReduce(b[0], b[1], count, coll.Int32, coll.Sum)
			if o%4 == 3 {
				err = errors.Join(err, g.wait())
			}
			if o > 0 {
				continue
			}
			running.Done()
			if g.Rank() == victim {
				go func() {
					running.Wait() // all have loaded their kernels
					time.Sleep(moment)
					abort()
				}()
			}
		}
		if g.Rank() != victim {
			abort()
		}
		return errors.Join(<-aborted, g.free(b[0]), g.free(b[1]))
	})
}
