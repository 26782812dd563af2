// Package judge says whether what a benchmark printed is what the hardware should reach: tables of nccl-tests, rccl-tests and
// harness coll, of perftest, nvbandwidth, bandwidthTest, p2pBandwidthLatencyTest and dcgmi diag, as text or JSON. It reads
// files and nothing else.
//
// What hardware should reach comes from reach.yaml and from the hardware database; how a range for each size follows is in
// reference.go. A verdict is given only where the platform is known, from --platform or from the text.
package judge

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/harness/explain"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/words"
)

// A Verdict is about a measurement, or one of its rows.
type Verdict string

// The verdicts. Of rows there are also Low, High and Small.
const (
	OK          Verdict = "ok"
	Slow        Verdict = "slow"
	Fail        Verdict = "fail"        // a check failed, or results are wrong
	Invalid     Verdict = "invalid"     // it measures nothing
	Impossible  Verdict = "impossible"  // more than the hardware carries
	Undecidable Verdict = "undecidable" // what would decide is in Ask

	Low   Verdict = "low"
	Small Verdict = "too small" // latency decides
	Wrong Verdict = "wrong"     // results are wrong
)

// severity orders verdicts: the worst of several is that of all.
var severity = []Verdict{Fail, Impossible, Slow, Invalid, Undecidable, OK}

// A Judgement is about one measurement.
type Judgement struct {
	Verdict    Verdict    `json:"verdict"`
	Summary    string     `json:"summary"`
	Subject    string     `json:"subject"`    // "all_reduce by nccl-tests"
	Understood []string   `json:"understood"` // what was read, and from where
	Line       int        `json:"line"`       // of the file, where its figures begin
	Unit       string     `json:"unit,omitempty"`
	Reference  *Reference `json:"reference,omitempty"`
	Rows       []Judged   `json:"rows,omitempty"`
	Causes     []Cause    `json:"causes,omitempty"` // the most likely first
	Notes      []string   `json:"notes,omitempty"`  // what is not the fault, and what figures mean
	Ask        []string   `json:"ask,omitempty"`    // what would decide
	Sources    []string   `json:"sources,omitempty"`

	aside    bool // it has no part in the verdict on several
	hideRows bool // a text has no room for them, and they say nothing
}

// A Judged is one row: a size, or a pair of devices.
type Judged struct {
	What     string  `json:"what"`
	Bytes    int64   `json:"bytes,omitempty"`
	Measured float64 `json:"measured"`
	InPlace  float64 `json:"inPlace,omitempty"`
	Low      float64 `json:"low,omitempty"`
	High     float64 `json:"high,omitempty"`
	Verdict  Verdict `json:"verdict"`
}

// A Cause is why a measurement may be low.
type Cause struct {
	Text   string   `json:"cause"`
	Shown  []string `json:"evidence,omitempty"`
	Remedy []string `json:"remedy,omitempty"`
	Decide string   `json:"decide,omitempty"` // the command whose output tells it from the others
	Source []string `json:"source,omitempty"`
}

// A Report is about all measurements of an input.
type Report struct {
	Schema       int          `json:"schema"` // 1
	Verdict      Verdict      `json:"verdict"`
	Platform     *Machine     `json:"platform,omitempty"`
	Measurements []*Judgement `json:"measurements"`
	// Log is what the text says besides figures, as harness explain reads it.
	Log []explain.Cause `json:"log,omitempty"`
}

// ErrNothing says that no measurement was found.
var ErrNothing = fmt.Errorf("no output of nccl-tests, rccl-tests, harness coll, perftest, nvbandwidth, bandwidthTest, p2pBandwidthLatencyTest or dcgmi diag was found; harness explain reads logs")

// A Judge judges by a machine; nil: it follows from the text, if that says.
type Judge struct {
	DB      *platform.DB
	Machine *Machine
	Rules   *explain.Set // of [Rules]
}

// File judges what a file contains.
func (j *Judge) File(name string, text []byte) (*Report, error) {
	return j.Explained(name, text, j.Rules.Explain([]explain.File{{Name: name, Text: text}}))
}

// Explained judges what a file contains that was explained, by rules of [Rules] and alone.
func (j *Judge) Explained(name string, text []byte, log *explain.Report) (*Report, error) {
	in := newInput(name, text, log)
	in.db = j.DB
	in.machine, in.rules = j.Machine, j.Rules
	in.readVars()
	r := &Report{Schema: 1, Platform: j.Machine}
	for _, c := range log.Causes {
		if c.Verdict != explain.NoFault {
			in.log = append(in.log, c)
		}
	}
	for _, read := range []func(*input) []*Judgement{collectives, perftests, matrices, diags} {
		r.Measurements = append(r.Measurements, read(in)...)
	}
	if len(r.Measurements) == 0 {
		m := in.failed(log)
		if m == nil {
			return nil, ErrNothing
		}
		r.Measurements = append(r.Measurements, m)
	}
	slices.SortStableFunc(r.Measurements, func(a, b *Judgement) int { return cmp.Compare(a.Line, b.Line) })
	r.Verdict = OK
	main := slices.ContainsFunc(r.Measurements, func(m *Judgement) bool { return !m.aside })
	for _, m := range r.Measurements {
		if !m.aside || !main || m.Verdict != Undecidable {
			r.Verdict = worst(r.Verdict, m.Verdict)
		}
	}
	if m := j.Machine; m != nil && m.gpu == nil && m.NICs == 0 {
		for _, e := range r.Measurements {
			e.Notes = append(e.Notes, "--platform names no GPU and no NIC that is known: "+explain.Shown(m.Name))
		}
	}
	for _, e := range r.Measurements {
		e.clean()
	}
	r.Log = in.log
	return r, nil
}

var outOfBounds = regexp.MustCompile(`Out of bounds values *: *[1-9]\d* FAILED`)

var programs = regexp.MustCompile(`nThread \d+ nGpus \d+|#\s+(?:size\s+count|bytes\s+N)\s+type|Test (?:NCCL|CUDA) failure|\b(?:ib_(?:write|read|send|atomic)_(?:bw|lat)|\w+_perf|nvbandwidth|bandwidthTest|p2pBandwidthLatencyTest|dcgmi)\b|Failed status \d+: wr_id|mpirun detected that one or more processes exited|Primary job +terminated normally, but|srun: error: .*: task \d+: |Couldn't allocate MR|Completion with error at`)

// failed judges a text that has no figure, but a benchmark's error.
func (in *input) failed(log *explain.Report) *Judgement {
	m, line := in.find(programs, "")
	if m == nil {
		return nil
	}
	j := &Judgement{Verdict: Invalid, Subject: m[0], Line: max(line, 1), Summary: "nothing was measured: the run ended before its first figure"}
	if strings.HasPrefix(m[0], "nThread") || strings.Contains(m[0], " type") || strings.HasPrefix(m[0], "Test ") {
		j.Subject = "nccl-tests"
		j.Summary = "the run printed no size: it hangs, it ended with an error, or the text is cut"
		j.Ask = []string{"the rest of the output; if it hangs: NCCL_DEBUG=INFO of all ranks, and harness explain of that"}
	}
	if roots := in.roots(); roots > 1 {
		j.Summary = fmt.Sprintf("nothing was measured, and the list of devices has %d ranks 0 and no other: as many separate runs", roots)
		j.Causes = []Cause{withoutMPI}
		return j
	}
	if m, _ := in.find(outOfBounds, "Out of bounds"); m != nil {
		j.Verdict, j.Summary = Fail, "results are wrong: "+m[0]
		j.fromLog(in)
		return j
	}
	if len(in.log) > 0 && (in.log[0].Verdict == explain.Fault || in.log[0].Verdict == explain.Undecidable) {
		j.Verdict, j.Ask = Fail, nil
		j.Summary = "nothing was measured: " + in.log[0].Cause
	} else {
		j.Ask = append(j.Ask, log.Ask...)
	}
	for _, c := range in.log {
		j.Ask = append(j.Ask, c.Ask...)
	}
	j.fromLog(in)
	return j
}

// roots returns how many ranks 0 are listed; 0 if there are others.
func (in *input) roots() int {
	n := 0
	for _, l := range in.lines {
		if m := rankLine.FindStringSubmatch(l.text); m != nil {
			if m[1] != "0" {
				return 0
			}
			n++
		}
	}
	return n
}

// worst returns the worse of two verdicts.
func worst(a, b Verdict) Verdict {
	if slices.Index(severity, b) < slices.Index(severity, a) {
		return b
	}
	return a
}

// clean makes texts fit to print: without secrets and control characters that a file may have put into them.
func (j *Judgement) clean() {
	j.Subject, j.Summary = explain.Shown(j.Subject), explain.Shown(j.Summary)
	for _, list := range [][]string{j.Understood, j.Notes, j.Ask, j.Sources} {
		for i := range list {
			list[i] = explain.Shown(list[i])
		}
	}
	for i := range j.Causes {
		j.Causes[i].Text = explain.Shown(j.Causes[i].Text)
		for k := range j.Causes[i].Shown {
			j.Causes[i].Shown[k] = explain.Shown(j.Causes[i].Shown[k])
		}
	}
}

// Add adds the report of another file.
func (r *Report) Add(o *Report) {
	r.Measurements, r.Log = append(r.Measurements, o.Measurements...), append(r.Log, o.Log...)
	r.Verdict = worst(r.Verdict, o.Verdict)
}

// collectives judges the tables of collectives.
func collectives(in *input) (out []*Judgement) {
	tables := append(readTables(in.lines), in.jsonTables()...)
	for _, t := range tables {
		out = append(out, judgeTable(in, t))
	}
	if in.apart(tables) {
		for _, j := range out {
			j.Causes = slices.Insert(j.Causes, 0, withoutMPI)
		}
	}
	if m, line := in.find(average, "Avg bus"); m != nil && len(out) == 0 {
		if t := in.oneSize(m[1], line); t != nil {
			return append(out, judgeTable(in, t))
		}
		out = append(out, &Judgement{
			Verdict: Undecidable, Subject: "the average of nccl-tests", Line: line,
			Summary: fmt.Sprintf("%s GB/s is the average over all sizes, small ones too: it depends on -b and -e, and says nothing of the hardware", m[1]),
			Ask:     []string{"the whole table, and the lines above it (\"Rank ... on HOST device\")", "the platform: --platform"},
		})
	}
	return out
}

var (
	fromSize  = regexp.MustCompile(`_perf\b.*\s(?:-b|--minbytes)[ =]*(\d+[KMG]?)\b`)
	toSize    = regexp.MustCompile(`_perf\b.*\s(?:-e|--maxbytes)[ =]*(\d+[KMG]?)\b`)
	startedBy = regexp.MustCompile(`\b(?:mpirun|mpiexec|srun)\b(.*?)\s(?:-np|-n|--ntasks)[ =](\d+)`)
)

// oneSize returns the table of a run of which the average alone is left, if it had one size: then it is that size's.
func (in *input) oneSize(busbw string, line int) *Table {
	from, _ := in.find(fromSize, "_perf")
	to, _ := in.find(toSize, "_perf")
	name, _ := in.find(command, "_perf")
	v, err := strconv.ParseFloat(busbw, 64)
	if from == nil || to == nil || name == nil || from[1] != to[1] || err != nil {
		return nil
	}
	t := &Table{Program: "nccl-tests", Collective: strings.Replace(name[1], "allgather", "all_gather", 1), line: line, average: v}
	if n, _ := in.find(startedBy, ""); n != nil && !strings.Contains(n[1], "_perf") { // -n is nccl-tests', too
		t.Ranks, _ = strconv.Atoi(n[2])
	}
	if m := in.machine; m != nil {
		t.Nodes = m.Nodes
		if t.Ranks == 0 {
			t.Ranks = m.Nodes * m.PerNode
		}
	}
	number := strings.TrimRight(from[1], "KMG")
	bytes, err := strconv.ParseInt(number, 10, 40)
	unit := from[1][len(number):]
	if err != nil || unit != "" && bytes > 1<<20 {
		return nil
	}
	if unit != "" {
		bytes <<= 10 * (1 + strings.Index("KMG", unit))
	}
	t.Rows = []Row{{Bytes: bytes, line: line, Out: &Timing{BusBW: v, AlgBW: v / busFactor(t.Collective, t.Ranks), Wrong: -1}}}
	return t
}

func judgeTable(in *input, t *Table) *Judgement {
	m := in.machineOf(t)
	if v, ok := in.set("NCCL_ALGO"); ok {
		t.algorithm = v.value
	}
	j := &Judgement{Subject: cmp.Or(t.Collective, "a collective") + " by " + t.Program, Line: t.line, Unit: "GB/s busbw", Understood: t.understood(m)}
	if n := in.separate(); n > 0 && t.listed <= n {
		j.Verdict, j.Causes = Invalid, []Cause{withoutMPI}
		j.Summary = fmt.Sprintf("several separate runs side by side, each with a rank 0 of its own and %s: they did not find each other, so nothing between the nodes was measured", words.Count(n, "rank"))
		return j
	}
	if j.invalid(t) || j.wrong(t) {
		return j
	}
	if k := t.Rows[0].kind; t.algorithm == "" && (strings.HasPrefix(k, "f8") || strings.HasPrefix(k, "fp8") || strings.HasSuffix(k, "int8")) {
		t.noSwitch = true
		j.Notes = append(j.Notes, "of type "+k+" the switch cannot reduce (NVLS): it is a ring's speed that is right, or between nodes a tree's")
	}
	ref, missing := expect(t, m)
	if ref == nil {
		fast := m.fastest(in.db)
		if ref, _ = expect(t, fast); ref == nil || ref.judge(t.Rows[len(t.Rows)-1]).Verdict != OK {
			j.unknown(t, m, missing)
			j.fromLog(in)
			return j
		}
		m = fast
		j.Notes = append(j.Notes, "the text does not say which NICs these nodes have; this is as fast as with "+m.nics()+", the fastest that is known with this GPU")
	}
	ref.measured(in.db, m, t)
	j.Reference, j.Sources = ref, ref.Sources
	for _, row := range t.Rows {
		j.Rows = append(j.Rows, ref.judge(row))
	}
	j.decide(in, t, m)
	return j
}

// withoutMPI is why runs stand side by side.
var withoutMPI = Cause{
	Text:   "nccl-tests was built without MPI, so that each launcher starts a run of its own: these are separate runs, one a host, and nothing between hosts is measured",
	Remedy: []string{"make MPI=1 MPI_HOME=..., and look that the list of devices has each rank once"},
	Decide: "ldd all_reduce_perf | grep mpi",
	Source: []string{"https://github.com/NVIDIA/nccl-tests#build"},
}

// apart says whether tables are of runs of one host each that were to be one: of different hosts, in a text about several.
func (in *input) apart(tables []*Table) bool {
	if in.machine == nil || in.machine.Nodes < 2 || len(tables) < 2 {
		return false
	}
	hosts := map[string]bool{}
	for _, t := range tables {
		if len(t.hosts) != 1 || t.Nodes != 1 || t.apart || t.Collective != tables[0].Collective {
			return false
		}
		hosts[t.hosts[0]] = true
	}
	return len(hosts) > 1
}

// invalid recognizes runs that measure nothing.
func (j *Judgement) invalid(t *Table) bool {
	zero, copied := true, false
	for _, r := range t.Rows {
		if b := r.best(); b != nil {
			zero = zero && b.BusBW == 0
			copied = copied || b.AlgBW > 1
		}
	}
	switch {
	case t.Ranks == 1 || zero && (t.Ranks == 0 || copied):
		j.Verdict = Invalid
		j.Summary = "one rank: nothing is transferred, so busbw is 0 by definition, and algbw is a copy within one GPU. It is no fault"
		j.Causes = []Cause{{
			Text:   "the run had one rank (one GPU)",
			Remedy: []string{"use two GPUs or more: -g 2, or mpirun -np 2 with nccl-tests built with MPI=1 (without MPI each of them is a run of its own, with one rank)"},
			Source: []string{"by definition: busbw is algbw * 2(n-1)/n, 0 for n = 1 (documentation of nccl-tests)"},
		}}
		if t.hosts != nil {
			j.Notes = append(j.Notes, "if several ranks were started, each printed such a table: they did not find each other")
		}
	case t.apart && t.Nodes <= 1:
		j.Verdict = Invalid
		j.Summary = fmt.Sprintf("several runs side by side, each with a rank 0 of its own and %s: they did not find each other, so nothing between the nodes was measured (each run by itself has %s GB/s busbw at %s)", words.Count(t.Ranks, "rank"), figure(t.Rows[len(t.Rows)-1].best().BusBW), sizeText(t.Rows[len(t.Rows)-1].Bytes))
		j.Causes = []Cause{withoutMPI}
	case len(t.Rows) == 0 || zero:
		j.Verdict = Invalid
		j.Summary = "every busbw is 0: the table has no measurement"
	default:
		return false
	}
	return true
}

// wrong recognizes tables whose results are wrong: their speed says nothing.
func (j *Judgement) wrong(t *Table) bool {
	var sizes []string
	var lines []int
	checked, elements := false, int64(0)
	for _, r := range t.Rows {
		for _, x := range []*Timing{r.Out, r.In} {
			if x == nil {
				continue
			}
			checked = checked || x.Wrong >= 0
			elements += max(x.Wrong, 0)
			if x.Wrong > 0 && (len(lines) == 0 || lines[len(lines)-1] != r.line) {
				lines = append(lines, r.line)
				sizes = append(sizes, sizeText(r.Bytes))
			}
		}
	}
	if len(lines) == 0 || t.errors && t.inBounds {
		if !checked && len(t.Rows) > 0 {
			j.Notes = append(j.Notes, "results were not checked (-c 0): #wrong is N/A. The speed can be judged, the data cannot")
		}
		return false
	}
	j.Verdict = Fail
	if share := t.wrongShare(); share > 0 {
		j.Notes = append(j.Notes, fmt.Sprintf("the same share of the elements is wrong at every size, %.3g %%: no damage at random, but a part that is missing or twice there, such as that of one rank", 100*share))
	}
	j.Summary = fmt.Sprintf("results are wrong at %s: %d elements differ from what they should be (#wrong; nccl-tests: FAILED). The speed of such a run says nothing", list(sizes, 4), elements)
	j.Causes = []Cause{{
		Text:   "data is corrupted on the way, or in a kernel",
		Shown:  []string{fmt.Sprintf("line %d: #wrong is not 0", lines[0])},
		Remedy: []string{"find where: run with NCCL_P2P_DISABLE=1, then with NCCL_NET_GDR_LEVEL=LOC, then NCCL_NVLS_ENABLE=0, NCCL_PROTO=Simple; what makes #wrong 0 names the path (peer access with IOMMU or ACS on, GPUDirect RDMA, NVLS, LL128 on a platform that reorders)", "then by halves of the GPUs, to find one that is broken; and look into the kernel log for Xid and AER lines (harness explain)", "between nodes also: another version of the network's plugin and library (aws-ofi-nccl, libfabric, UCX), of NCCL and of the NIC's firmware; harness audit lists versions with wrong data"},
		Decide: "NCCL_P2P_DISABLE=1 ./build/all_reduce_perf ... ; harness health",
		Source: []string{"https://github.com/NVIDIA/nccl-tests#arguments", "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"},
	}}
	return true
}

// wrongShare returns the share of the elements that is wrong, if it is the same for all sizes that have wrong ones; else 0.
func (t *Table) wrongShare() float64 {
	share, rows := 0.0, 0
	for _, r := range t.Rows {
		if r.Out == nil || r.Out.Wrong <= 0 || r.Elements == 0 {
			continue
		}
		s := float64(r.Out.Wrong) / float64(r.Elements)
		if rows++; share > 0 && !approximately(s, share, 0.01) {
			return 0
		}
		share = s
	}
	if rows < 3 {
		return 0
	}
	return share
}

// judge judges a row.
func (r *Reference) judge(row Row) Judged {
	for _, t := range []*Timing{row.Out, row.In} {
		// Two decimals say little of a small size: its time does.
		if t != nil && t.BusBW < 1 && t.Microseconds > 0 && r.factor > 0 {
			t.AlgBW = float64(row.Bytes) / t.Microseconds / 1e3
			t.BusBW = t.AlgBW * r.factor
		}
	}
	b := row.best()
	d := Judged{What: sizeText(row.Bytes), Bytes: row.Bytes}
	if row.Out != nil {
		d.Measured = row.Out.BusBW
	}
	if row.In != nil {
		d.InPlace = row.In.BusBW
		if row.Out == nil {
			d.Measured = row.In.BusBW
		}
	}
	d.Low, d.High = r.at(row.Bytes)
	switch {
	case b == nil || row.Bytes == 0 || d.High == 0:
		d.Verdict = Small
	case b.BusBW < d.Low:
		d.Verdict = Low
	case b.BusBW > d.High*1.02+0.01 && !r.small(row.Bytes):
		d.Verdict = Impossible
	case r.small(row.Bytes):
		d.Verdict = Small
	default:
		d.Verdict = OK
	}
	return d
}

// measured narrows the reference by what was published of the same platform.
func (r *Reference) measured(db *platform.DB, m *Machine, t *Table) {
	if db == nil || m.key == "" {
		return
	}
	best, at, source := 0.0, int64(0), ""
	for _, p := range db.MeasuredTables() {
		if p.Platform != m.key || p.Collective != t.Collective || p.Nodes != t.Nodes || p.GPUs != t.Ranks || p.Algorithm != "" && p.Algorithm != "NVLS" {
			continue
		}
		for _, row := range p.Rows {
			if row.BusBW > best {
				best, at, source = row.BusBW, row.Bytes, cmp.Or(p.Note, db.Sources[p.Source].URL, p.Source)
			}
		}
	}
	if best == 0 {
		return
	}
	r.Others = append(r.Others, fmt.Sprintf("published of this platform: %s at %s (%s)", figure(best), sizeText(at), source))
	r.Low = min(r.Low, best*0.96)
	r.High = max(r.High, best*1.04)
	if at >= 4<<30 {
		r.Typical = best
	}
}
