// Package explain says what a log or the output of a tool means: which known causes its lines show, what to do about
// each, and who says so. It reads files and nothing else.
//
// Causes are data: rules/*.yaml has an entry for each, with the lines that must and must not be there, the remedy, the
// source, and texts to which it applies and does not. [Set.Explain] first finds the literal parts of all patterns in one
// pass, and tries the patterns on these lines alone. What stands in several lines, such as a matrix of nvidia-smi, is read
// by readers.go and becomes facts, about which rules have conditions as about lines.
package explain

import (
	"bytes"
	"cmp"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// A fact is what an input says about something: a version, a variable, the state of a port.
type fact struct {
	value string
	more  map[string]string // for {name} in the texts of rules
	at    place
	told  bool // a person or a monitor says it, and no line that the thing itself wrote
}

// A Cause is a rule that applies.
type Cause struct {
	*Rule
	Lines []Line `json:"lines"` // the evidence, in the order of the rule's conditions
	// Follows are the lines of other causes that follow from this one.
	Follows []Line `json:"follows,omitempty"`

	explained bool
	places    []place // of all lines on which its conditions hold
}

// A Report is what the inputs show.
type Report struct {
	Schema  int      `json:"schema"` // 1
	Verdict Verdict  `json:"verdict"`
	Summary string   `json:"summary"`
	Causes  []Cause  `json:"causes"` // the first in importance first
	Known   []string `json:"understood"`
	Ask     []string `json:"ask,omitempty"` // what to get, if nothing was recognized

	with [][][]int // by file and word
}

// With returns where lines of a file begin that contain one of the words that were given to [Load], by the words' numbers.
func (r *Report) With(file, word int) []int { return r.with[file][word] }

// an input is the files, with what was found in them.
type input struct {
	files    []File // unwrapped
	original []File
	set      *Set
	hits     [][]hit // by pattern
	facts    map[string][]fact
	with     [][][]int // by file and word: where lines with it begin
}

// A hit is a line on which a pattern matches.
type hit struct {
	at       place
	captures map[string]string
	match    string // the begin of what matched
}

// Explain applies the rules to files.
func (s *Set) Explain(files []File) *Report {
	in := &input{files: make([]File, len(files)), original: files, set: s, hits: make([][]hit, len(s.patterns)), facts: map[string][]fact{}}
	for i, f := range files {
		in.files[i] = File{f.Name, unwrap(Unescape(f.Text))}
		in.scan(i)
	}
	in.findFacts()
	var all []Cause
	for _, r := range s.Rules {
		if c, ok := in.apply(r); ok {
			all = append(all, c)
		}
	}
	r := in.report(all)
	r.with = in.with
	return r
}

// scan finds the lines of a file on which patterns match. Parts of a large file are read at once.
func (in *input) scan(file int) {
	text := in.files[file].Text
	const part = 4 << 20
	var ends []int
	for end := 0; end < len(text); {
		end = endOfLine(text, min(len(text), end+max(part, len(text)/runtime.GOMAXPROCS(0))))
		ends = append(ends, end)
	}
	found, with := make([][][]hit, len(ends)), make([][][]int, len(ends))
	var all sync.WaitGroup
	for i, end := range ends {
		start := 0
		if i > 0 {
			start = ends[i-1]
		}
		all.Go(func() { found[i], with[i] = in.set.scan(text, file, start, end) })
	}
	all.Wait()
	lines := make([][]int, len(in.set.patterns)-in.set.words)
	for _, part := range with {
		for w, l := range part {
			lines[w] = append(lines[w], l...)
		}
	}
	in.with = append(in.with, lines)
	for _, hits := range found {
		for p, h := range hits {
			in.hits[p] = append(in.hits[p], h[:min(len(h), max(0, maxMatches-len(in.hits[p])))]...)
		}
	}
}

// scan returns, by pattern, the lines between two ends of lines on which the pattern matches, and by word where those with
// it begin.
func (s *Set) scan(text []byte, file, from, to int) (hits [][]hit, with [][]int) {
	hits, with = make([][]hit, s.words), make([][]int, len(s.patterns)-s.words)
	tried := make([]int, len(s.patterns)) // by pattern: 1 + the offset of the line that was tried last
	s.scanner.scan(text[from:to], func(end int, patterns []int32) {
		start, l := -1, []byte(nil)
		for _, p := range patterns {
			if int(p) >= s.words {
				if end > tried[p] {
					tried[p] = endOfLine(text, from+end-1) - from
					with[int(p)-s.words] = append(with[int(p)-s.words], from+bytes.LastIndexByte(text[from:from+end], '\n')+1)
				}
				continue
			}
			if len(hits[p]) >= maxMatches {
				continue
			}
			if start < 0 {
				start, l = line(text, from+end-1)
			}
			if tried[p] == start+1 {
				continue
			}
			tried[p] = start + 1
			re := s.patterns[p].re()
			if m := re.FindSubmatch(l); m != nil {
				hits[p] = append(hits[p], hit{place{file, start}, named(re, m), string(m[0][:min(len(m[0]), 40)])})
			}
		}
	})
	return hits, with
}

// named returns what the named groups matched. Alternatives of a pattern have names that differ in a last digit.
func named(re *regexp.Regexp, groups [][]byte) map[string]string {
	var out map[string]string
	for i, name := range re.SubexpNames() {
		if name != "" && len(groups[i]) > 0 {
			if out == nil {
				out = map[string]string{}
			}
			out[strings.TrimRight(name, "0123456789")] = string(groups[i])
		}
	}
	return out
}

// shown returns the line at a place as evidence.
func (in *input) shown(p place) Line {
	f := in.files[p.file]
	_, l := line(f.Text, p.offset)
	return Line{File: f.Name, Number: 1 + bytes.Count(in.original[p.file].Text[:p.offset], []byte{'\n'}), Text: Shown(string(l)), at: p}
}

func (in *input) add(name, value string, more map[string]string, at place) {
	if len(in.facts[name]) < maxMatches {
		in.facts[name] = append(in.facts[name], fact{value: value, more: more, at: at})
	}
}

func (in *input) findFacts() {
	for _, f := range in.set.facts {
		for _, h := range in.hits[f.pattern] {
			in.add(f.Name, h.captures["value"], h.captures, h.at)
		}
	}
	for i, r := range readers {
		if hits := in.hits[in.set.begins[i]]; len(hits) > 0 {
			r.read(in, hits)
		}
	}
}

// values returns the different values of a fact.
func (in *input) values(name string) []string {
	var out []string
	for _, f := range in.facts[name] {
		if !slices.Contains(out, f.value) {
			out = append(out, f.value)
		}
	}
	return out
}

// A proof is why conditions hold: the places of lines, and what was captured by name.
type proof struct {
	places []place          // the evidence
	match  map[place]string // what of its lines matched
	all    []place          // all lines, the evidence among them
	told   bool             // a fact is so: see there
	values map[string][]string
}

func (p *proof) capture(name, value string) {
	if p.values == nil {
		p.values = map[string][]string{}
	}
	if value = strings.TrimSpace(value); len(value) > maxQuote {
		value = strings.ToValidUTF8(value[:maxQuote], "") + " …"
	}
	if value != "" && !slices.Contains(p.values[name], value) {
		p.values[name] = append(p.values[name], value)
	}
}

// maxEvidence is how many lines a condition shows.
const maxEvidence = 2

func (in *input) all(conditions []Condition, p *proof) bool {
	for i := range conditions {
		if !in.holds(&conditions[i], p) {
			return false
		}
	}
	return true
}

func (in *input) holds(c *Condition, p *proof) bool {
	found := 0
	show := func(at place) {
		if found++; found <= maxEvidence {
			p.places = append(p.places, at)
		}
		p.all = append(p.all, at)
	}
	switch {
	case c.Line != "":
		for _, h := range in.hits[c.pattern] {
			show(h.at)
			if p.match == nil {
				p.match = map[place]string{}
			}
			if p.match[h.at] == "" {
				p.match[h.at] = h.match
			}
			for name, value := range h.captures {
				p.capture(name, value)
			}
		}
	case c.Differ != "":
		values := in.values(c.Differ)
		if len(values) < 2 {
			return false
		}
		for _, v := range values {
			p.capture(c.Differ, v)
			i := slices.IndexFunc(in.facts[c.Differ], func(f fact) bool { return f.value == v })
			show(in.facts[c.Differ][i].at)
		}
	case c.Fact != "":
		for _, f := range in.facts[c.Fact] {
			if c.is != nil {
				m := c.is.FindSubmatch([]byte(f.value))
				if m == nil {
					continue
				}
				for name, value := range named(c.is, m) {
					p.capture(name, value)
				}
			}
			show(f.at)
			p.told = p.told || f.told
			p.capture(c.Fact, f.value)
			if name, ok := strings.CutPrefix(c.Fact, "env."); ok {
				p.capture("setting", name+"="+f.value)
			}
			for name, value := range f.more {
				p.capture(name, value)
			}
		}
	case c.Any != nil:
		for i := range c.Any {
			if in.holds(&c.Any[i], p) {
				found++
			}
		}
	case c.None != nil:
		var unused proof
		return !slices.ContainsFunc(c.None, func(c Condition) bool { return in.holds(&c, &unused) })
	default:
		return in.all(c.All, p)
	}
	return found > 0
}

// apply returns the cause if the rule applies.
func (in *input) apply(r *Rule) (Cause, bool) {
	var p, unused proof
	if !in.all(r.When, &p) {
		return Cause{}, false
	}
	for i := range r.Unless {
		if in.holds(&r.Unless[i], &unused) {
			return Cause{}, false
		}
	}
	for i := range r.Also {
		in.holds(&r.Also[i], &p)
	}
	filled := *r
	filled.Cause, filled.Verify = p.fill(r.Cause), p.fill(r.Verify)
	filled.Remedy, filled.Ask = p.fillAll(r.Remedy), p.fillAll(r.Ask)
	if p.told {
		filled.fromWords()
	}
	c := Cause{Rule: &filled, places: p.all}
	for _, at := range p.places {
		if !slices.ContainsFunc(c.Lines, func(l Line) bool { return l.at == at }) {
			l := in.shown(at)
			l.match = Shown(p.match[at])
			c.Lines = append(c.Lines, l)
		}
	}
	return c, true
}

// unnamed takes out the address of a GPU that the text does not name.
var unnamed = strings.NewReplacer(" of ADDRESS", "", " ADDRESS", "", " (GPU ADDRESS)", "", ", GPU ADDRESS", "")

// fromWords makes of a cause what can be said if its facts are words of somebody.
func (r *Rule) fromWords() {
	if r.Verdict == Fault && r.Sure == Certain {
		r.Sure = Likely
	}
	r.Cause = unnamed.Replace(r.Cause) + " (by the words of this text, in which no line of the kernel's log is)"
	r.Ask = append(slices.Clone(r.Ask), "the kernel's own lines, which would prove it, with those before them: dmesg -T | grep -E 'NVRM|Xid', journalctl -k -b -1 after a restart")
}

var (
	placeholder = regexp.MustCompile(`\{[\w.-]+\}`)
	optional    = regexp.MustCompile(`\[\[(.*?)\]\]`)
)

// missing stands for a value that no condition captured.
const missing = "(?)"

// maxNames is how many values a text lists.
const maxNames = 8

// fill writes what was captured in place of {name}. What stands in [[ ]] is left out if a value in it is missing.
func (p *proof) fill(text string) string {
	text = optional.ReplaceAllStringFunc(text, func(part string) string {
		part = part[2 : len(part)-2]
		for _, name := range placeholder.FindAllString(part, -1) {
			if p.values[name[1:len(name)-1]] == nil {
				return ""
			}
		}
		return part
	})
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		values := p.values[name[1:len(name)-1]]
		if values == nil {
			return missing
		}
		var shown []string
		for _, v := range values[:min(len(values), maxNames)] {
			shown = append(shown, Shown(v))
		}
		if len(values) > maxNames {
			shown = append(shown, "…")
		}
		return strings.Join(shown, ", ")
	})
}

func (p *proof) fillAll(texts []string) (out []string) {
	for _, t := range texts {
		out = append(out, p.fill(t))
	}
	return out
}

// report orders the causes. What another cause explains becomes its consequence.
func (in *input) report(all []Cause) *Report {
	explains := func(r, other *Rule) bool {
		switch {
		case r.ID == other.ID:
			return false
		case slices.Contains(r.Explains, other.ID):
			return true
		case r.Verdict != Fault && r.Verdict != Undecidable:
			return false
		}
		return other.Weak && !r.Weak || slices.Contains(r.Explains, "*") && other.Verdict == Undecidable
	}
	for i := range all {
		for j := range all {
			if explains(all[i].Rule, all[j].Rule) && !explains(all[j].Rule, all[i].Rule) {
				all[j].explained = true
				l := all[j].Lines[0]
				known := func(o Line) bool { return o.at == l.at }
				if all[i].Verdict != NoFault && !all[i].explained && !slices.ContainsFunc(all[i].Follows, known) && !slices.ContainsFunc(all[i].Lines, known) {
					all[i].Follows = append(all[i].Follows, l)
				}
			}
		}
	}
	for i := range all { // a weak one says nothing of lines that others explain
		if c := &all[i]; c.Weak && c.Verdict == Undecidable {
			known := map[place]bool{}
			for j := range all {
				if j != i && !all[j].Weak {
					for _, at := range all[j].places {
						known[at] = true
					}
				}
			}
			c.explained = c.explained || !slices.ContainsFunc(c.places, func(at place) bool { return !known[at] })
		}
	}
	// Of none JSON has [], and not null.
	all = append([]Cause{}, slices.DeleteFunc(all, func(c Cause) bool { return c.explained })...)
	slices.SortStableFunc(all, func(a, b Cause) int {
		first := func(c Cause) place {
			return slices.MinFunc(c.Lines, func(a, b Line) int { return order(a.at, b.at) }).at
		}
		return cmp.Or(slices.Index(verdicts, a.Verdict)-slices.Index(verdicts, b.Verdict),
			slices.Index(certainties, a.Sure)-slices.Index(certainties, b.Sure), order(first(a), first(b)))
	})
	r := &Report{Schema: 1, Causes: all, Known: in.known()}
	switch {
	case len(all) == 0:
		r.Verdict, r.Summary, r.Ask = Undecidable, "no line of this is one that assay knows the cause of", slices.Clone(nothing)
	default:
		r.Verdict, r.Summary = all[0].Verdict, all[0].Cause
	}
	return r
}

// nothing is what to get where no rule applies.
var nothing = []string{
	"the log of a run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH, of every rank: the line that came first counts",
	"the first error of every rank, with the 20 lines before it",
	"dmesg -T of each node from that time; nvidia-smi -q; nvidia-smi topo -m; ibstat",
	"the command line, and what is set: env | grep -E 'NCCL|UCX|CUDA', /etc/nccl.conf",
}

func order(a, b place) int {
	if a.before(b) {
		return -1
	} else if b.before(a) {
		return 1
	}
	return 0
}

// known says what was understood of the inputs besides causes.
func (in *input) known() []string {
	out := []string{}
	for _, f := range in.set.facts {
		if f.Show == "" {
			continue
		}
		if v := in.values(f.Name); len(v) > 0 {
			p := proof{}
			for _, value := range v {
				p.capture("value", value)
			}
			if text := p.fill(f.Show); !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.facts)) {
		if strings.HasPrefix(name, "env.NCCL_") && name != "env.NCCL_DEBUG" {
			p := proof{}
			for _, value := range in.values(name) {
				p.capture("value", value)
			}
			out = append(out, name[len("env."):]+"="+p.fill("{value}"))
		}
	}
	return out
}
