package judge

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Table is what one run of a benchmark of collectives printed.
type Table struct {
	Program    string `json:"program"`              // "nccl-tests", "rccl-tests", "harness coll"
	Version    string `json:"version,omitempty"`    // of the program
	Library    string `json:"library,omitempty"`    // version of NCCL that was loaded
	Collective string `json:"collective,omitempty"` // "all_reduce"; "": it cannot be told
	Guessed    bool   `json:"guessed,omitempty"`    // the collective follows from the columns alone
	Ranks      int    `json:"ranks,omitempty"`      // 0: unknown
	Nodes      int    `json:"nodes,omitempty"`      // 0: unknown
	PerProcess int    `json:"gpusPerProcess,omitempty"`
	GPU        string `json:"gpu,omitempty"` // the driver's name; "": none is printed
	MixedGPUs  bool   `json:"mixedGPUs,omitempty"`
	Rows       []Row  `json:"rows"`

	average float64 // busbw, as printed; 0: none

	apart     bool   // ranks 0 of several runs are listed before it: runs that did not find each other
	algorithm string // that is forced; "": NCCL chooses
	noSwitch  bool   // the switch cannot reduce its type
	hosts     []string
	devices   []int // of the ranks
	shared    bool  // two ranks have one GPU
	slots     []string
	listed    int  // ranks with a line of their own
	line      int  // of the first row
	errors    bool // the columns of results are the greatest error, as in old versions
	inBounds  bool // its last line says that all results are right
	cut       bool // sizes are missing at the end: the run stopped
}

// A Row is one size.
type Row struct {
	Bytes int64   `json:"bytes"`
	Out   *Timing `json:"outOfPlace,omitempty"`
	In    *Timing `json:"inPlace,omitempty"`
	line  int
	kind  string // data type

	Elements int64 `json:"-"` // of a buffer; 0: not read
}

// A Timing is what was measured of a size.
type Timing struct {
	Microseconds float64 `json:"us"`
	AlgBW        float64 `json:"algbw"` // GB/s
	BusBW        float64 `json:"busbw"` // GB/s
	Wrong        int64   `json:"wrong"` // elements; -1: not checked
}

// best returns the faster of a row's timings.
func (r Row) best() *Timing {
	switch {
	case r.Out == nil || r.In != nil && r.In.BusBW > r.Out.BusBW:
		return r.In
	}
	return r.Out
}

var (
	// A rank of the list of devices: "#  Rank  0 Group  0 Pid  71422 on  gpu-a01 device  0 [0x1b] NVIDIA H100 80GB HBM3".
	rankLine  = regexp.MustCompile(`#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+) device\s+(\d+) \[([0-9a-fA-Fx:.]+)\]\s*(.*)`)
	started   = regexp.MustCompile(`# Collective test starting: ([a-z_]+)_perf`)
	concluded = regexp.MustCompile(`# Collective test concluded: ([a-z_]+)_perf`)
	command   = regexp.MustCompile(`\b(all_reduce|all_gather|allgather|reduce_scatter|broadcast|reduce|alltoallv?|sendrecv|gather|scatter|hypercube)_perf\b`)
	ourRun    = regexp.MustCompile(`\bharness coll (all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoall|sendrecv|gather|scatter)\b`)
	options   = regexp.MustCompile(`# ?nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+)`)
	average   = regexp.MustCompile(`Avg bus bandwidth\s*:\s*([0-9.]+)`)
	tests     = regexp.MustCompile(`# (nccl|rccl)-tests version (\S+)(?:.*nccl-library=(\d+))?`)
	rccl      = regexp.MustCompile(`^rccl-tests: Version (\S+)`)
	version   = regexp.MustCompile(`(?:NCCL|RCCL) version[ :]+(\d+\.\d+\.\d+)`)
)

// readTables reads the tables of nccl-tests and of programs that print the same: rccl-tests, and harness coll.
func readTables(lines []line) []*Table {
	var all []*Table
	t := &Table{}
	head := *t // what stands before the table: a second one of the same run has the same ranks
	maxBytes, apart := int64(0), false
	pending, pendingRoot, pendingOp := Row{}, "", "" // a row whose times stand on later lines
	abridged := false                                // the table has sizes and one group of times alone
	begin := func() {
		if len(t.Rows) > 0 {
			t.cut = maxBytes > t.Rows[len(t.Rows)-1].Bytes*2
			for _, one := range t.apartByRanks() {
				one.finish()
				all = append(all, one)
			}
			next := head
			next.Rows, next.average, next.inBounds = nil, 0, false
			t = &next
		}
	}
	for _, x := range lines {
		l := x.text
		if strings.Contains(l, "busbw") {
			abridged = abridgedHead.MatchString(l)
		}
		if pending.Bytes == 0 && !abridged && !ofTables(l) {
			continue
		}
		if m := rankLine.FindStringSubmatch(l); m != nil {
			if len(t.Rows) > 0 { // another run
				begin()
				*t = Table{}
			}
			if m[1] == "0" && t.listed > 0 {
				apart = apart || !slices.Contains(t.hosts, m[2]) || t.listed == 1
				t.Ranks, t.listed, t.hosts, t.devices, t.GPU, t.MixedGPUs, t.shared, t.slots = 0, 0, nil, nil, "", false, false, nil
			}
			t.rank(m)
			t.apart = apart
			head = *t
			continue
		}
		if m := concluded.FindStringSubmatch(l); m != nil && t.Guessed {
			t.Collective, t.Guessed = m[1], false
		}
		if m := started.FindStringSubmatch(l); m != nil {
			begin()
			t.Collective, t.Program = m[1], "nccl-tests"
		} else if m := command.FindStringSubmatch(l); m != nil && len(t.Rows) == 0 {
			t.Collective = strings.Replace(m[1], "allgather", "all_gather", 1)
		} else if m := ourRun.FindStringSubmatch(l); m != nil && len(t.Rows) == 0 {
			t.Collective, t.Program = m[1], "harness coll"
		}
		if m := options.FindStringSubmatch(l); m != nil {
			if len(t.Rows) > 0 {
				begin()
				*t = Table{}
			}
			threads, _ := strconv.Atoi(m[1])
			gpus, _ := strconv.Atoi(m[2])
			t.PerProcess = threads * gpus
			maxBytes, _ = strconv.ParseInt(m[4], 10, 64)
		}
		if m := tests.FindStringSubmatch(l); m != nil {
			t.Program, t.Version = m[1]+"-tests", m[2]
			if v, err := strconv.Atoi(m[3]); err == nil {
				t.Library = ncclVersion(v)
			}
		} else if m := rccl.FindStringSubmatch(l); m != nil {
			t.Program, t.Version = "rccl-tests", m[1]
		} else if m := version.FindStringSubmatch(l); m != nil && t.Library == "" {
			t.Library = m[1]
		}
		switch {
		case strings.Contains(l, "busbw") && strings.Contains(l, " error"):
			if len(t.Rows) > 0 {
				begin()
			}
			t.errors, head.errors = true, true
		case strings.Contains(l, "Out of bounds values") && strings.Contains(l, " 0 OK"):
			t.inBounds = true
		}
		if m := average.FindStringSubmatch(l); m != nil {
			v, _ := strconv.ParseFloat(m[1], 64)
			if len(t.Rows) > 0 {
				t.average = v
			}
			continue
		}
		if half, root, op, ok := readHalf(l); ok {
			pending, pendingRoot, pendingOp = half, root, op
			pending.line = x.number
			continue
		}
		r, root, op, ok := readRow(l)
		if m := abridgedRow.FindStringSubmatch(l); abridged && !ok && m != nil {
			r.Bytes, _ = strconv.ParseInt(m[1], 10, 64)
			r.Out = readTiming(m[2:])
			ok = r.Out != nil
		}
		if !ok && pending.Bytes > 0 {
			if m := timingLine.FindStringSubmatch(l); m != nil {
				if pending.Out == nil {
					pending.Out = readTiming(m[1:])
					continue
				}
				pending.In = readTiming(m[1:])
				r, root, op, ok = pending, pendingRoot, pendingOp, true
				pending = Row{}
			}
		}
		if ok {
			if n := len(t.Rows); n > 0 && r.Bytes < t.Rows[n-1].Bytes { // sizes begin anew
				begin()
			}
			r.line = x.number
			if len(t.Rows) == 0 {
				t.line = x.number
				if t.Collective == "" {
					t.guess(r, root, op)
				}
			}
			t.Rows = append(t.Rows, r)
		}
	}
	begin()
	return all
}

// ofTables says whether a line may belong to a table: most lines of a log do not, and are not read.
func ofTables(l string) bool {
	for _, s := range []string{"float", "half", "int", "double", "fp8", "f8e", "char", "# ", "_perf", "-tests", "CCL version", "harness coll", "Avg bus"} {
		if strings.Contains(l, s) {
			return true
		}
	}
	return false
}

// rank reads a line of the list of devices.
func (t *Table) rank(m []string) {
	n, _ := strconv.Atoi(m[1])
	device, _ := strconv.Atoi(m[3])
	t.listed++
	t.Ranks = max(t.Ranks, n+1)
	if !slices.Contains(t.hosts, m[2]) {
		t.hosts = append(t.hosts, m[2])
	}
	t.devices = append(t.devices, device)
	if slot := m[2] + " " + m[4]; len(m[4]) > 4 && strings.Trim(m[4], "0x:.") != "" {
		t.shared = t.shared || slices.Contains(t.slots, slot)
		t.slots = append(t.slots, slot)
	}
	if name := strings.TrimSpace(m[5]); name != "" {
		t.MixedGPUs = t.MixedGPUs || t.GPU != "" && t.GPU != name
		t.GPU = name
	}
}

var (
	halfLine   = regexp.MustCompile(`^\s*(\d+)\s+\d+\s+([a-z]\w+)\s+([a-z]+)\s+(-?\d+)(?:[A-Za-z][\w.-]*:\d+:\d+ |\s*$)`)
	timingLine = regexp.MustCompile(`^\s*([0-9.]+)\s+([0-9.]+)\s+([0-9.]+)\s+(\d+|N/A)(?:[A-Za-z][\w.-]*:\d+:\d+ |\s*$)`)
)

// abridgedHead is over a table without the columns of type and operation, abridgedRow is one of its sizes.
var (
	abridgedHead = regexp.MustCompile(`^[#\s]*size\s+time\s+algbw\s+busbw\b`)
	abridgedRow  = regexp.MustCompile(`^\s*(\d+)\s+([0-9.]+)\s+([0-9.]+)\s+([0-9.]+)\s*$`)
)

// apartByRanks returns a table of each row, if all are of one size and busbw says that they had different numbers of ranks:
// somebody put the last lines of several runs together.
func (t *Table) apartByRanks() []*Table {
	ranks := map[int]bool{}
	for _, r := range t.Rows {
		one := Table{Collective: t.Collective, Rows: []Row{r}}
		ranks[one.ratioRanks()] = true
		if r.Bytes != t.Rows[0].Bytes {
			return []*Table{t}
		}
	}
	if t.listed > 0 || len(ranks) < 2 || ranks[0] {
		return []*Table{t}
	}
	var out []*Table
	for _, r := range t.Rows {
		one := *t
		one.Rows, one.line = []Row{r}, r.line
		out = append(out, &one)
	}
	return out
}

// readHalf reads the begin of a row that NCCL's log interrupts: both go to one terminal.
func readHalf(l string) (r Row, root, op string, ok bool) {
	m := halfLine.FindStringSubmatch(l)
	if m == nil || !dtype.MatchString(m[2]) {
		return
	}
	r.Bytes, _ = strconv.ParseInt(m[1], 10, 64)
	return r, m[4], m[3], r.Bytes > 0
}

var outputTag = regexp.MustCompile(`\[\d+,\d+\]<std(?:out|err)>:|\[\d+\](?:\s|$)`)

var numbered = regexp.MustCompile(`^-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?$`)

// readRow reads a size: bytes, elements, type, operation, perhaps the root, and twice time, algbw, busbw and how many
// elements are wrong. Old versions have no root, runs without a check have N/A or nothing, and some print one half alone.
// What a launcher puts before a line is skipped.
func readRow(l string) (r Row, root, op string, ok bool) {
	if strings.Count(l, ".") < 2 || strings.Contains(l, "#") && !strings.Contains(l, ">") {
		return
	}
	if strings.Contains(l, "[") { // mpirun --tag-output tags what a program writes in one go, not lines
		l = outputTag.ReplaceAllString(l, " ")
	}
	f := strings.Fields(l)
	for begin := 0; begin < min(len(f)-5, 6); begin++ {
		bytes, err := strconv.ParseInt(f[begin], 10, 64)
		if err != nil || bytes < 0 {
			continue
		}
		if r.Elements, err = strconv.ParseInt(f[begin+1], 10, 64); err != nil {
			continue
		}
		rest := f[begin+2:]
		if len(rest) == 0 || numbered.MatchString(rest[0]) || !dtype.MatchString(rest[0]) {
			continue
		}
		r.kind = rest[0]
		rest = rest[1:]
		if len(rest) > 0 && !numbered.MatchString(rest[0]) {
			op, rest = rest[0], rest[1:]
		}
		r.Bytes = bytes
		// A root is there if what remains is one or two groups of four, or of three without a check, and one column more.
		columns := 4
		if n := len(rest); n == 9 || n == 5 || (n == 8 || n == 7 || n == 4) && consistent(bytes, rest[1:]) {
			root, rest = rest[0], rest[1:]
		}
		if n := len(rest); n == 3 || n == 6 && consistent(bytes, rest[3:]) {
			columns = 3
		}
		groups := [2]*Timing{}
		for g := 0; g < 2 && len(rest) >= columns*g+3; g++ {
			groups[g] = readTiming(rest[columns*g : min(len(rest), columns*(g+1))])
		}
		r.Out, r.In = groups[0], groups[1]
		return r, root, op, r.Out != nil || r.In != nil
	}
	return
}

// consistent says whether columns begin with a time in microseconds and the algbw that so many bytes have by it.
func consistent(bytes int64, f []string) bool {
	if len(f) < 3 {
		return false
	}
	us, err1 := strconv.ParseFloat(f[0], 64)
	alg, err2 := strconv.ParseFloat(f[1], 64)
	return err1 == nil && err2 == nil && us > 0 && approximately(float64(bytes)/us/1e3, alg, 0.05)
}

var dtype = regexp.MustCompile(`^(?:u?int(?:8|32|64)|half|float(?:16|32|64|8)?|double|bfloat16|b?f(?:loat)?16|f(?:loat)?8(?:_?e[45]m[32])?|fp8_e[45]m[32]|char)$`)

func readTiming(f []string) *Timing {
	t := &Timing{Wrong: -1}
	for i, v := range []*float64{&t.Microseconds, &t.AlgBW, &t.BusBW} {
		n, err := strconv.ParseFloat(f[i], 64)
		if err != nil || n < 0 {
			return nil
		}
		*v = n
	}
	if len(f) > 3 {
		if n, err := strconv.ParseFloat(f[3], 64); err == nil && n >= 0 && n < 1e15 {
			if t.Wrong = int64(n); n > 0 && n < 1 {
				t.Wrong = 0 // an old version's greatest error
			}
		}
	}
	return t
}

// guess determines the collective by what it has: the operation, a root, and what busbw is of algbw.
func (t *Table) guess(r Row, root, op string) {
	b := r.best()
	ratio := 0.0
	if b.AlgBW > 0 {
		ratio = b.BusBW / b.AlgBW
	}
	switch {
	case op != "none" && op != "" && root != "" && root != "-1":
		t.Collective = "reduce"
	case op != "none" && op != "" && (ratio > 0.985 || ratio == 0): // of two ranks it is 1
		t.Collective = "all_reduce"
	case op != "none" && op != "":
		t.Collective = "reduce_scatter"
	case root != "" && root != "-1":
		t.Collective = "broadcast"
	case ratio > 1.01:
		t.Collective, t.Guessed = "all_reduce", true
	case ratio > 0.99:
		t.Collective, t.Guessed = "sendrecv", true
	default:
		t.Collective, t.Guessed = "all_gather", true
	}
}

// finish derives what no line says.
func (t *Table) finish() {
	if n := t.ratioRanks(); n > 0 && t.PerProcess > 1 && n == t.Ranks*t.PerProcess { // -J lists a device for each launcher
		t.Ranks = n
		t.listed = n
	}
	if t.Program == "" {
		t.Program = "nccl-tests"
	}
	node := 0
	for _, d := range t.devices {
		node = max(node, d+1)
	}
	if n := t.ratioRanks(); t.Ranks == 0 || n >= 2*t.Ranks { // the list may be abridged
		t.Ranks = n
	}
	switch {
	case len(t.hosts) == 0 && t.Ranks == 0:
	case t.listed >= t.Ranks && len(t.hosts) > 0:
		t.Nodes = len(t.hosts)
	case node > 1 && t.Ranks%node == 0 && len(t.hosts) > 0: // the list is abridged
		t.Nodes = max(len(t.hosts), t.Ranks/node)
	case len(t.hosts) > 0:
		t.Nodes = len(t.hosts)
	}
}

// ratioRanks returns the number of ranks by what busbw is of algbw; 0 if that does not say.
func (t *Table) ratioRanks() int {
	if len(t.Rows) == 0 {
		return 0
	}
	b := t.Rows[len(t.Rows)-1].best()
	if b == nil || b.AlgBW <= 1 {
		return 0
	}
	f, n := b.BusBW/b.AlgBW, 0.0
	switch t.Collective {
	case "all_reduce":
		if f < 0.5 {
			return 0
		}
		n = 2 / (2 - f)
	case "all_gather", "reduce_scatter", "alltoall":
		n = 1 / (1 - f)
	}
	if n < 1.5 || n > 64.5 {
		return 0
	}
	return int(n + 0.5)
}

// ncclVersion writes a version number of NCCL: 22803 is 2.28.3.
func ncclVersion(v int) string {
	if v < 10000 {
		return strconv.Itoa(v/1000) + "." + strconv.Itoa(v/100%10) + "." + strconv.Itoa(v%100)
	}
	return strconv.Itoa(v/10000) + "." + strconv.Itoa(v/100%100) + "." + strconv.Itoa(v%100)
}
