package hang

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
)

// A Report is what ranks tell one another. One of the fields is set.
type Report struct {
	Wait     *wait    `json:"wait,omitempty"`     // what the rank waits in on host memory
	Recent   *history `json:"recent,omitempty"`   // what it has called on device memory
	Ask      *Ask     `json:"ask,omitempty"`      // to all other ranks
	Answer   *Answer  `json:"answer,omitempty"`   // to one rank
	Reported bool     `json:"reported,omitempty"` // the rank has given a verdict
}

// An Ask is the question of a poll.
type Ask struct {
	Seq uint32 `json:"seq,omitempty"` // which collective the ranks have called under this number; 0: asks for Snapshots
}

// An Answer answers an Ask.
type Answer struct {
	To       int         `json:"to"` // the rank that asked
	Seq      uint32      `json:"seq,omitempty"`
	Snapshot *Snapshot   `json:"snapshot,omitempty"` // if Seq is 0
	Call     *collective `json:"call,omitempty"`     // nil: not called, or forgotten
}

// A poll is the collection of the other ranks' answers to an Ask.
type poll struct {
	answers  map[int]Answer // by rank; guarded by Watchdog.mu
	answered chan struct{}  // signaled on each answer
}

// A Watchdog watches a rank's operations on device memory.
type Watchdog struct {
	*Recorder
	comm      *Comm
	executor  executor.Executor
	device    int
	processes Processes
	closing   chan struct{} // closed: background tasks end
	tasks     sync.WaitGroup
	visit     visit

	mu          sync.Mutex
	closed      bool
	polls       map[uint32]*poll // this rank's last ones, by Ask.Seq
	calls       uint64           // number of calls of this rank
	ended       uint64           // value of calls when all had ended
	since       time.Time        // when calls last changed
	lowerPolled time.Time        // when a lower rank last polled
	checking    bool             // diagnose is running
	checked     time.Time
	oldest      uint64    // the first operation that has not ended, as State.Call
	oldestSince time.Time // when it was seen there first
	graphs      bool      // when all calls had ended: CUDA graphs may run more operations
	graphSince  time.Time // at the last check: since when an operation of a graph has waited for the same thing
	reported    uint64    // value of calls at the last verdict, of this or another rank; 0: none
	ownVerdict  time.Time // when this rank gave the verdict; zero again once it continues
	differ      bool      // ranks called different collectives, and reportDiffering is running
	query       *query    // the unanswered query of the executor; nil: none

	faultMu       sync.Mutex // held while a fault's verdict is given
	faultReported bool       // the verdict was given, by this or another rank; guarded by faultMu
}

// A visit is what the last visit of the round has found.
type visit struct {
	calls  uint64    // number of calls of this rank
	since  time.Time // when that changed
	shared uint64    // value of calls when the others were told of them
}

// NewWatchdog returns the Watchdog of a rank, with its Recorder. processes are those of all ranks.
// Close ends both.
func NewWatchdog(c *Comm, e executor.Executor, device int, processes Processes) *Watchdog {
	return &Watchdog{
		Recorder: newRecorder(c, device, processes), comm: c, executor: e, device: device, processes: processes,
		closing: make(chan struct{}), polls: map[uint32]*poll{}, visit: visit{since: time.Now()},
	}
}

// Start begins to watch.
func (w *Watchdog) Start() { rounds.join(w, w.visitNow) }

// Close ends the watching. Afterwards the executor is not used.
func (w *Watchdog) Close() {
	rounds.leave(w)
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.closing)
	w.tasks.Wait()
	w.log.Close()
}

// visitNow looks for a hang, and tells the others what this rank called last when it has called
// nothing for a while.
func (w *Watchdog) visitNow() {
	calls, v := w.log.Calls(), &w.visit
	if w.comm.Broken.Err() != nil {
		if calls != v.calls && w.comm.Verdicts { // a call that the fault came upon
			v.calls = calls
			w.Broken(w.comm.Fault.Err())
		}
		return
	}
	if w.comm.Verdicts {
		w.check()
	}
	switch {
	case calls != v.calls:
		v.calls, v.since = calls, time.Now()
	case calls != v.shared && time.Since(v.since) >= Slow:
		v.shared = calls
		if last := w.history(); last.Last > 0 { // else the recorder has Sends and Recvs only
			w.comm.Send(Report{Recent: &last})
		}
	}
}

const (
	checkEvery = 250 * time.Millisecond  // how often a rank checks whether it waits
	answerWait = 1200 * time.Millisecond // how long other ranks may take to answer a poll
)

// background runs f in the background, unless the communicator is closed.
func (w *Watchdog) background(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.tasks.Go(f)
	}
}

// firstCheck is how long after its last call a rank looks for the first time whether it waits, if a
// verdict is due after the given time.
func firstCheck(due time.Duration) time.Duration { return min(time.Second, due/2) }

// check starts diagnose when it is due. It is called every checkEvery.
func (w *Watchdog) check() {
	calls := w.log.Calls()
	w.mu.Lock()
	defer w.mu.Unlock()
	if calls != w.calls || w.since.IsZero() {
		w.calls, w.since, w.lowerPolled = calls, time.Now(), time.Time{}
		w.resumed()
	}
	limit := w.comm.After
	due := w.since.Add(limit)
	if w.ended == calls {
		if due = w.graphSince.Add(limit); w.graphSince.IsZero() {
			due = time.Now().Add(limit)
		}
	}
	switch {
	case w.closed || w.checking || limit == 0 || time.Since(w.since) < firstCheck(limit):
	case w.ended == calls && !w.graphs, w.ended != calls && w.reported == calls && w.ownVerdict.IsZero(): // all has ended, or another rank gave the verdict
	case time.Since(w.checked) < time.Second && (time.Now().Before(due) || w.checked.After(due)), time.Since(w.lowerPolled) < 3*answerWait:
	default:
		w.checking, w.checked = true, time.Now()
		w.tasks.Go(func() {
			w.diagnose(calls)
			w.mu.Lock()
			w.checking = false
			w.mu.Unlock()
		})
	}
}

// resumed reports that a communicator continues after this rank's verdict. The caller holds the
// lock.
func (w *Watchdog) resumed() {
	if !w.ownVerdict.IsZero() {
		text := fmt.Sprintf("it continues, %d s after it was reported as hung", int(time.Since(w.ownVerdict).Seconds()))
		w.ownVerdict = time.Time{}
		if !w.closed {
			w.tasks.Go(func() { w.report(Verdict{Cause: Resumed, Text: text}) })
		}
	}
}

// diagnose determines whether and why this rank, after the given number of calls, waits.
func (w *Watchdog) diagnose(calls uint64) {
	now := w.state(true)
	idle, graph := now.Does == executor.Idle, !now.Graph.IsZero()
	w.mu.Lock()
	since := w.since
	if (idle || graph) && w.log.Calls() == calls {
		if idle || now.Graph != w.graphSince { // a different wait of a graph, perhaps after a verdict
			w.resumed()
			w.reported = 0
		}
		w.ended, w.graphSince, w.graphs = calls, now.Graph, now.Graphs
		w.log.Ended(calls)
	}
	if now.Call > 0 {
		w.log.Ended(now.Call - 1)
	}
	if now.Call != w.oldest {
		w.oldest, w.oldestSince = now.Call, time.Now()
	}
	if graph {
		since = now.Graph
	} else { // what was there at the first look may have been there since the call
		late := min(firstCheck(w.comm.After)+checkEvery, w.comm.After/2)
		for _, seen := range [...]time.Time{w.oldestSince, now.Since} {
			if at := seen.Add(-late); at.After(since) {
				since = at
			}
		}
	}
	enough := idle || w.reported == calls || time.Since(since) < w.comm.After
	w.mu.Unlock()
	if enough {
		return
	}
	own := w.snapshot()
	if !own.waits() {
		return
	}
	p, ok := w.poll(0)
	if !ok {
		return
	}
	again := w.state(true)
	w.mu.Lock()
	d := diagnosis{w.comm.Rank, w.processes, map[int]Snapshot{w.comm.Rank: own}, w.collective}
	for r, a := range p.answers {
		if a.Snapshot != nil {
			d.snapshots[r] = *a.Snapshot
		}
	}
	if r, seq, differ := d.differs(); differ {
		w.mu.Unlock()
		if called, ok := w.collective(seq); ok {
			w.reportDiffering(r, called, d.snapshots[r].History)
		}
		return
	}
	cause, ranks, text, ok := d.cause()
	states := d.states()
	ok = ok && again.Does != executor.Idle && again.Graph.Equal(now.Graph) && again.Since.Equal(now.Since) && again.Call == now.Call && w.log.Calls() == calls && w.reported != calls && time.Since(w.lowerPolled) > 3*answerWait && w.comm.Fault.Err() == nil
	if ok {
		w.reported, w.ownVerdict = calls, time.Now()
	}
	w.mu.Unlock()
	if !ok {
		return
	}
	w.comm.Send(Report{Reported: true})
	w.report(Verdict{Cause: cause, Ranks: ranks, Text: "it stands still: " + text, States: states})
}

// poll asks the other ranks which collective they have called under a number, or, for 0, for their
// Snapshots. It waits until all have answered, but no longer than answerWait. ok is false if the
// communicator was closed or broken meanwhile.
func (w *Watchdog) poll(seq uint32) (p *poll, ok bool) {
	p = &poll{map[int]Answer{}, make(chan struct{}, w.comm.Size)}
	w.mu.Lock()
	w.polls[seq] = p
	w.mu.Unlock()
	w.comm.Send(Report{Ask: &Ask{seq}})
	limit := time.After(answerWait)
	for {
		w.mu.Lock()
		n := len(p.answers)
		w.mu.Unlock()
		if n >= w.comm.Size-1 {
			return p, true
		}
		select {
		case <-p.answered:
		case <-limit:
			return p, true
		case <-w.closing:
			return nil, false
		case <-w.comm.Broken.Done():
			return nil, false
		}
	}
}

// Heard takes a rank's Report, and answers if that asks.
func (w *Watchdog) Heard(from int, r Report) {
	switch {
	case r.Wait != nil:
		if r.Wait.Seq > 0 {
			w.compare(from, history{r.Wait.Seq, binary.LittleEndian.AppendUint32(nil, r.Wait.Sign)})
		}
	case r.Recent != nil:
		w.compare(from, *r.Recent)
	case r.Ask != nil:
		w.asked(from, *r.Ask)
	case r.Answer != nil && r.Answer.To == w.comm.Rank:
		w.answered(from, *r.Answer)
	case r.Reported:
		w.mu.Lock()
		w.reported = w.log.Calls()
		w.mu.Unlock()
	}
}

// answered records a rank's answer to this rank's last poll.
func (w *Watchdog) answered(from int, a Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.polls[a.Seq]
	if p == nil {
		return
	}
	p.answers[from] = a
	select {
	case p.answered <- struct{}{}:
	default:
	}
}

// asked answers a rank's question, in the background.
func (w *Watchdog) asked(from int, ask Ask) {
	w.mu.Lock()
	if from < w.comm.Rank {
		w.lowerPolled = time.Now()
	}
	// If two ranks poll at the same time, either the lower one's question arrives before the other
	// one gives its verdict, which it then drops, or the lower one hears of that verdict before the
	// answer.
	reported := !w.ownVerdict.IsZero() && time.Since(w.ownVerdict) < 3*answerWait
	w.mu.Unlock()
	w.background(func() {
		if reported && ask.Seq == 0 {
			w.comm.Send(Report{Reported: true})
		}
		a := Answer{To: from, Seq: ask.Seq}
		if ask.Seq == 0 {
			s := w.snapshot()
			a.Snapshot = &s
		} else if c, ok := w.collective(ask.Seq); ok {
			a.Call = &c
		}
		w.comm.Send(Report{Answer: &a})
	})
}

// Flipped reports that an operation which was verified has a wrong result.
func (w *Watchdog) Flipped(ranks []int, text string) {
	w.report(Verdict{Cause: Flipped, Ranks: ranks, Text: text})
}

// report completes a verdict, writes it to a file, and passes it to Comm.OnHang or the log.
func (w *Watchdog) report(v Verdict) {
	v.Schema, v.Time, v.Communicator, v.Size, v.By = VerdictSchema, time.Now(), w.comm.Name, w.comm.Size, w.comm.Rank
	w.log.Say(v.Text)
	if v.Cause != Resumed {
		if err := v.write(w.comm.Dir); err != nil {
			w.comm.Log.Warnf("the verdict is in no file: %v", err)
		}
	}
	if w.comm.OnHang != nil {
		w.comm.OnHang(v)
		return
	}
	w.comm.Log.Warnf("%v", v)
}
