package diag

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// nvlinkStress lets GPUs write to one another's memory and read it until its time is over. In each
// round every GPU has one partner, and all pairs work at once: marginal links make errors when the
// whole board is warm and all links are busy, which p2p, one pair at a time, does not reach. What
// pairs share differs between boards, so the rates are measured but not judged.
func nvlinkStress(ctx context.Context, j *job) error {
	n := len(j.gpus)
	if n < 2 {
		j.skip("it takes two GPUs; there is %d", n)
		return nil
	}
	before := j.tally()
	runtime.LockOSThread() // GPUs are prepared in a context of this thread
	defer runtime.UnlockOSThread()
	devices, err := j.takeAll()
	if err != nil {
		return err
	}
	seen := make([][]traffic, n) // by writer and its partner
	for i := range seen {
		seen[i] = make([]traffic, n)
	}
	until := time.Now().Add(time.Duration(j.params[duration] * float64(time.Second)))
	for round := 0; round < tournament(n) || time.Now().Before(until); round++ {
		j.progress("round %d", round+1)
		var pairs sync.WaitGroup
		errs := make([]error, n)
		for a := range n {
			b := partner(n, round, a)
			if b <= a { // of a pair the first one acts; a GPU without a partner is its own
				continue
			}
			pairs.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for _, w := range [][2]int{{a, b}, {b, a}} {
					if ctx.Err() != nil {
						errs[a] = context.Cause(ctx)
						return
					}
					r, err := devices[w[0]].Remote(devices[w[1]], memPattern{"random", randomWords, uint64(round*n + w[0] + 1)})
					if err != nil {
						errs[a] = err
						return
					}
					seen[w[0]][w[1]].add(r)
				}
			})
		}
		pairs.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	for a := range n {
		for b := range n {
			if a != b {
				seen[a][b].report(j, j.gpus[a], j.gpus[b])
			}
		}
	}
	j.counted(before, nvlinkCounters)
	return freeAll(devices)
}

// tournament returns the number of rounds in which each of n GPUs meets each other one.
func tournament(n int) int { return n - 1 + n%2 }

// partner returns the GPU that GPU a of n has in a round: itself, if their number is odd and it
// rests. The rounds are those of the circle method for round-robin tournaments: one GPU stays, the
// others move on by a place.
func partner(n, round, a int) int {
	m := tournament(n)
	switch {
	case a == m: // the one that stays, if n is even: it meets the one that would rest
		a = round % m * (m + 1) / 2 % m
	default:
		b := (round%m - a + m) % m
		if b != a {
			return b
		}
		if n%2 == 0 {
			return m
		}
	}
	return a
}

// traffic is what a GPU wrote to a partner and read from it in all rounds.
type traffic struct {
	written, read miscompares
	write, back   float64 // GB/s, the slowest
	staged        bool
}

func (t *traffic) add(r remoteResult) {
	slower := func(was, seconds float64) float64 {
		is := float64(r.Bytes) / seconds / 1e9
		return min(cmp.Or(was, is), is)
	}
	t.written.add(r.Written)
	t.read.add(r.ReadBy)
	t.write, t.staged = slower(t.write, r.Write), r.Staged
	if !r.Staged {
		t.back = slower(t.back, r.Read)
	}
}

// report adds the findings of GPU a with its partner b, and the slowest rates.
func (t *traffic) report(j *job, a, b GPU) {
	j.miscompared(a.Index, t.written, relink, "writing to "+gpuName(b.Index)+", as that one finds it")
	j.miscompared(a.Index, t.read, relink, "reading from "+gpuName(b.Index))
	if t.staged {
		j.measure(a.to(b, "copy through the host", t.write), "")
		return
	}
	j.measure(a.to(b, "write", t.write), "")
	j.measure(a.to(b, "read", t.back), "")
}
