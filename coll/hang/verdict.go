package hang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

// A Cause is why a communicator hangs or has failed.
type Cause string

// The causes.
const (
	NotCalled Cause = "not called" // a rank has not called what the others wait for
	Differs   Cause = "differs"    // ranks called different operations, counts, types, reductions or roots
	Unmatched Cause = "unmatched"  // a Send without its Recv, or a Recv without its Send
	Stopped   Cause = "stopped"    // a rank's process is stopped, by a signal or a debugger
	Dead      Cause = "dead"       // a rank's process has ended
	Silent    Cause = "silent"     // a rank does not answer, for an unknown reason
	Cut       Cause = "network"    // nothing arrives from any rank of a host
	Blocked   Cause = "blocked"    // a rank's operation waits behind other work
	Elsewhere Cause = "elsewhere"  // a rank has not called it because it waits in another communicator, whose verdict says why
	Order     Cause = "order"      // ranks called operations of two communicators in different orders
	GPU       Cause = "gpu"        // a GPU, or its driver, does not answer or has failed
	Unclear   Cause = "unclear"    // all ranks have called the operation, and it does not end
	Resumed   Cause = "resumed"    // the communicator continues after a verdict
)

// A Verdict says why a communicator hangs or has failed.
type Verdict struct {
	Schema       string    `json:"schema"` // VerdictSchema
	Time         time.Time `json:"time"`
	Communicator string    `json:"communicator"`
	Size         int       `json:"size"`
	By           int       `json:"by"` // the rank that gives the verdict
	Cause        Cause     `json:"cause"`
	Ranks        []int     `json:"ranks"` // that are the cause; none if it is unclear
	Text         string    `json:"text"`  // a sentence for people, without the communicator's name
	States       []State   `json:"states,omitempty"`

	File string `json:"-"` // where the verdict is written; "": nowhere
}

// String formats the verdict for people.
func (v Verdict) String() string {
	s := fmt.Sprintf("communicator %q: %s", v.Communicator, v.Text)
	if v.File != "" {
		s += " (" + v.File + ")"
	}
	return s
}

// VerdictSchema is the name of a Verdict's JSON schema.
const VerdictSchema = "assay.hang/1"

// A State is what is known of a rank.
type State struct {
	Rank     int    `json:"rank"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	GPU      int    `json:"gpu"`
	Answered bool   `json:"answered"`
	Called   uint32 `json:"called"`    // collectives
	Last     string `json:"last"`      // its last call
	Ago      int    `json:"ago"`       // seconds since then
	Doing    string `json:"doing"`     // idle, begun, behind, slow, stuck; "": unknown
	WaitsFor []int  `json:"waits_for"` // ranks, if it has begun
}

// A head is a rank's progress in a communicator.
type head struct {
	Ask    bool              `json:"ask,omitempty"`    // asks the others for theirs
	To     int               `json:"to"`               // the rank that this answers
	Said   bool              `json:"said,omitempty"`   // a verdict was given
	Number uint32            `json:"number,omitempty"` // of the collective that is asked about; 0: the whole head
	Was    *stall            `json:"was,omitempty"`    // that collective; nil: not called, or forgotten
	Call   stall             `json:"call"`             // its last collective
	P2P    int               `json:"p2p,omitempty"`    // Sends and Recvs since then; a group counts as one
	Peer   int               `json:"peer"`             // of the last of these; op.NoPeer: several
	Ago    int               `json:"ago"`              // seconds since its last call
	Does   executor.Progress `json:"does"`
	For    []int             `json:"for,omitempty"`   // ranks that it waits for
	Graph  bool              `json:"graph,omitempty"` // it waits in an operation of a CUDA graph
	Else   string            `json:"else,omitempty"`
	Near   map[int]Cause     `json:"near,omitempty"` // ranks of its host with processes that do not run
	In     *place            `json:"in,omitempty"`   // the first operation that has not ended; nil: not known
	Window *window           `json:"window,omitempty"`
	Sent   []uint32          `json:"sent,omitempty"`   // Sends that it has called, by peer
	Rcvd   []uint32          `json:"rcvd,omitempty"`   // Recvs
	Others []elsewhere       `json:"others,omitempty"` // if it has called nothing that has begun
	Calls  map[string]uint32 `json:"calls,omitempty"`  // collectives that it has called in other communicators, by name
}

// A place is an operation in the order of a rank's calls.
type place struct {
	Call  stall `json:"call"`            // the collective, or the last one before the Sends and Recvs
	P2P   int   `json:"p2p,omitempty"`   // Sends and Recvs since then; a group counts as one
	Peer  int   `json:"peer"`            // of the last of these; op.NoPeer: several
	Since int   `json:"since,omitempty"` // how many operations the rank has called after it
}

// String describes the operation for people.
func (p place) String() string {
	switch {
	case p.P2P == 0:
		return p.Call.String()
	case p.Peer != op.NoPeer:
		return fmt.Sprintf("a Send to or Recv from rank %d", p.Peer)
	}
	return "Sends or Recvs"
}

// ago says how many operations the rank has called after it.
func (p place) ago() string {
	switch p.Since {
	case 0:
		return ""
	case 1:
		return ", one call ago"
	}
	return fmt.Sprintf(", %d calls ago", p.Since)
}

func (h head) waits() bool { return h.Does == executor.Begun || h.Does == executor.Unknown }

// A hang is the input from which a verdict is derived.
type hang struct {
	size  int
	by    int
	who   Processes
	heads map[int]head                   // of the ranks that answered
	call  func(seq uint32) (stall, bool) // the judging rank's call with a number
}

func (g *hang) name(r int) string { return g.who.name(r) }

// A finding is one reason, and the ranks that it concerns.
type finding struct {
	cause Cause
	ranks []int
	text  string
}

// judge returns why nothing moves; false if nothing is known to be wrong, for example if all
// ranks wait for work of their own.
func (g *hang) judge() (Cause, []int, string, bool) {
	waiting := false
	for _, h := range g.heads {
		waiting = waiting || h.waits()
	}
	if !waiting {
		return "", nil, "", false
	}
	for _, look := range [...]func() []finding{g.silent, g.stuck, g.behind, g.ordered, g.away, g.blocked, g.unmatched, g.unlaunched, g.unreceived} {
		found := look()
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
		text := few(texts, "; ")
		if c := found[0].cause; c == Stopped || c == Dead || c == Silent || c == Cut || c == GPU {
			text += fmt.Sprintf(": rank %d waits in %s", g.by, g.heads[g.by].in())
		}
		return found[0].cause, slices.Compact(ranks), text, true
	}
	for _, h := range g.heads {
		if h.Does == executor.Slow { // it may be at fault
			return "", nil, "", false
		}
	}
	return Unclear, nil, g.unclear(), true
}

// differs returns the first collective that a rank called otherwise than the judging rank did.
func (g *hang) differs() (rank int, seq uint32, ok bool) {
	mine := g.heads[g.by].Window
	for r := range g.size {
		theirs := g.heads[r].Window
		if mine == nil || theirs == nil {
			continue
		}
		if n, differ := mine.differs(*theirs); differ && (!ok || n < seq) {
			rank, seq, ok = r, n, true
		}
	}
	return rank, seq, ok
}

// furthest returns the last collective that any rank has called.
func (g *hang) furthest() (last stall) {
	for r := range g.size {
		if h, ok := g.heads[r]; ok && h.Call.Seq > last.Seq {
			last = h.Call
		}
	}
	return last
}

// silent returns findings about the ranks that did not answer.
func (g *hang) silent() (found []finding) {
	near := map[int]Cause{}
	for _, h := range g.heads {
		for r, c := range h.Near {
			near[r] = c
		}
	}
	said := map[string]bool{} // hosts
	for r := range g.size {
		if _, ok := g.heads[r]; ok {
			continue
		}
		host := g.who[r].Host
		switch c := near[r]; {
		case c == Stopped:
			found = append(found, finding{Stopped, []int{r}, g.name(r) + "'s process is stopped, by a signal or a debugger"})
		case c == Dead:
			found = append(found, finding{Dead, []int{r}, g.name(r) + "'s process has ended"})
		case host != g.who[g.by].Host && !g.answers(host):
			if !said[host] {
				said[host] = true
				found = append(found, finding{Cut, g.of(host), fmt.Sprintf("nothing comes from host %s, which has ranks %s: the network between it and host %s carries nothing, or the host stands still", host, list(g.of(host)), g.who[g.by].Host)})
			}
		default:
			found = append(found, finding{Silent, []int{r}, g.name(r) + " does not answer: its process cannot run"})
		}
	}
	return found
}

// answers reports whether any rank of a host has answered.
func (g *hang) answers(host string) bool {
	for r := range g.heads {
		if g.who[r].Host == host {
			return true
		}
	}
	return false
}

func (g *hang) of(host string) (ranks []int) {
	for r, w := range g.who {
		if w.Host == host {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// stuck returns findings about the ranks with a GPU or driver that does not answer.
func (g *hang) stuck() (found []finding) {
	for r := range g.size {
		if h := g.heads[r]; h.Does == executor.Stuck {
			found = append(found, finding{GPU, []int{r}, fmt.Sprintf("%s: its GPU does not answer: a call of the driver that only asks has not returned", g.name(r))})
		}
	}
	return found
}

// missing returns a collective that others have called and a rank has not. There is none for a
// rank with an operation that has not ended: its program may wait for that.
func (g *hang) missing(r int) (what stall, ok bool) {
	h, ok := g.heads[r]
	what = g.furthest()
	if !ok || h.Call.Seq >= what.Seq || h.Does == executor.Begun || h.Does == executor.Behind {
		return what, false
	}
	if next, ok := g.call(h.Call.Seq + 1); ok {
		what = next
	}
	return what, true
}

// behind returns findings about the ranks that have not called what others have, and do not wait
// in another communicator.
func (g *hang) behind() (found []finding) {
	for r := range g.size {
		if what, ok := g.missing(r); ok && len(g.heads[r].Others) == 0 {
			found = append(found, finding{NotCalled, []int{r}, fmt.Sprintf("%s has not called %s: %s", g.name(r), what, g.heads[r].last())})
		}
	}
	if len(found) > 0 {
		return found
	}
	return g.partnerless(func(h head) bool { return h.Does == executor.Idle })
}

// away returns findings about the ranks that have not called what others have because they wait in
// another communicator.
func (g *hang) away() (found []finding) {
	for r := range g.size {
		if what, ok := g.missing(r); ok && len(g.heads[r].Others) > 0 {
			found = append(found, finding{Elsewhere, []int{r}, fmt.Sprintf("%s has not called %s: it waits in %s", g.name(r), what, g.heads[r].Others[0])})
		}
	}
	return found
}

// ordered returns a finding if ranks have called this communicator's operation and one of another
// communicator in different orders: each waits for a rank that does the other one first.
func (g *hang) ordered() (found []finding) {
	var before, after []int // ranks that do the other communicator's operation first, or this one's
	var what string
	mine := g.first()
	for r := range g.size {
		h := g.heads[r]
		_, missing := g.missing(r)
		if h.Does != executor.Behind && !missing {
			continue
		}
		for _, o := range h.Others {
			for q := range g.size {
				if q == r || !g.heads[q].waits() || !slices.Contains(o.For, g.who[q]) {
					continue
				}
				if missing && g.heads[q].Calls[o.Name] >= o.Seq { // it is not this one that r waits for
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
	for r := range g.size { // others that wait for the same ranks
		if h := g.heads[r]; h.waits() && slices.ContainsFunc(h.For, func(q int) bool { return slices.Contains(before, q) }) {
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
	if at := g.heads[before[0]]; at.Does == executor.Behind {
		mine = at.at().String()
	}
	return []finding{{Order, ranks, fmt.Sprintf("%s called %s before %s of this communicator, %s the other way round: each waits for the other",
		g.these(before), what, mine, g.these(after))}}
}

func (g *hang) these(ranks []int) string {
	if len(ranks) == 1 {
		return g.name(ranks[0])
	}
	return "ranks " + list(ranks)
}

// known reports whether all ranks have said what they called.
func (g *hang) known() bool {
	for r := range g.size {
		if g.heads[r].Was == nil {
			return false
		}
	}
	return true
}

// differing returns the ranks that called a different collective than most did, under a number,
// and the text that says so.
func (g *hang) differing(number uint32) (ranks []int, text string) {
	by := map[uint32][]int{} // sign
	was := map[uint32]stall{}
	for r := range g.size {
		if h := g.heads[r]; h.Was != nil {
			by[h.Was.Sign], was[h.Was.Sign] = append(by[h.Was.Sign], r), *h.Was
		}
	}
	signs := slices.Collect(maps.Keys(by))
	slices.SortFunc(signs, func(a, b uint32) int {
		if a == op.Destroying || b == op.Destroying { // a rank that leaves while others continue is the one that differs
			return cmp.Compare(a, b)
		}
		return cmp.Or(len(by[b])-len(by[a]), by[a][0]-by[b][0])
	})
	var said []string
	tie := len(signs) > 1 && len(by[signs[0]]) == len(by[signs[1]]) && signs[1] != op.Destroying
	for i, s := range signs {
		if i == 0 && !tie {
			continue
		}
		ranks = append(ranks, by[s]...)
		for _, r := range by[s] {
			said = append(said, fmt.Sprintf("%s called %s", g.name(r), was[s].operation()))
		}
	}
	slices.Sort(ranks)
	text = fmt.Sprintf("ranks called different operations under number #%d: %s", number, few(said, "; "))
	if !tie && len(signs) > 0 {
		text += fmt.Sprintf(", where rank %s called %s", list(by[signs[0]]), was[signs[0]].operation())
	}
	return ranks, text
}

// blocked returns findings about the ranks that others wait for and that have not begun their
// operation.
func (g *hang) blocked() (found []finding) {
	awaited := map[int]bool{}
	known := false
	for _, h := range g.heads {
		for _, r := range h.For {
			awaited[r], known = true, true
		}
	}
	for r := range g.size {
		h, ok := g.heads[r]
		if !ok || h.Does != executor.Behind || known && !awaited[r] {
			continue
		}
		by := "work that is not ours"
		switch {
		case len(h.Others) > 0:
			by = h.Others[0].String()
		case h.Else != "":
			by += ", or " + h.Else
		}
		found = append(found, finding{Blocked, []int{r}, fmt.Sprintf("%s has called %s, which has not begun: its stream or its GPU is blocked by %s", g.name(r), h.in(), by)})
	}
	return found
}

// unlaunched returns findings about the idle ranks that others wait for in a CUDA graph.
func (g *hang) unlaunched() (found []finding) {
	awaited := map[int][]int{} // by which ranks
	for r := range g.size {
		h := g.heads[r]
		for _, p := range h.For {
			if h.Graph && g.heads[p].Does == executor.Idle {
				awaited[p] = append(awaited[p], r)
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(awaited)) {
		found = append(found, finding{NotCalled, []int{r}, fmt.Sprintf("%s has not begun the operation that %s for in a CUDA graph: it has not launched its graph, or the graph is behind work that is not ours; %s", g.name(r), wait(awaited[r]), g.heads[r].last())})
	}
	return found
}

func wait(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d waits", ranks[0])
	}
	return "ranks " + list(ranks) + " wait"
}

// inGraph describes an operation of a CUDA graph for people. It is not known which one: the host
// only sees its capture.
const inGraph = "an operation of a CUDA graph"

func (g *hang) unclear() string {
	var busy []string
	graph := false
	for r := range g.size {
		if h := g.heads[r]; h.waits() {
			busy = append(busy, g.name(r)+waitsFor(h.For))
			graph = graph || h.Graph
		}
	}
	if graph {
		return fmt.Sprintf("ranks wait for one another in CUDA graphs: %s: they have launched different graphs, or graphs in another order", few(busy, " and "))
	}
	return fmt.Sprintf("all ranks have called %s, which has not ended on %s: the calls of all ranks agree, and nothing that the library sees is the reason", g.first(), few(busy, " and "))
}

func waitsFor(ranks []int) string {
	if len(ranks) == 0 {
		return ""
	}
	return ", which waits for rank " + list(ranks)
}

// states returns what is known of each rank, for programs.
func (g *hang) states() (all []State) {
	for r := range g.size {
		h, ok := g.heads[r]
		w := g.who[r]
		s := State{Rank: r, Host: w.Host, PID: w.PID, GPU: w.GPU, Answered: ok}
		if ok {
			s.Called, s.Last, s.Ago, s.Doing, s.WaitsFor = h.Call.Seq, h.what(), h.Ago, string(h.Does), h.For
		}
		all = append(all, s)
	}
	return all
}

// first returns the first operation that has not ended, as far as ranks that wait know it.
func (g *hang) first() string {
	var first place
	for r := range g.size {
		if h, ok := g.heads[r]; ok && h.waits() && h.In != nil && (first.Call.Seq == 0 || h.In.Call.Seq < first.Call.Seq) {
			first = *h.In
		}
	}
	if first.Call.Seq == 0 {
		return g.furthest().String()
	}
	return first.String()
}
