package coll

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/transport"
)

// reuseRounds is how often TestReuse allocates, reduces and frees.
const reuseRounds = 1000

// mostMaps is how many pieces of the other rank's memory may still be mapped
// that it has freed: what was looked at last.
const mostMaps = 16

// reuse reduces memory that it has just allocated, and gives it back, again
// and again. The kernel hands out addresses once more that other memory had.
func reuse(s colltest.Self) error {
	c, err := join(s, 60*time.Second, 30*time.Second)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2)) // the same on all ranks
	seen := map[*byte]bool{}
	wrong, again := 0, 0
	for round := range reuseRounds {
		n := 1 + rng.IntN(1<<rng.IntN(15)) // elements
		inPlace := rng.IntN(4) == 0
		var held [2][]byte
		for i := range held {
			if inPlace && i == 1 {
				held[i] = held[0]
				continue
			}
			if held[i], err = Alloc(4 * n); err != nil {
				return err
			}
			if at := unsafe.SliceData(held[i]); seen[at] {
				again++
			} else {
				seen[at] = true
			}
		}
		in, out := floats(held[0]), floats(held[1])
		for i := range in {
			in[i] = float32(s.Rank + round + i%1000)
		}
		if err := c.AllReduce(Of(in), Of(out), n, Float32, Sum); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for i, v := range out {
			if want := float32(s.Size*(round+i%1000) + s.Size*(s.Size-1)/2); v != want {
				if wrong++; wrong == 1 {
					s.Say("round %d: element %d of %d is %v, want %v", round, i, n, v, want)
				}
			}
		}
		for i := range held {
			if i == 0 || !inPlace {
				if err := Free(held[i]); err != nil {
					return err
				}
			}
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	if n := bytes.Count(maps, []byte("memfd:assay-alloc")); n > mostMaps {
		return fmt.Errorf("%d pieces of freed memory are mapped", n)
	}
	if again == 0 {
		return errors.New("no address came back: this tests nothing")
	}
	s.Say("#wrong %d", wrong)
	return c.Destroy()
}

func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// TestReuse: sums are right where memory of Alloc comes back at the address of
// other memory that was freed.
func TestReuse(t *testing.T) {
	for _, arg := range []string{"shm", "socket"} {
		t.Run(arg, func(t *testing.T) {
			job := colltest.Start(t, colltest.JobOptions{Program: "reuse", Ranks: 2, Arg: arg})
			for _, r := range job.Wait(5 * time.Minute) {
				if err := r.Clean(); err != nil {
					t.Error(err)
				} else if !strings.Contains(strings.Join(r.Stdout, "\n"), "#wrong 0") {
					t.Errorf("%v; want #wrong 0", r)
				}
			}
		})
	}
}

// abortPer is how many ranks each process of TestAbortFree is.
const abortPer = 2

// abortFree has ranks reduce without end, one of them abort at some moment, and
// all free their memory as soon as their Abort has returned.
func abortFree(s colltest.Self) error {
	rounds := 200
	if strings.Contains(s.Arg, "short") {
		rounds = 20
	}
	for round := range rounds {
		if err := abortOnce(s, round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	s.Say("%d aborts", rounds)
	return nil
}

func abortOnce(s colltest.Self, round int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := testConfig()
	cfg.Knobs.SHMDisable = strings.Contains(s.Arg, "socket")
	name := fmt.Sprintf("id%d", round)
	if s.Rank == 0 {
		id, err := GetUniqueID(cfg)
		if err != nil {
			return err
		}
		if err := s.Publish(name, id[:]); err != nil {
			return err
		}
	}
	b, err := s.Await(ctx, name)
	if err != nil {
		return err
	}
	var errs [abortPer]error
	var ranks sync.WaitGroup
	for i := range errs {
		ranks.Go(func() {
			c, err := CommInitRank(ctx, s.Size*abortPer, UniqueID(b), s.Rank*abortPer+i, cfg)
			if err == nil {
				err = reduceUntilAbort(c, round)
			}
			errs[i] = err
		})
	}
	ranks.Wait()
	return errors.Join(errs[:]...)
}

// reduceUntilAbort checks what AllReduce says that it has done.
func reduceUntilAbort(c *Comm, round int) error {
	const n = 1 << 18
	var held [2][]byte
	for i := range held {
		var err error
		if held[i], err = Alloc(4 * n); err != nil {
			return err
		}
	}
	in, out := floats(held[0]), floats(held[1])
	for i := range in {
		in[i] = float32(c.Rank() + i%1000)
	}
	aborted := make(chan error, 1)
	abort := func() { aborted <- c.Abort() }
	rng := rand.New(rand.NewPCG(uint64(round), 0))
	victim, moment := round%c.Size(), time.Duration(rng.IntN(5000))*time.Microsecond
	var err error
	for op := 0; err == nil; op++ {
		if op == 1 && c.Rank() == victim { // all have their communicator
			time.AfterFunc(moment, abort)
		}
		if err = c.AllReduce(Of(in), Of(out), n, Float32, Sum); err != nil {
			break
		}
		for i, v := range out {
			if want := float32(c.Size()*(i%1000) + c.Size()*(c.Size()-1)/2); v != want {
				err = fmt.Errorf("rank %d: element %d is %v, want %v, and there was no error", c.Rank(), i, v, want)
				break
			}
		}
	}
	if c.Rank() != victim {
		abort()
	}
	if e := <-aborted; e != nil {
		return e
	}
	clear(in) // it is the caller's: nobody may see this
	for i := range held {
		if err := Free(held[i]); err != nil {
			return err
		}
	}
	var lost *transport.PeerError
	if !errors.Is(err, ErrAborted) && !errors.As(err, &lost) {
		return err
	}
	return nil
}

// TestAbortFree: as soon as Abort has returned, buffers can be freed, whatever
// other ranks of this process or another one are doing. With -short these are
// 20 aborts for each transport, else 200.
func TestAbortFree(t *testing.T) {
	for _, arg := range []string{"shm", "socket"} {
		t.Run(arg, func(t *testing.T) {
			if testing.Short() {
				arg += " short"
			}
			job := colltest.Start(t, colltest.JobOptions{Program: "abortFree", Ranks: 2, Arg: arg})
			for _, r := range job.Wait(10 * time.Minute) {
				if err := r.Clean(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
