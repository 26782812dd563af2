package explain

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A tool is a program whose output shows by itself whether something is wrong: by counters, states, and by what differs
// between devices that are alike.
type tool struct {
	family string // which rule says that all is well: tool.fine.FAMILY
	begins string // a pattern of the line where the output begins
	goes   string // a pattern of the lines after it, besides empty ones
	// read adds facts of what is wrong, and returns what the output shows; "" if that says nothing.
	read func(b *block) string
}

// A block is the output of a tool within a text.
type block struct {
	in    *input
	lines []string // without what is before each
	at    []place
	wrong bool // something is, as a fact of the reader or by rules about lines
	known bool // its lines are read, also if they say nothing
}

// fault adds a fact about a line of the block.
func (b *block) fault(name, value string, i int, more map[string]string) {
	b.wrong = true
	b.in.add(name, value, more, b.at[min(i, len(b.at)-1)])
}

// outputs are the tools of all files.
var outputs = slices.Concat(gpuTools, netTools, hostTools, clusterTools, fabricTools)

// prompt is what may stand before each line: the name of a host, as pdsh and clush write it.
const prompt = `^(?:[\w.-]+: {1,2})?`

var outputBare, outputGoes = compileTools()

func compileTools() (bare, goes []*regexp.Regexp) {
	for _, t := range outputs {
		bare = append(bare, regexp.MustCompile(`^(?:`+t.begins+`)`))
		goes = append(goes, regexp.MustCompile(`^(?:`+t.goes+`)`))
	}
	return bare, goes
}

// toolReaders has a reader for each tool, so that each line is tried with few patterns; the first that is called reads the
// outputs of all. tool.fine.FAMILY: what they show, if nothing is wrong in them; tool.beside: likewise, in a text that
// speaks of trouble; and, with {gpu}, {device} and the like, what is wrong.
func toolReaders() (all []reader) {
	for _, t := range outputs {
		all = append(all, reader{"outputs of tools", prompt + `(?:` + t.begins + `)`, func(in *input, _ []hit) {
			if len(in.facts["tool.read"]) == 0 {
				readOutputs(in)
			}
		}})
	}
	return all
}

var compiledPatterns sync.Map // of readers, by their text

// compiled returns a pattern, which it compiles once.
func compiled(text string) *regexp.Regexp {
	if re, ok := compiledPatterns.Load(text); ok {
		return re.(*regexp.Regexp)
	}
	re := regexp.MustCompile(text)
	compiledPatterns.Store(text, re)
	return re
}

// begin is where an output of a tool begins.
type begin struct {
	at   place
	tool int
}

// begins returns where outputs begin, in the order of the text.
func (in *input) begins() (all []begin) {
	for i := range outputs {
		for _, h := range in.hits[in.set.begins[len(logReaders)+i]] {
			all = append(all, begin{h.at, i})
		}
	}
	slices.SortStableFunc(all, func(a, b begin) int { return order(a.at, b.at) })
	return all
}

// maxBlock is how many lines of one output are read, maxBlocks of all: a text can begin outputs on each line.
const (
	maxBlock  = 5000
	maxBlocks = 200_000
)

var hostPrefix = regexp.MustCompile(`^[\w.-]+: {1,2}`)

// block reads the lines of a tool's output. A prefix of its first line is taken off all lines that have it.
func (in *input) block(tool int, begin place) *block {
	b := &block{in: in}
	prefix, empty := "", 0
	in.from(begin, func(at place, l string) bool {
		if len(b.lines) == 0 {
			if p := hostPrefix.FindString(l); p != "" && !outputBare[tool].MatchString(l) {
				prefix = p
			}
		}
		l, found := strings.CutPrefix(l, prefix)
		if prefix != "" && !found && strings.TrimSpace(l) != strings.TrimSpace(prefix) {
			return false
		}
		switch {
		case strings.TrimSpace(l) == "":
			empty++
		case len(b.lines) > 0 && (!outputGoes[tool].MatchString(l) || l == b.lines[0] && outputBare[tool].MatchString(l)): // or the next output
			return false
		default:
			empty = 0
		}
		b.lines, b.at = append(b.lines, l), append(b.at, at)
		return empty < 4 && len(b.lines) < maxBlock
	})
	return b
}

// readOutputs reads the outputs of tools.
func readOutputs(in *input) {
	shown, where := map[string][]string{}, map[string]place{}
	read := map[place]bool{}
	end, lines := place{file: -1}, 0
	for _, h := range in.begins() {
		if len(in.facts["tool.read"]) == 0 {
			in.add("tool.read", "", nil, h.at)
		}
		if h.at.before(end) {
			continue
		}
		if lines > maxBlocks {
			return // nothing is said of what was read: the rest may be worse
		}
		b, family := in.block(h.tool, h.at), outputs[h.tool].family
		lines += len(b.lines)
		text := outputs[h.tool].read(b)
		if text == "" && !b.wrong && !b.known {
			continue
		}
		for _, at := range b.at {
			read[at] = true
		}
		end = place{b.at[len(b.at)-1].file, b.at[len(b.at)-1].offset + 1}
		if text != "" && !b.wrong && !slices.Contains(shown[family], text) {
			if len(shown[family]) == 0 {
				where[family] = h.at
			}
			shown[family] = append(shown[family], text)
		}
	}
	if len(shown) == 0 {
		return
	}
	trouble := in.trouble(read)
	for _, family := range slices.Sorted(maps.Keys(shown)) {
		name := "tool.fine." + family
		if trouble {
			name = "tool.beside"
		}
		in.add(name, strings.Join(shown[family], "; "), nil, where[family])
	}
}

// troubled matches words with which a text says that something does not work.
var troubled = regexp.MustCompile(`(?i)\b(?:errors?|fail\w*|hangs?|hanging|hung|stuck|slow\w*|time[ds]? ?-?out|crash\w*|abort\w*|traceback|exception|cannot|can't|unable|wrong|broken|problems?|issues?|segfault|killed|refused|lost|not work\w*|NCCL WARN|Xid)\b`)

// untroubled matches lines that have such words and say nothing by them: what NCCL says besides warnings, the head of
// nccl-tests' tables, and commands.
var untroubled = regexp.MustCompile(`NCCL INFO |#wrong|^# .*(?:Out of bounds values|redop)|--query-|^\$ |nvlink -e\b|^\s*$`)

// maxTrouble is how much text beside the outputs is searched: of more it is not said that all is well.
const maxTrouble = 1 << 20

// trouble says whether lines outside of the outputs speak of some.
func (in *input) trouble(read map[place]bool) bool {
	n := 0
	for file, f := range in.files {
		for at := 0; at < len(f.Text); {
			end := endOfLine(f.Text, at)
			if !read[place{file, at}] && !untroubled.Match(f.Text[at:end]) {
				if n += end - at; n > maxTrouble || troubled.Match(bytes.TrimSpace(f.Text[at:end])) {
					return true
				}
			}
			at = end + 1
		}
	}
	return false
}

// fields returns the values of "key : value" lines.
func (b *block) fields(separator string) map[string]string {
	out := map[string]string{}
	for _, l := range b.lines {
		key, value, ok := strings.Cut(l, separator)
		if key = strings.TrimSpace(key); ok && out[key] == "" {
			out[key] = strings.TrimSpace(value)
		}
	}
	return out
}

// find returns the first line that matches, and its groups.
func (b *block) find(re *regexp.Regexp) (int, []string) {
	for i, l := range b.lines {
		if m := re.FindStringSubmatch(l); m != nil {
			return i, m
		}
	}
	return 0, nil
}

// odd returns the value that most have, if at least three of four have it, and which members have another.
func odd(values []string) (common string, others []int) {
	count := map[string]int{}
	for _, v := range values {
		count[v]++
	}
	for v, n := range count {
		if n > count[common] {
			common = v
		}
	}
	if len(values) < 3 || count[common] == len(values) || count[common]*4 < len(values)*3 && (len(values) > 3 || count[common] < 2) {
		return common, nil
	}
	for i, v := range values {
		if v != common {
			others = append(others, i)
		}
	}
	return common, others
}

// several writes how many there are of each: "8 NVIDIA H100".
func several(names []string) string {
	var order []string
	count := map[string]int{}
	for _, n := range names {
		if count[n]++; count[n] == 1 {
			order = append(order, n)
		}
	}
	for i, n := range order {
		order[i] = strconv.Itoa(count[n]) + " " + n
	}
	return strings.Join(order, ", ")
}

// span writes the least and the greatest: "28 to 36".
func span(values []float64) string {
	if len(values) == 0 {
		return "?"
	}
	low, high := slices.Min(values), slices.Max(values)
	if low == high {
		return number(low)
	}
	return number(low) + " to " + number(high)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// value reads the first number in a text.
func value(s string) (float64, bool) {
	f, err := strconv.ParseFloat(strings.TrimSuffix(smiValue.FindString(s), "."), 64)
	return f, err == nil
}

// plural writes a number and what it counts.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
