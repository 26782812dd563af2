package judge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/explain"
)

// A diag is what dcgmi diag printed.
type diag struct {
	version, driver string
	tests           []diagTest
	messages        []diagNote
	line            int
}

type diagTest struct {
	name, result string
	gpus         []string // "GPU0: Fail"
}

type diagNote struct {
	kind, text string // "Warning: GPU0"
	line       int
}

var (
	diagBegin   = regexp.MustCompile(`\|\s*Diagnostic\s*\|\s*Result\s*\|`)
	diagCells   = regexp.MustCompile(`^\|([^|]*)\|([^|]*)\|?\s*$`)
	diagSection = regexp.MustCompile(`^[|+]-----  (?:Metadata|Deployment|Integration|Hardware|Stress|Plugin)`)
	diagKnown   = regexp.MustCompile(`^\| (?:GPU Memory|PCIe|Memory Bandwidth|Targeted (?:Stress|Power)|SM Stress|Diagnostic|Memtest|EUD Test|Pulse Test|Denylist|NVML Library|software|pcie|memory|nvbandwidth) +\| (?:Pass|Fail|Warn|Skip)`)
	diagMessage = regexp.MustCompile(`^(Warning|Error|Info|Note|EUD Test|DCGM ERROR)\b`)
	diagStatus  = regexp.MustCompile(`(?i)^(pass|fail|warn|skip|error|not run)\b`)
	failedGPUs  = regexp.MustCompile(`(?i)^(?:fail|warn)\S* - GPUs?: ([\d, ]+)`)
	ofGPU       = regexp.MustCompile(`^GPUs?\s?[\d, ]+: `)
)

// readDiags reads the tables of dcgmi diag. Texts are wrapped in them, also within words.
func readDiags(lines []line) (all []*diag) {
	var d *diag
	var last *diagNote
	for _, x := range lines {
		l := x.text
		if diagBegin.MatchString(l) {
			d, last = &diag{line: x.number}, nil
			all = append(all, d)
			continue
		}
		if d == nil && strings.Contains(l, "|") && (diagSection.MatchString(l) || diagKnown.MatchString(l)) { // a part of a table
			d, last = &diag{line: x.number}, nil
			all = append(all, d)
		}
		if d == nil {
			continue
		}
		c := diagCells.FindStringSubmatch(strings.TrimSpace(l))
		if c == nil {
			last = nil
			continue
		}
		name, value := strings.TrimSpace(c[1]), strings.TrimSpace(c[2])
		switch {
		case strings.Trim(name, "-=+ ") == "" && name != "":
			last = nil
		case name == "" && last != nil && !ofGPU.MatchString(value):
			last.text += join(last.text, c[2])
		case name == "" && ofGPU.MatchString(value) && len(d.tests) > 0:
			t := &d.tests[len(d.tests)-1]
			t.gpus = append(t.gpus, value)
			last = nil
		case name == "" && value != "" && len(d.tests) > 0 && diagStatus.MatchString(value):
			t := &d.tests[len(d.tests)-1]
			t.result = worse(t.result, value)
		case diagMessage.MatchString(name):
			d.messages = append(d.messages, diagNote{name, value, x.number})
			last = &d.messages[len(d.messages)-1]
			last.text = strings.TrimPrefix(c[2], " ")
			if !strings.HasSuffix(last.text, "   ") {
				last.text = strings.TrimSuffix(last.text, "  ")
			}
			last.text = strings.TrimRight(last.text, " ") + keepSpace(last.text)
		case name == "DCGM Version":
			d.version = value
		case strings.HasPrefix(name, "Driver Version"):
			d.driver = value
		case diagStatus.MatchString(value):
			d.tests = append(d.tests, diagTest{name: name, result: value})
			last = nil
		}
	}
	return slices.DeleteFunc(all, func(d *diag) bool { return len(d.tests) == 0 && len(d.messages) == 0 })
}

// keepSpace returns the space at the end of a cell that was cut between words.
func keepSpace(s string) string {
	if strings.HasSuffix(s, " ") && !strings.HasSuffix(s, "  ") {
		return " "
	}
	return ""
}

// join returns what a further cell adds to a text.
func join(have, cell string) string {
	s := strings.TrimPrefix(cell, " ")
	return strings.TrimRight(s, " ") + keepSpace(strings.TrimSuffix(s, "  "))
}

// deployment are the tests that look at software alone.
var deployment = regexp.MustCompile(`(?i)^(?:software|denylist|blacklist|nvml library|cuda (?:main|toolkit) lib|permissions|persistence|environment|page retirement|graphics proc|inforom|fabric manager)`)

var ranks = []string{"fail", "error", "warn", "skip", "not run", "pass"}

// worse returns the worse of two results.
func worse(a, b string) string {
	rank := func(s string) int {
		for i, r := range ranks {
			if strings.HasPrefix(strings.ToLower(s), r) {
				return i
			}
		}
		return len(ranks)
	}
	if rank(b) < rank(a) {
		return b
	}
	return a
}

// jsonDiags reads dcgmi diag -j of any version: objects with a name and results.
func (in *input) jsonDiags() (out []*diag) {
	for _, doc := range in.docs {
		d := &diag{line: 1}
		found := false
		for k, v := range object(doc) {
			if strings.Contains(k, "DCGM") && strings.Contains(strings.ToLower(k), "diag") {
				found = true
				d.collect(v)
			}
		}
		if object(doc)["test_categories"] != nil {
			found = true
			d.collect(doc)
		}
		if found && len(d.tests) > 0 {
			out = append(out, d)
		}
	}
	return out
}

func (d *diag) collect(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			d.collect(e)
		}
	case map[string]any:
		if results := array(v["results"]); results != nil && text(v["name"]) != "" {
			t := diagTest{name: text(v["name"])}
			for _, e := range results {
				r := object(e)
				t.result = worse(t.result, text(r["status"]))
				id := text(r["gpu_id"]) + text(r["gpu_ids"]) + text(r["entity_id"])
				if id != "" {
					t.gpus = append(t.gpus, "GPU"+id+": "+text(r["status"]))
				}
				for _, key := range []string{"warnings", "warning", "errors", "info"} {
					d.note(key, id, r[key])
				}
			}
			if s := text(object(v, "test_summary")["status"]); s != "" {
				t.result = worse(t.result, s)
			}
			d.tests = append(d.tests, t)
			return
		}
		for _, k := range []string{"version", "DCGM Version"} {
			if s := text(v[k]); s != "" && d.version == "" {
				d.version = s
			}
		}
		for _, k := range slices.Sorted(keys(v)) {
			d.collect(v[k])
		}
	}
}

func keys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (d *diag) note(kind, id string, v any) {
	switch v := v.(type) {
	case string:
		if v != "" {
			d.messages = append(d.messages, diagNote{strings.ToUpper(kind[:1]) + strings.TrimSuffix(kind[1:], "s") + ": GPU" + id, v, 1})
		}
	case []any:
		for _, e := range v {
			if s := text(e); s != "" {
				d.note(kind, id, s)
			} else {
				d.note(kind, id, text(object(e)["warning"])+text(object(e)["message"])+text(object(e)["error"]))
			}
		}
	}
}

// cutDiag reads a document of dcgmi diag -j that is cut: names and results, as they follow each other.
func (in *input) cutDiag() []*diag {
	d := &diag{}
	for _, l := range in.lines {
		switch m := diagPair.FindStringSubmatch(l.text); {
		case d.line == 0 && strings.Contains(l.text, "DCGM") && strings.Contains(l.text, "iagnostic"):
			d.line = l.number
		case d.line == 0 || m == nil:
		case m[1] == "name":
			d.tests = append(d.tests, diagTest{name: m[2]})
		case m[1] == "status" && len(d.tests) > 0:
			t := &d.tests[len(d.tests)-1]
			t.result = worse(t.result, m[2])
		}
	}
	d.tests = slices.DeleteFunc(d.tests, func(t diagTest) bool { return t.result == "" })
	if len(d.tests) == 0 {
		return nil
	}
	return []*diag{d}
}

var diagPair = regexp.MustCompile(`"(name|status)"\s*:\s*"([^"]*)"`)

// diags judges runs of dcgmi diag.
func diags(in *input) (out []*Judgement) {
	found := append(readDiags(in.lines), in.jsonDiags()...)
	if len(found) == 0 {
		found = in.cutDiag()
	}
	for _, d := range found {
		out = append(out, d.judge(in))
	}
	return out
}

func (d *diag) judge(in *input) *Judgement {
	j := &Judgement{Subject: "dcgmi diag", Line: d.line}
	if d.version != "" {
		j.Understood = append(j.Understood, "DCGM "+d.version)
	}
	if d.driver != "" {
		j.Understood = append(j.Understood, "driver "+d.driver)
	}
	counts := map[string][]string{}
	for _, t := range d.tests {
		r := strings.ToLower(strings.Fields(t.result + " ?")[0])
		name := t.name
		if r == "fail" || r == "warn" || r == "error" {
			var bad []string
			for _, g := range t.gpus {
				if !strings.HasSuffix(strings.ToLower(g), "pass") && !strings.Contains(strings.ToLower(g), ": skip") {
					bad = append(bad, strings.SplitN(g, ":", 2)[0])
				}
			}
			if m := failedGPUs.FindStringSubmatch(t.result); m != nil && len(bad) == 0 {
				bad = append(bad, "GPU "+m[1])
			}
			if len(bad) > 0 {
				name += " (" + list(bad, 8) + ")"
			}
		}
		counts[r] = append(counts[r], name)
	}
	bad := append(counts["fail"], counts["error"]...)
	messages := d.messages
	log := in.log
	if len(messages) > 0 { // wrapped lines hide from rules what they say
		var b strings.Builder
		b.WriteString("dcgmi diag: Diagnostic Result\n")
		for _, m := range messages {
			fmt.Fprintf(&b, "| %s | %s\n", m.kind, m.text)
		}
		found := in.rules.Explain([]explain.File{{Name: in.name, Text: []byte(b.String())}})
		for _, c := range found.Causes {
			if !slices.ContainsFunc(log, func(o explain.Cause) bool { return o.ID == c.ID }) {
				c.Lines = nil
				log = append(log, c)
			}
		}
	}
	for _, m := range messages[:min(len(messages), 6)] {
		j.Notes = append(j.Notes, explain.Shown(m.kind+": "+m.text))
	}
	switch {
	case len(bad) > 0:
		j.Verdict = Fail
		j.Summary = list(bad, 6) + " failed; " + passed(counts)
	case len(counts["warn"]) > 0:
		j.Verdict = Slow
		j.Summary = list(counts["warn"], 6) + " warned; " + passed(counts)
		j.Verdict = Undecidable
	case len(counts["pass"])+len(bad) == 0 && slices.ContainsFunc(messages, func(m diagNote) bool { return strings.HasPrefix(m.kind, "Err") }):
		j.Verdict = Fail
		j.Summary = "the diagnostic reports an error: " + explain.Shown(messages[0].text)
	case len(counts["skip"]) > 0 && !slices.ContainsFunc(counts["pass"], func(n string) bool { return !deployment.MatchString(n) }):
		j.Verdict = Invalid
		j.Summary = "no test of the hardware ran, software checks alone: " + passed(counts) + " (this DCGM does not know the GPU, or needs more rights)"
	case len(counts["pass"]) == 0:
		j.Verdict = Invalid
		j.Summary = "no test ran: " + passed(counts)
	default:
		j.Verdict = OK
		j.Summary = passed(counts)
	}
	in2 := *in
	in2.log = log
	j.fromLog(&in2)
	for _, c := range log {
		if c.Verdict == explain.Undecidable && c.ID != "dcgm-below-threshold" && j.Verdict == Fail && !slices.ContainsFunc(log, func(o explain.Cause) bool { return o.Verdict == explain.Fault && o.ID != "dcgm-failed" }) {
			j.Verdict = Undecidable
		}
		j.Ask = append(j.Ask, c.Ask...)
	}
	if j.Verdict == Undecidable {
		j.Causes = slices.DeleteFunc(j.Causes, func(c Cause) bool {
			return len(j.Causes) > 1 && slices.ContainsFunc(log, func(o explain.Cause) bool { return o.ID == "dcgm-failed" && o.Cause == c.Text })
		})
	}
	return j
}

func passed(counts map[string][]string) string {
	var out []string
	for _, r := range []string{"pass", "warn", "skip"} {
		if n := len(counts[r]); n > 0 {
			word := map[string]string{"pass": "passed", "warn": "warned", "skip": "skipped"}[r]
			out = append(out, fmt.Sprintf("%d of the tests %s", n, word))
			if r == "skip" {
				out[len(out)-1] += " (" + list(counts[r], 4) + ")"
			}
		}
	}
	return strings.Join(out, ", ")
}
