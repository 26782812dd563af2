package hang

import (
	"errors"
	"maps"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

// compare finds ranks that called different collectives under one number, which would never
// end, and breaks the communicator. All ranks are asked first what they called, so that the error
// names those that differ from the majority.
func (w *Watchdog) compare(from int, theirs window) {
	seq, differ := w.window().differs(theirs)
	if own, ok := w.collective(seq); ok && differ {
		sign, _ := theirs.sign(seq)
		w.background(func() { w.reportDiffering(from, own, stall{seq, sign, -1, op.NoPeer}) })
	}
}

// reportDiffering determines which ranks called a different collective than most, once it is known
// that one has, and breaks the communicator with that error.
func (w *Watchdog) reportDiffering(from int, mine, theirs stall) {
	w.mu.Lock()
	known := w.differ
	w.differ = true
	w.mu.Unlock()
	if known {
		return
	}
	g := hang{size: w.comm.Size, by: w.comm.Rank, who: w.processes}
	for range differsAsked {
		if !w.poll(head{Peer: op.NoPeer, Number: mine.Seq, Was: &mine, Does: executor.Unknown}) {
			return
		}
		w.mu.Lock()
		g.heads = maps.Clone(w.heads)
		w.mu.Unlock()
		if g.heads[from].Was == nil { // from waits in something that it did not call: it destroys the communicator
			g.heads[from] = head{Was: &theirs}
		}
		g.heads[w.comm.Rank] = head{Was: &mine}
		if g.known() {
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
	ranks, text := g.differing(mine.Seq)
	if w.comm.Fault.Set(&op.Error{Code: op.InvalidUsage, Rank: w.comm.Rank, Op: "asynchronous", Peer: from, Err: errors.New(text)}) {
		w.tellHead(head{Said: true, Peer: op.NoPeer})
		w.report(Verdict{Cause: Differs, Ranks: ranks, Text: text})
	}
}

// differsAsked is how many times, at most, ranks are asked what they called, until all have
// called it.
const differsAsked = 4
