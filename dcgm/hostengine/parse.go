package hostengine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// A diagDocument is a document as DCGM writes it. 4.x has the first of the two bodies, 2.x and 3.x have
// the second. Versions are in the metadata, in the body, or next to it.
type diagDocument struct {
	Body4    *body    `json:"DCGM Diagnostic"`
	Body3    *body    `json:"DCGM GPU Diagnostic"`
	Metadata versions `json:"metadata"`
	versions
}

type versions struct {
	Version string `json:"version"` // of DCGM
	Driver  string `json:"Driver Version Detected"`
}

// String is "version 4.2.3, driver 580.95.05", without what is not known.
func (v versions) String() string {
	var is []string
	if v.Version != "" {
		is = append(is, "version "+v.Version)
	}
	if v.Driver != "" {
		is = append(is, "driver "+v.Driver)
	}
	return strings.Join(is, ", ")
}

type body struct {
	Categories []struct {
		Category string `json:"category"`
		Tests    []test `json:"tests"` // some are null
	} `json:"test_categories"`
	RuntimeError string `json:"runtime_error"`
	versions
}

type test struct {
	Name    string    `json:"name"`
	Results []outcome `json:"results"`
	Summary outcome   `json:"test_summary"` // 4.x
}

type outcome struct {
	Status   string    `json:"status"`
	Group    string    `json:"entity_group"` // 4.x
	Entity   *int      `json:"entity_id"`    // 4.x
	GPU      looseText `json:"gpu_id"`       // 3.3
	GPUs     looseText `json:"gpu_ids"`      // before 3.3
	Warnings entries   `json:"warnings"`
	Info     entries   `json:"info"`
}

// A looseText is a string or a number.
type looseText string

func (t *looseText) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = string(b)
	}
	*t = looseText(s)
	return nil
}

// A remark is an error or a remark.
type remark struct {
	Text     string
	ID       int // 0: none
	Severity int // 0: none
}

// entries is a string, or a list of strings or objects.
type entries []remark

func (e *entries) UnmarshalJSON(b []byte) error {
	var all []json.RawMessage
	if json.Unmarshal(b, &all) != nil {
		all = []json.RawMessage{b}
	}
	for _, one := range all {
		var s string
		var o struct {
			Text  string    `json:"warning"`
			Texts looseText `json:"warnings"` // 3.3, level 1
			ID    int       `json:"error_id"`
			Level int       `json:"error_severity"`
		}
		switch {
		case string(one) == "null":
		case json.Unmarshal(one, &s) == nil:
			if s = strings.TrimSpace(s); s != "" {
				*e = append(*e, remark{Text: s})
			}
		default:
			if err := json.Unmarshal(one, &o); err != nil {
				return err
			}
			*e = append(*e, remark{strings.TrimSpace(cmp.Or(o.Text, string(o.Texts), "an error without a text")), o.ID, o.Level})
		}
	}
	return nil
}

// parse parses the output of dcgmi diag -j. There may be log lines before the document.
func parse(out []byte) (by versions, tests []result.Result, err error) {
	begin := bytes.IndexByte(out, '{')
	if begin < 0 {
		return by, nil, errors.New("there is no JSON in what dcgmi printed")
	}
	var d diagDocument
	if err := json.NewDecoder(bytes.NewReader(out[begin:])).Decode(&d); err != nil {
		return by, nil, fmt.Errorf("what dcgmi printed: %w", err)
	}
	b := cmp.Or(d.Body4, d.Body3)
	if b == nil {
		return by, nil, errors.New(`what dcgmi printed has neither "DCGM Diagnostic" nor "DCGM GPU Diagnostic"`)
	}
	if b.RuntimeError != "" {
		return by, nil, fmt.Errorf("dcgmi: %s", b.RuntimeError)
	}
	passed := map[string]map[int]bool{} // GPUs, by the result's ID
	for _, c := range b.Categories {
		for _, t := range c.Tests {
			if t.Name != "" {
				tests = add(tests, c.Category, t, passed)
			}
		}
	}
	for i := range tests {
		one := &tests[i]
		if n := len(passed[one.ID]); n > 0 && one.Verdict == result.Pass {
			one.Reason = cmp.Or(one.Reason, words.Count(n, "GPU"))
		}
	}
	if len(tests) == 0 {
		return by, nil, errors.New("what dcgmi printed has no test")
	}
	by.Version, by.Driver = cmp.Or(d.Metadata.Version, d.Version, b.Version), cmp.Or(d.Metadata.Driver, d.Driver, b.Driver)
	return by, tests, nil
}

// add adds a test, and the GPUs that pass it to passed. Tests that are separate in level 1 before 4.x
// become a part of software.
func add(tests []result.Result, category string, t test, passed map[string]map[int]bool) []result.Result {
	name, part := canonical(t.Name), ""
	if category == "Deployment" && name != software {
		name, part = software, t.Name+": "
	}
	one := named(name, result.Skip)
	i := slices.IndexFunc(tests, func(r result.Result) bool { return r.ID == one.ID })
	if i < 0 {
		i, tests, passed[one.ID] = len(tests), append(tests, one), map[int]bool{}
	}
	into := &tests[i]
	said := false
	for _, r := range t.Results {
		said = said || len(r.Warnings) > 0
		collect(into, part, r)
		for _, gpu := range r.gpus() {
			if r.status() == result.Pass {
				passed[one.ID][gpu] = true
			}
		}
	}
	if !said { // results without an entity are only there
		collect(into, part, t.Summary)
	}
	return tests
}

// named is a result of a test of DCGM's.
func named(test string, v result.Verdict) result.Result {
	return result.Result{ID: Name + "/" + test, Title: test + " of " + Name, Verdict: v}
}

// collect adds the problems of a test on a GPU, on something else, or in total.
func collect(into *result.Result, part string, r outcome) {
	if r.Status == "" && len(r.Warnings) == 0 {
		return // there is no summary
	}
	status := r.status()
	gpu, where := r.where()
	if status == result.Skip {
		for _, e := range slices.Concat(r.Warnings, r.Info) {
			into.Reason = cmp.Or(into.Reason, part+where+e.Text)
		}
		return
	}
	if into.Verdict == result.Skip {
		into.Reason = "" // the reason was another GPU's
	}
	into.Add(status, "", "")
	for _, e := range r.Warnings {
		text := gpu + part + where + e.Text
		if e.ID != 0 {
			text += fmt.Sprintf(" (DCGM error %d)", e.ID)
		}
		into.Add(status, text, remedies[e.Severity])
	}
	if status == result.Pass || len(r.Warnings) > 0 || r.Entity == nil && r.GPU+r.GPUs == "" && into.Reason != "" {
		return // it is explained, or a summary of what is
	}
	into.Add(status, gpu+part+where+"DCGM says "+r.Status+", and not why", "")
}

// gpus are the GPUs that an outcome is of, in DCGM's numbering: "0", or "0,1,2,3".
func (r outcome) gpus() (all []int) {
	text := string(cmp.Or(r.GPU, r.GPUs))
	if r.Entity != nil && (r.Group == "" || r.Group == "GPU") {
		text = strconv.Itoa(*r.Entity)
	}
	for one := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(one)); err == nil && n >= 0 {
			all = append(all, n)
		}
	}
	return all
}

// where returns a prefix that names the GPU, or one that names another entity. There is none for
// several.
func (r outcome) where() (gpu, other string) {
	gpus := r.gpus()
	switch {
	case r.Entity != nil && r.Group != "" && r.Group != "GPU":
		return "", fmt.Sprintf("%s %d: ", r.Group, *r.Entity)
	case len(gpus) == 1:
		return fmt.Sprintf("GPU %d as %s counts: ", gpus[0], Name), ""
	}
	return "", ""
}

// soft are the errors that are warnings in dcgmi's own table and failures in its JSON: environment
// variables, and persistence mode.
var soft = []int{28, 29}

// status is the verdict. A status that is not known here is not a pass.
func (r outcome) status() result.Verdict {
	switch strings.ToLower(strings.TrimSpace(r.Status)) {
	case "pass", "passed":
		return result.Pass
	case "skip", "skipped":
		return result.Skip
	case "warn", "warning":
		return result.Warn
	}
	hard := func(e remark) bool { return !slices.Contains(soft, e.ID) }
	if len(r.Warnings) > 0 && !slices.ContainsFunc(r.Warnings, hard) {
		return result.Warn
	}
	return result.Fail
}

// remedies by DCGM's severity of an error.
var remedies = map[int]string{
	1: "watch it",
	2: "take the GPU out of service; if a run after a restart finds it again, replace it",
	4: "look for the cause before jobs use the GPU: harness diag on it alone, the kernel's log, cables and seat",
	5: "correct the machine's configuration",
	6: "reset the GPU, or restart the machine",
}

const software = "software"

// canonical is the name of a test in 4.x; older versions print descriptive names.
func canonical(name string) string {
	s := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "_")
	switch s {
	case "gpu_memory":
		return "memory"
	case "eud_test":
		return "eud"
	}
	return s
}
