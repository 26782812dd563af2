package explain

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed rules/*.yaml
var embedded embed.FS

// A Verdict is what an input shows, in the order of importance.
type Verdict string

// The verdicts.
const (
	Fault       Verdict = "fault"
	Undecidable Verdict = "undecidable" // something is wrong, and the input does not show what
	Note        Verdict = "note"        // nothing is broken, but it is worth knowing
	NoFault     Verdict = "no fault"    // it has the appearance of a fault, and is none
)

var verdicts = []Verdict{Fault, Undecidable, Note, NoFault}

// A Rule is a cause, and how it is recognized. The rules are files of YAML in the directory rules: docs/explain.md.
type Rule struct {
	ID      string      `yaml:"id" json:"id"`
	Verdict Verdict     `yaml:"verdict" json:"verdict"`
	Sure    Certainty   `yaml:"sure" json:"sure,omitempty"`
	When    []Condition `yaml:"when" json:"-"` // all must hold
	// Unless: none may hold.
	Unless []Condition `yaml:"unless" json:"-"`
	Also   []Condition `yaml:"also" json:"-"` // what adds evidence and values if it holds
	// Cause, Remedy, Verify and Ask may contain {name}: what a condition captured; [[ {name} ]] is left out without it.
	Cause  string   `yaml:"cause" json:"cause"`
	Remedy []string `yaml:"remedy" json:"remedy,omitempty"`
	Verify string   `yaml:"verify" json:"verify,omitempty"`
	Ask    []string `yaml:"ask" json:"ask,omitempty"` // what decides, if the input does not
	// Weak is a rule whose lines follow most failures: it counts if no other fault is found.
	Weak bool `yaml:"weak" json:"-"`
	// Explains are the rules of which this one is the reason, if both apply; "*" is all that are undecidable.
	Explains []string `yaml:"explains" json:"-"`
	Source   []string `yaml:"source" json:"source"` // addresses
	// Match and Not are inputs to which the rule applies, and does not.
	Match []string `yaml:"match" json:"-"`
	Not   []string `yaml:"not" json:"-"`

	file string
}

// A Certainty says how sure a rule is when it applies.
type Certainty string

// The certainties.
const (
	Certain  Certainty = "certain"  // the lines leave nothing else
	Likely   Certainty = "likely"   // most of those who had these lines had this cause
	Possible Certainty = "possible" // one of several
)

var certainties = []Certainty{Certain, Likely, Possible}

// A Condition holds by a line, a fact, or other conditions. Exactly one of Line, Fact, Differ, Any, All, None is set.
type Condition struct {
	Line   string      `yaml:"line"`
	Fact   string      `yaml:"fact"`
	Is     string      `yaml:"is"`     // of Fact: a pattern that the whole value matches
	Differ string      `yaml:"differ"` // a fact that has two values or more
	Any    []Condition `yaml:"any"`
	All    []Condition `yaml:"all"`
	None   []Condition `yaml:"none"`

	pattern int // of Line, among the set's
	is      *regexp.Regexp
}

// A factRule finds a fact in a line: its value is the group "value".
type factRule struct {
	Name string `yaml:"name"`
	Line string `yaml:"line"`
	Show string `yaml:"show"` // in the report: "NCCL {value}"

	pattern int
}

// A Set is rules that were read and checked.
type Set struct {
	Rules    []*Rule
	facts    []*factRule
	begins   []int // of the readers: their patterns
	patterns []*pattern
	numbers  map[string]int // of the patterns, by their text
	words    int            // the first of the patterns that are words to find; see Load
	scanner  *scanner
}

// Load returns assay's own rules. What finds their patterns also finds words, in the same pass: see [Report.With].
func Load(words ...string) (*Set, error) { return load(embedded, "rules", words...) }

// A ruleFile is one file of rules.
type ruleFile struct {
	Facts []*factRule `yaml:"facts"`
	Rules []*Rule     `yaml:"rules"`
}

func (f *ruleFile) read(files fs.FS, name string) error {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, r := range f.Rules {
		r.file = name
	}
	return nil
}

func load(files fs.FS, dir string, words ...string) (*Set, error) {
	s := &Set{numbers: map[string]int{}}
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, err
	}
	parts, errs := make([]ruleFile, len(entries)), make([]error, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() { errs[i] = parts[i].read(files, path.Join(dir, e.Name())) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, f := range parts {
		s.Rules, s.facts = append(s.Rules, f.Rules...), append(s.facts, f.Facts...)
	}
	for _, f := range s.facts {
		if f.pattern, err = s.pattern(f.Line); err != nil {
			return nil, fmt.Errorf("fact %s: %w", f.Name, err)
		}
	}
	for _, r := range readers {
		i, err := s.pattern(r.begins)
		if err != nil {
			return nil, fmt.Errorf("reader of %s: %w", r.what, err)
		}
		s.begins = append(s.begins, i)
	}
	for _, r := range s.Rules {
		if err := s.check(r); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", r.file, r.ID, err)
		}
	}
	s.words = len(s.patterns)
	for _, w := range words {
		s.patterns = append(s.patterns, &pattern{literals: []string{w}})
	}
	s.scanner = newScanner(s.patterns)
	return s, nil
}

// pattern returns the number of a pattern, which it adds if it is new.
func (s *Set) pattern(text string) (int, error) {
	if i, ok := s.numbers[text]; ok {
		return i, nil
	}
	p, err := newPattern(text)
	if err != nil {
		return 0, err
	}
	s.numbers[text] = len(s.patterns)
	s.patterns = append(s.patterns, p)
	return len(s.patterns) - 1, nil
}

// check completes a rule, and refuses it if something is missing.
func (s *Set) check(r *Rule) error {
	if r.Sure == "" {
		r.Sure = Certain
	}
	switch {
	case r.ID == "" || slices.ContainsFunc(s.Rules, func(o *Rule) bool { return o != r && o.ID == r.ID }):
		return fmt.Errorf("each rule needs an id of its own")
	case !slices.Contains(verdicts, r.Verdict):
		return fmt.Errorf("verdict %q; there are %q", r.Verdict, verdicts)
	case !slices.Contains(certainties, r.Sure):
		return fmt.Errorf("sure: %q; there are %q", r.Sure, certainties)
	case r.Cause == "" || len(r.When) == 0:
		return fmt.Errorf("cause and when are needed")
	case r.Verdict == Fault && len(r.Remedy) == 0:
		return fmt.Errorf("a fault needs a remedy")
	case r.Verdict == Undecidable && len(r.Ask) == 0:
		return fmt.Errorf("what is undecidable needs ask: what decides")
	case len(r.Source) == 0 || slices.ContainsFunc(r.Source, func(u string) bool { return !strings.HasPrefix(u, "https://") }):
		return fmt.Errorf("source: the address of who says so is needed")
	case len(r.Match) == 0:
		return fmt.Errorf("match: a text to which it applies is needed")
	}
	for _, id := range r.Explains {
		if id != "*" && !slices.ContainsFunc(s.Rules, func(o *Rule) bool { return o.ID == id }) {
			return fmt.Errorf("explains: there is no rule %q", id)
		}
	}
	return s.checkConditions(r.When, r.Unless, r.Also)
}

func (s *Set) checkConditions(lists ...[]Condition) error {
	for _, list := range lists {
		for i := range list {
			c := &list[i]
			n := 0
			for _, set := range []bool{c.Line != "", c.Fact != "", c.Differ != "", c.Any != nil, c.All != nil, c.None != nil} {
				if set {
					n++
				}
			}
			if n != 1 || c.Is != "" && c.Fact == "" {
				return fmt.Errorf("a condition has one of line, fact, differ, any, all, none; fact may have is")
			}
			var err error
			if c.Line != "" {
				if c.pattern, err = s.pattern(c.Line); err != nil {
					return err
				}
			}
			if c.Is != "" {
				if c.is, err = regexp.Compile(`^(?:` + c.Is + `)$`); err != nil {
					return err
				}
			}
			if err := s.checkConditions(c.Any, c.All, c.None); err != nil {
				return err
			}
		}
	}
	return nil
}
