package hang

import (
	"fmt"
	"maps"
	"slices"

	"github.com/assay-hpc/assay/coll/executor"
)

// A diagnosis derives from snapshots why nothing moves.
type diagnosis struct {
	by        int // the rank that gives the verdict
	processes Processes
	snapshots map[int]Snapshot                    // of the ranks that answered
	call      func(seq uint32) (collective, bool) // that rank's call with a number
}

// A finding is one reason, and the ranks that it concerns.
type finding struct {
	cause Cause
	ranks []int
	text  string
}

// cause returns why nothing moves; false if nothing is known to be wrong, for example if all
// ranks wait for work of their own.
func (d *diagnosis) cause() (Cause, []int, string, bool) {
	waiting := false
	for _, s := range d.snapshots {
		waiting = waiting || s.waits()
	}
	if !waiting {
		return "", nil, "", false
	}
	for _, check := range [...]func() []finding{d.silent, d.stuck, d.notCalled, d.ordered, d.waitsElsewhere, d.blocked, d.unmatched, d.unlaunched, d.unreceived} {
		found := check()
		if len(found) == 0 {
			continue
		}
		var ranks []int
		var texts []string
		for _, f := range found {
			ranks = append(ranks, f.ranks...)
			texts = append(texts, f.text)
		}
		slices.Sort(ranks)
		text := join(texts, "; ")
		if c := found[0].cause; c == Stopped || c == Dead || c == Silent || c == Cut || c == GPU {
			text += fmt.Sprintf(": rank %d waits in %s", d.by, d.snapshots[d.by].currentText())
		}
		return found[0].cause, slices.Compact(ranks), text, true
	}
	for _, s := range d.snapshots {
		if s.Does == executor.Slow { // it may be at fault
			return "", nil, "", false
		}
	}
	return Unclear, nil, d.unclear(), true
}

// differs returns the first collective that a rank called otherwise than the rank that gives the
// verdict.
func (d *diagnosis) differs() (rank int, seq uint32, ok bool) {
	own := d.snapshots[d.by].History
	for r := range d.processes {
		theirs := d.snapshots[r].History
		if n, differ := own.differs(theirs); differ && (!ok || n < seq) {
			rank, seq, ok = r, n, true
		}
	}
	return rank, seq, ok
}

// furthest returns the last collective that any rank has called.
func (d *diagnosis) furthest() (last collective) {
	for r := range d.processes {
		if s, ok := d.snapshots[r]; ok && s.Call.Seq > last.Seq {
			last = s.Call
		}
	}
	return last
}

// silent returns findings about the ranks that did not answer.
func (d *diagnosis) silent() (found []finding) {
	halted := map[int]Cause{}
	for _, s := range d.snapshots {
		for r, c := range s.Halted {
			halted[r] = c
		}
	}
	cut := map[string]bool{} // hosts
	for r := range d.processes {
		if _, ok := d.snapshots[r]; ok {
			continue
		}
		host := d.processes[r].Host
		switch c := halted[r]; {
		case c == Stopped:
			found = append(found, finding{Stopped, []int{r}, d.processes.name(r) + "'s process is stopped, by a signal or a debugger"})
		case c == Dead:
			found = append(found, finding{Dead, []int{r}, d.processes.name(r) + "'s process has ended"})
		case host != d.processes[d.by].Host && !d.anyAnswered(host):
			if !cut[host] {
				cut[host] = true
				found = append(found, finding{Cut, d.ranksOf(host), fmt.Sprintf("nothing comes from host %s, which has ranks %s: the network between it and host %s carries nothing, or the host stands still", host, rankList(d.ranksOf(host)), d.processes[d.by].Host)})
			}
		default:
			found = append(found, finding{Silent, []int{r}, d.processes.name(r) + " does not answer: its process cannot run"})
		}
	}
	return found
}

// anyAnswered reports whether any rank of a host has answered.
func (d *diagnosis) anyAnswered(host string) bool {
	for r := range d.snapshots {
		if d.processes[r].Host == host {
			return true
		}
	}
	return false
}

// ranksOf returns the ranks of a host.
func (d *diagnosis) ranksOf(host string) (ranks []int) {
	for r, w := range d.processes {
		if w.Host == host {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// stuck returns findings about the ranks with a GPU or driver that does not answer.
func (d *diagnosis) stuck() (found []finding) {
	for r := range d.processes {
		if s := d.snapshots[r]; s.Does == executor.Stuck {
			found = append(found, finding{GPU, []int{r}, fmt.Sprintf("%s: its GPU does not answer: a call of the driver that only asks has not returned", d.processes.name(r))})
		}
	}
	return found
}

// missing returns a collective that others have called and a rank has not. There is none for a
// rank with an operation that has not ended: its program may wait for that.
func (d *diagnosis) missing(r int) (what collective, ok bool) {
	s, ok := d.snapshots[r]
	what = d.furthest()
	if !ok || s.Call.Seq >= what.Seq || s.Does == executor.Begun || s.Does == executor.Behind {
		return what, false
	}
	if next, ok := d.call(s.Call.Seq + 1); ok {
		what = next
	}
	return what, true
}

// notCalled returns findings about the ranks that have not called what others have, and do not wait
// in another communicator.
func (d *diagnosis) notCalled() (found []finding) {
	for r := range d.processes {
		if what, ok := d.missing(r); ok && len(d.snapshots[r].Others) == 0 {
			found = append(found, finding{NotCalled, []int{r}, fmt.Sprintf("%s has not called %s: %s", d.processes.name(r), what, d.snapshots[r].lastCall())})
		}
	}
	if len(found) > 0 {
		return found
	}
	return d.partnerless(func(s Snapshot) bool { return s.Does == executor.Idle })
}

// waitsElsewhere returns findings about the ranks that have not called what others have because
// they wait in another communicator.
func (d *diagnosis) waitsElsewhere() (found []finding) {
	for r := range d.processes {
		if what, ok := d.missing(r); ok && len(d.snapshots[r].Others) > 0 {
			found = append(found, finding{Elsewhere, []int{r}, fmt.Sprintf("%s has not called %s: it waits in %s", d.processes.name(r), what, d.snapshots[r].Others[0])})
		}
	}
	return found
}

// ordered returns a finding if ranks have called this communicator's operation and one of another
// communicator in different orders: each waits for a rank that does the other one first.
func (d *diagnosis) ordered() (found []finding) {
	var before, after []int // ranks that do the other communicator's operation first, or this one's
	var what string
	own := d.oldest()
	for r := range d.processes {
		s := d.snapshots[r]
		_, missing := d.missing(r)
		if s.Does != executor.Behind && !missing {
			continue
		}
		for _, o := range s.Others {
			for q := range d.processes {
				if q == r || !d.snapshots[q].waits() || !slices.Contains(o.WaitsFor, d.processes[q]) {
					continue
				}
				if missing && d.snapshots[q].Calls[o.Name] >= o.Seq { // it is not this one that r waits for
					continue
				}
				what = fmt.Sprintf("%s of communicator %q", o.What, o.Name)
				before, after = append(before, r), append(after, q)
			}
		}
	}
	if len(before) == 0 {
		return nil
	}
	for r := range d.processes { // others that wait for the same ranks
		if s := d.snapshots[r]; s.waits() && slices.ContainsFunc(s.WaitsFor, func(q int) bool { return slices.Contains(before, q) }) {
			after = append(after, r)
		}
	}
	slices.Sort(before)
	slices.Sort(after)
	before, after = slices.Compact(before), slices.Compact(after)
	ranks := before
	switch {
	case len(after) < len(before):
		ranks = after
	case len(after) == len(before):
		ranks = slices.Concat(before, after)
	}
	if at := d.snapshots[before[0]]; at.Does == executor.Behind {
		own = at.current().String()
	}
	return []finding{{Order, ranks, fmt.Sprintf("%s called %s before %s of this communicator, %s the other way round: each waits for the other",
		d.names(before), what, own, d.names(after))}}
}

// names names ranks in a sentence that continues with what they did.
func (d *diagnosis) names(ranks []int) string {
	if len(ranks) == 1 {
		return d.processes.name(ranks[0])
	}
	return "ranks " + rankList(ranks)
}

// blocked returns findings about the ranks that others wait for and that have not begun their
// operation.
func (d *diagnosis) blocked() (found []finding) {
	awaited := map[int]bool{}
	known := false
	for _, s := range d.snapshots {
		for _, r := range s.WaitsFor {
			awaited[r], known = true, true
		}
	}
	for r := range d.processes {
		s, ok := d.snapshots[r]
		if !ok || s.Does != executor.Behind || known && !awaited[r] {
			continue
		}
		by := "work that is not ours"
		switch {
		case len(s.Others) > 0:
			by = s.Others[0].String()
		case s.OtherCall != "":
			by += ", or " + s.OtherCall
		}
		found = append(found, finding{Blocked, []int{r}, fmt.Sprintf("%s has called %s, which has not begun: its stream or its GPU is blocked by %s", d.processes.name(r), s.currentText(), by)})
	}
	return found
}

// unlaunched returns findings about the idle ranks that others wait for in a CUDA graph.
func (d *diagnosis) unlaunched() (found []finding) {
	awaited := map[int][]int{} // by which ranks
	for r := range d.processes {
		s := d.snapshots[r]
		for _, p := range s.WaitsFor {
			if s.Graph && d.snapshots[p].Does == executor.Idle {
				awaited[p] = append(awaited[p], r)
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(awaited)) {
		found = append(found, finding{NotCalled, []int{r}, fmt.Sprintf("%s has not begun the operation that %s for in a CUDA graph: it has not launched its graph, or the graph is behind work that is not ours; %s", d.processes.name(r), waitText(awaited[r]), d.snapshots[r].lastCall())})
	}
	return found
}

// waitText is the beginning of a clause about ranks that wait.
func waitText(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d waits", ranks[0])
	}
	return "ranks " + rankList(ranks) + " wait"
}

// unclear says what is known of a hang without a finding.
func (d *diagnosis) unclear() string {
	var busy []string
	graph := false
	for r := range d.processes {
		if s := d.snapshots[r]; s.waits() {
			busy = append(busy, d.processes.name(r)+waitsFor(s.WaitsFor))
			graph = graph || s.Graph
		}
	}
	if graph {
		return fmt.Sprintf("ranks wait for one another in CUDA graphs: %s: they have launched different graphs, or graphs in another order", join(busy, " and "))
	}
	return fmt.Sprintf("all ranks have called %s, which has not ended on %s: the calls of all ranks agree, and nothing that the library sees is the reason", d.oldest(), join(busy, " and "))
}

// waitsFor is a clause that follows a rank.
func waitsFor(ranks []int) string {
	if len(ranks) == 0 {
		return ""
	}
	return ", which waits for rank " + rankList(ranks)
}

// states returns what is known of each rank, for programs.
func (d *diagnosis) states() (all []State) {
	for r := range d.processes {
		s, ok := d.snapshots[r]
		p := d.processes[r]
		state := State{Rank: r, Host: p.Host, PID: p.PID, GPU: p.GPU, Answered: ok}
		if ok {
			state.Called, state.Last, state.Ago, state.Doing, state.WaitsFor = s.Call.Seq, s.lastText(), s.Ago, string(s.Does), s.WaitsFor
		}
		all = append(all, state)
	}
	return all
}

// oldest returns the first operation that has not ended, as far as ranks that wait know it.
func (d *diagnosis) oldest() string {
	var first position
	for r := range d.processes {
		if s, ok := d.snapshots[r]; ok && s.waits() && s.Oldest != nil && (first.Call.Seq == 0 || s.Oldest.Call.Seq < first.Call.Seq) {
			first = *s.Oldest
		}
	}
	if first.Call.Seq == 0 {
		return d.furthest().String()
	}
	return first.String()
}
