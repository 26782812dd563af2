package hang

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/op"
)

// compare finds ranks that called different collectives under one number, which would never
// end, and breaks the communicator. All ranks are asked first what they called, so that the error
// names those that differ from the majority.
func (w *Watchdog) compare(from int, theirs history) {
	seq, differ := w.history().differs(theirs)
	if own, ok := w.collective(seq); ok && differ {
		w.background(func() { w.reportDiffering(from, own, theirs) })
	}
}

// reportDiffering determines which ranks called a different collective than most, once it is known
// that rank from has called another one than own, and breaks the communicator with that error.
func (w *Watchdog) reportDiffering(from int, own collective, theirs history) {
	w.mu.Lock()
	known := w.differ
	w.differ = true
	w.mu.Unlock()
	if known {
		return
	}
	var calls map[int]collective
	for range differPolls {
		p, ok := w.poll(own.Seq)
		if !ok {
			return
		}
		calls = map[int]collective{w.comm.Rank: own}
		w.mu.Lock()
		for r, a := range p.answers {
			if a.Call != nil {
				calls[r] = *a.Call
			}
		}
		w.mu.Unlock()
		if _, ok := calls[from]; !ok { // it waits in something that it did not call: it destroys the communicator
			sign, _ := theirs.sign(own.Seq)
			calls[from] = collective{own.Seq, sign, -1, op.NoPeer}
		}
		if len(calls) == w.comm.Size {
			break
		}
		time.Sleep(checkEvery) // a rank has not reached this collective yet
	}
	w.mu.Lock()
	lower := w.lowerPolled
	w.mu.Unlock()
	if time.Since(lower) < 3*answerWait { // a lower rank gives the verdict
		select {
		case <-w.comm.Broken.Done():
			return
		case <-w.closing:
			return
		case <-time.After(answerWait):
		}
	}
	ranks, text := w.processes.differing(own.Seq, calls)
	if w.comm.Fault.Set(&op.Error{Code: op.InvalidUsage, Rank: w.comm.Rank, Op: "asynchronous", Peer: from, Err: errors.New(text)}) {
		w.comm.Send(Report{Reported: true})
		w.report(Verdict{Cause: Differs, Ranks: ranks, Text: text})
	}
}

// differPolls is how many times, at most, ranks are asked what they called, until all have called
// it.
const differPolls = 4

// differing returns the ranks that called a different collective than most did, under a number,
// and the text that says so.
func (p Processes) differing(seq uint32, calls map[int]collective) (ranks []int, text string) {
	by := map[uint32][]int{} // sign
	called := map[uint32]collective{}
	for r := range p {
		if c, ok := calls[r]; ok {
			by[c.Sign], called[c.Sign] = append(by[c.Sign], r), c
		}
	}
	signs := slices.Collect(maps.Keys(by))
	slices.SortFunc(signs, func(a, b uint32) int {
		if a == op.Destroying || b == op.Destroying { // a rank that leaves while others continue is the one that differs
			return cmp.Compare(a, b)
		}
		return cmp.Or(len(by[b])-len(by[a]), by[a][0]-by[b][0])
	})
	var texts []string
	tie := len(signs) > 1 && len(by[signs[0]]) == len(by[signs[1]]) && signs[1] != op.Destroying
	for i, s := range signs {
		if i == 0 && !tie {
			continue
		}
		ranks = append(ranks, by[s]...)
		for _, r := range by[s] {
			texts = append(texts, fmt.Sprintf("%s called %s", p.name(r), called[s].operation()))
		}
	}
	slices.Sort(ranks)
	text = fmt.Sprintf("ranks called different operations under number #%d: %s", seq, join(texts, "; "))
	if !tie && len(signs) > 0 {
		text += fmt.Sprintf(", where rank %s called %s", rankList(by[signs[0]]), called[signs[0]].operation())
	}
	return ranks, text
}
