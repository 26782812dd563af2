package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/harness/explain"
	"github.com/assay-hpc/assay/internal/platform"
)

// maxText bounds how much of a text is read for measurements: tables are short, and what is longer is a log.
const maxText = 64 << 20

// maxLine bounds how much of a line is read.
const maxLine = 4096

// An input is a text, and what is known around its measurements.
type input struct {
	name    string
	text    []byte
	lines   []line
	db      *platform.DB
	machine *Machine
	log     []explain.Cause
	vars    []variable
	docs    []any // JSON documents in the text
	rules   *explain.Set
}

// A variable is one that the text says is set.
type variable struct {
	name, value string
	line        int
}

// newInput reads a text that was explained.
func newInput(name string, text []byte, log *explain.Report) *input {
	text = explain.Unescape(text)
	in := &input{name: name, text: text}
	in.lines = readLines(text[:min(len(text), maxText)], log)
	in.unquote()
	in.readJSON()
	return in
}

// unquote takes the marks of a quoted mail away, if most lines have them.
func (in *input) unquote() {
	quoted := 0
	for _, l := range in.lines {
		if strings.HasPrefix(l.text, ">") {
			quoted++
		}
	}
	if quoted*2 <= len(in.lines) {
		return
	}
	for i, l := range in.lines {
		in.lines[i].text = strings.TrimPrefix(strings.TrimPrefix(l.text, ">"), " ")
	}
}

// A line is one of a text, with its number from 1.
type line struct {
	number int
	text   string
}

// large is how many bytes of a text are read line by line. Of longer ones, which are logs, it is the lines around anchors.
const large = 2 << 20

// anchors stand in what benchmarks print, or in what a log says of their run: so many lines before and after are read.
var anchors = []struct {
	text          string
	before, after int
}{
	{"busbw", 12, 60}, {" Rank ", 0, 0}, {"nThread", 2, 2}, {"#bytes", 40, 80}, {"Bandwidth", 20, 200}, {"memcpy", 30, 300}, {"| Diagnostic", 2, 400},
	{" float ", 0, 40}, {" half ", 0, 40}, {"float16 ", 0, 40}, {" f8e", 0, 40}, {"int8 ", 0, 40}, {" double ", 0, 40}, {"Avg bus", 0, 0}, {"_perf", 0, 0}, {" set by ", 0, 0}, {"NET/", 0, 0},
	{"Using network", 0, 0}, {"-tests ", 0, 0}, {"CCL version", 0, 0}, {"LnkSta", 0, 0}, {" -x NCCL", 0, 0}, {"export NCCL", 0, 0},
}

// figures stand in each text that has what a benchmark printed.
var figures = []string{"busbw", "Avg bus", "#bytes", "Bandwidth", "memcpy", "| Diagnostic", "DCGM Diagnostic", "average_bus"}

// Rules returns the rules of harness explain, which find in the same pass what is read here.
func Rules() (*explain.Set, error) {
	find := slices.Clone(figures)
	for _, a := range anchors {
		find = append(find, a.text)
	}
	return explain.Load(find...)
}

// HasFigures says whether a text that was explained, as the file of that number, may have what a benchmark printed.
func HasFigures(log *explain.Report, file int) bool {
	for i := range figures {
		if len(log.With(file, i)) > 0 {
			return true
		}
	}
	return false
}

var emphasis = regexp.MustCompile(`\*\*([^*\s]+)\*\*`)

// readLines returns the lines of a text that may belong to a measurement.
func readLines(text []byte, log *explain.Report) []line {
	keep := func(int) bool { return true }
	if len(text) > large {
		starts := make([]int32, 1, 1+bytes.Count(text, []byte{'\n'}))
		for i := 0; ; {
			n := bytes.IndexByte(text[i:], '\n')
			if n < 0 {
				break
			}
			i += n + 1
			starts = append(starts, int32(i))
		}
		wanted := make([]bool, len(starts))
		for i, a := range anchors {
			for _, at := range log.With(0, len(figures)+i) {
				if at >= len(text) {
					break
				}
				l, _ := slices.BinarySearch(starts, int32(at))
				for k := max(0, l-a.before); k <= min(len(wanted)-1, l+a.after); k++ {
					wanted[k] = true
				}
			}
		}
		keep = func(i int) bool { return wanted[i] }
	}
	var out []line
	i := 0
	for l := range bytes.Lines(text) {
		if i++; !keep(i - 1) {
			continue
		}
		l = explain.Clean(bytes.TrimRight(l[:min(len(l), maxLine)], "\r\n"))
		if bytes.Contains(l, []byte("**")) { // a person's emphasis, in Markdown
			l = emphasis.ReplaceAll(l, []byte("$1"))
		}
		out = append(out, line{i, string(l)})
	}
	return out
}

var setVar = regexp.MustCompile(`\b((?:NCCL|RCCL|CUDA)_[A-Z0-9_]+) set (?:by environment )?to ([^\s.]+)|(?:-x |export |--env |-e |^|\s|")((?:NCCL|RCCL|CUDA)_[A-Z0-9_]+)=["']?([^\s"']+)`)

func (in *input) readVars() {
	lines := in.lines
	if in.machine != nil { // what was said of the machine may name settings
		lines = append([]line{{0, in.machine.text}}, lines...)
	}
	for _, x := range lines {
		l := x.text
		if strings.IndexByte(l, '_') < 0 || !strings.Contains(l, "CCL_") && !strings.Contains(l, "CUDA_") {
			continue
		}
		for _, m := range setVar.FindAllStringSubmatch(l, -1) {
			v := variable{m[1] + m[3], m[2] + m[4], x.number}
			if !slices.ContainsFunc(in.vars, func(o variable) bool { return o.name == v.name && o.value == v.value }) {
				in.vars = append(in.vars, v)
			}
		}
	}
}

// set returns a variable's value; "" if the text does not say that it is set.
func (in *input) set(name string) (v variable, ok bool) {
	i := slices.IndexFunc(in.vars, func(v variable) bool { return v.name == name })
	if i < 0 {
		return variable{}, false
	}
	return in.vars[i], true
}

// find returns the first line on which a pattern matches, with its groups. Every such line contains literal.
func (in *input) find(re *regexp.Regexp, literal string) (m []string, line int) {
	for _, l := range in.lines {
		if !strings.Contains(l.text, literal) {
			continue
		}
		if m := re.FindStringSubmatch(l.text); m != nil {
			return m, l.number
		}
	}
	return nil, 0
}

// has says whether a line that was read contains a text.
func (in *input) has(text string) bool {
	return slices.ContainsFunc(in.lines, func(l line) bool { return strings.Contains(l.text, text) })
}

var rankZero = regexp.MustCompile(`^(?:\S+ )?([\w.-]+):\d+:\d+ \[\d+\] NCCL INFO .*\brank 0 n[rR]anks (\d+)\b`)

// separate returns how many ranks each of several runs has that NCCL's log shows side by side: a rank 0 on each of several
// hosts. 0: there is one.
func (in *input) separate() int {
	hosts, ranks := map[string]bool{}, ""
	for _, l := range in.lines {
		if m := rankZero.FindStringSubmatch(l.text); m != nil {
			if ranks != "" && m[2] != ranks {
				return 0
			}
			hosts[m[1]], ranks = true, m[2]
		}
	}
	if len(hosts) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(ranks)
	return n
}

// readJSON finds the documents of the text: all of it, or what begins at a line's brace.
func (in *input) readJSON() {
	text := bytes.TrimLeft(in.text, "\ufeff \t\r\n")
	if len(text) > maxText {
		return
	}
	for i := 0; i < 64 && len(text) > 0; i++ {
		begin := 0
		if text[0] != '{' && text[0] != '[' {
			if begin = bytes.Index(text, []byte("\n{")) + 1; begin == 0 {
				return
			}
		}
		d := json.NewDecoder(bytes.NewReader(text[begin:]))
		var doc any
		if err := d.Decode(&doc); err != nil {
			text = text[begin+1:]
			continue
		}
		if _, ok := doc.(map[string]any); ok {
			in.docs = append(in.docs, doc)
		}
		text = bytes.TrimLeft(text[begin+int(d.InputOffset()):], " \t\r\n")
	}
}

// The helpers below read documents whose form is not certain.

func object(v any, path ...string) map[string]any {
	for _, k := range path {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	m, _ := v.(map[string]any)
	return m
}

func array(v any) []any { a, _ := v.([]any); return a }

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case string:
		n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return n, err == nil
	}
	return 0, false
}

func integer(v any) int { n, _ := number(v); return int(n) }

// jsonTables reads what nccl-tests writes with -J, and what harness coll writes.
func (in *input) jsonTables() (out []*Table) {
	for _, doc := range in.docs {
		d := object(doc)
		rows := array(d["results"])
		if rows == nil || object(d, "config") == nil && d["args"] == nil {
			continue
		}
		t := &Table{Program: "nccl-tests", Version: text(d["version"]), line: 1}
		if v := integer(d["nccl_version"]); v > 0 {
			t.Library = ncclVersion(v)
		}
		for _, a := range array(d["args"]) {
			if m := command.FindStringSubmatch(text(a)); m != nil {
				t.Collective = strings.Replace(m[1], "allgather", "all_gather", 1)
			}
		}
		config := object(d, "config")
		t.PerProcess = max(1, integer(config["nthreads"])) * max(1, integer(config["ngpus"]))
		for _, v := range array(config["devices"]) {
			g := object(v)
			t.rank([]string{"", text(g["rank"]), text(g["hostname"]), text(g["device"]), "", text(g["device_info"])})
		}
		for i, v := range rows {
			r := object(v)
			size, ok := number(r["size"])
			if !ok || size < 0 {
				continue
			}
			row := Row{Bytes: int64(size), Out: jsonTiming(object(r["out_of_place"])), In: jsonTiming(object(r["in_place"])), line: i + 1}
			if row.best() == nil {
				continue
			}
			if t.Collective == "" {
				t.guess(row, text(r["root"]), text(r["redop"]))
			}
			t.Rows = append(t.Rows, row)
		}
		if len(t.Rows) == 0 {
			continue
		}
		for k, v := range d { // some versions misspell both
			if strings.HasPrefix(k, "average_bus") {
				for _, v := range object(v) {
					if n, ok := v.(float64); ok {
						t.average = n
					}
				}
			}
		}
		t.finish()
		out = append(out, t)
	}
	return out
}

func jsonTiming(v map[string]any) *Timing {
	t := &Timing{Wrong: -1}
	for k, to := range map[string]*float64{"time": &t.Microseconds, "alg_bw": &t.AlgBW, "bus_bw": &t.BusBW} {
		n, ok := number(v[k])
		if !ok || n < 0 {
			return nil
		}
		*to = n
	}
	if n, ok := number(v["nwrong"]); ok && n >= 0 && n < 1e15 {
		t.Wrong = int64(n)
	}
	return t
}

var (
	ibUsing  = regexp.MustCompile(`NET/IB ?: Using ((?:\[\d+\]\S+ ?)+)`)
	ibDevice = regexp.MustCompile(`\[\d+\](\S+?)(?:/(RoCE|IB))?(?:\s|$)`)
	ibSpeed  = regexp.MustCompile(`NET/IB.*\bspeed=(\d+)`)
	netSpeed = regexp.MustCompile(`\+ NET\[([0-9.]+)\] - NET/\d+`)
	network  = regexp.MustCompile(`Using network (\S+)|NET/(FasTrak|OFI) `)
	socketed = regexp.MustCompile(`NET/Socket ?: Using`)
	ibRate   = regexp.MustCompile(`^\s*(?:active_)?[Rr]ate:?\s+(\d+)`)
	ethSpeed = regexp.MustCompile(`^(25|40|50|100|200|400|800)000$|^\s*Speed: (\d+)000Mb/s`)
)

// machineOf returns the machine of a table: what was given, completed by what the text says.
func (in *input) machineOf(t *Table) *Machine {
	m := &Machine{}
	if in.machine != nil {
		*m = *in.machine
		t.complete(m)
	}
	if t.GPU != "" {
		if g := findGPU(t.GPU); g != nil && g != m.gpu {
			if m.gpu != nil {
				in.conflict(m, g)
			}
			keep := m.PerNode
			m.setGPU(g)
			if keep > 0 {
				m.PerNode = keep
			}
			if m.From == "" {
				m.From = "the devices' names"
			}
		}
	}
	in.completeNICs(m)
	if m.gpu == nil && m.NICs == 0 {
		return nil
	}
	return m
}

var (
	saysAlltoall = regexp.MustCompile(`(?i)\ball[-_ ]?to[-_ ]?all\b`)
	saysSendrecv = regexp.MustCompile(`(?i)\bsend[-_ /]?recv\b`)
)

// complete takes from what was said of the machine what the text lacks.
func (t *Table) complete(m *Machine) {
	if t.Guessed {
		switch {
		case saysAlltoall.MatchString(m.text):
			t.Collective, t.Guessed = "alltoall", false
		case saysSendrecv.MatchString(m.text):
			t.Collective, t.Guessed = "sendrecv", false
		}
	}
	if n := m.PerNode * m.Nodes; t.listed == 0 && n > 1 && approximately(float64(t.Ranks), float64(n), 0.15) { // busbw over algbw is not exact
		t.Ranks = n
	}
	if t.Ranks == 0 && m.gpu != nil && m.PerNode > 0 && (m.Nodes > 0 || m.PerNode > 1) {
		t.Ranks = m.PerNode * max(m.Nodes, 1)
	}
	if t.Nodes < m.Nodes && (t.Nodes == 0 || t.listed < t.Ranks) && t.Ranks > 0 && t.Ranks%m.Nodes == 0 && (m.PerNode == 0 || t.Ranks/m.Nodes <= m.PerNode) {
		t.Nodes = m.Nodes
	}
}

// conflict: the text names another GPU than the platform. The text is right about the GPU.
func (in *input) conflict(m *Machine, g *gpu) {
	m.Name = fmt.Sprintf("%s, with %s as the text says", m.Name, g.Name)
}

// completeNICs takes from a log which NICs NCCL uses.
func (in *input) completeNICs(m *Machine) {
	if v, _ := in.find(network, "NCCL INFO"); v != nil {
		switch strings.ToLower(v[1] + v[2]) {
		case "socket":
			m.Kind = "TCP"
		case "fastrak":
			m.Kind = "TCPXO"
		case "ofi", "aws", "libfabric":
			if m.Kind == "" {
				m.Kind = "EFA"
			}
		}
	} else if v, _ := in.find(socketed, "NET/Socket"); v != nil {
		m.Kind = "TCP"
	}
	v, _ := in.find(ibUsing, "NET/IB")
	if v == nil || m.Kind == "TCP" {
		return
	}
	devices := ibDevice.FindAllStringSubmatch(v[1]+" ", -1)
	if m.Kind == "" && len(devices) > 0 {
		m.Kind = map[string]string{"RoCE": "RoCE", "IB": "InfiniBand"}[devices[0][2]]
	}
	if m.NICs == 0 {
		if s, _ := in.find(ibSpeed, "NET/IB"); s != nil {
			if rate, _ := strconv.ParseFloat(s[1], 64); rate >= 1000 {
				m.NICs, m.Gbit, m.From = len(devices), rate/1000, "NCCL's log"
			}
		} else if s, _ := in.find(netSpeed, "NET["); s != nil {
			each, _ := strconv.ParseFloat(s[1], 64) // GB/s
			for _, rate := range standardRates {
				if approximately(each*8, rate, 0.06) {
					m.NICs, m.Gbit, m.From = len(devices), rate, "NCCL's log"
				}
			}
		}
	}
}
