package health

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/infile"
)

//go:embed thresholds.yaml
var thresholds []byte

// A severity determines the verdict of an object that does not pass.
type severity string

// The severities. With severityInfo an object always passes.
const (
	severityFail severity = "fail"
	severityWarn severity = "warn"
	severityInfo severity = "info"
)

// A rule defines how a check judges.
type rule struct {
	Limit    *float64 `yaml:"limit" json:"limit,omitempty"` // nil: the check needs no number
	Unit     string   `yaml:"unit" json:"unit,omitempty"`
	Severity severity `yaml:"severity" json:"severity"`
	Source   string   `yaml:"source" json:"source"`
}

func (r rule) limit() float64 {
	if r.Limit == nil {
		return 0
	}
	return *r.Limit
}

// Rules contains the rules by the IDs of the checks.
type Rules map[string]rule

// thresholdsFile is the form of thresholds.yaml.
type thresholdsFile struct {
	Schema     int             `yaml:"schema" json:"schema"`
	Thresholds map[string]rule `yaml:"thresholds" json:"thresholds"`
}

var embedded = sync.OnceValues(func() (Rules, error) {
	f, err := parse(bytes.NewReader(thresholds))
	return f, err
})

// LoadRules returns the built-in rules.
func LoadRules() (Rules, error) {
	r, err := embedded()
	return maps.Clone(r), err
}

// Override reads rules in the form of thresholds.yaml and replaces those in r. An entry may omit
// what it does not change. from is the name of the file, which is the source of entries without
// one.
func (r Rules) Override(from string, in io.Reader) error {
	over, err := parse(in)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, id := range slices.Sorted(maps.Keys(over)) {
		old, ok := r[id]
		o := over[id]
		switch {
		case !ok:
			return fmt.Errorf("%s: there is no check %q (harness health --list has them, without the suite's entry that ids in certificates begin with)", from, id)
		case o.Limit != nil && old.Limit == nil:
			return fmt.Errorf("%s: %s has no limit that could be changed", from, id)
		case o.Unit != "" && o.Unit != old.Unit:
			return fmt.Errorf("%s: %s is in %q, not in %q", from, id, old.Unit, o.Unit)
		}
		if o.Limit != nil {
			old.Limit = o.Limit
		}
		if o.Severity != "" {
			old.Severity = o.Severity
		}
		old.Source = from
		if o.Source != "" {
			old.Source = o.Source
		}
		r[id] = old
	}
	return nil
}

// A SiteFile is a site's file of limits, as it was read once: all that run checks by it judge by
// the same text.
type SiteFile struct {
	Name   string
	SHA256 string // of its bytes, in hex
	Rules  Rules  // of the checks that it names, completed by the built-in rules
}

// maxSiteFile is far more than a limit for each check needs.
const maxSiteFile = 1 << 20

// ReadSiteFile reads a file of limits.
func ReadSiteFile(name string) (*SiteFile, error) {
	b, err := infile.ReadArgument(name, maxSiteFile)
	if err != nil {
		return nil, err
	}
	over, err := parse(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rules, err := LoadRules()
	if err == nil {
		err = rules.Override(name, bytes.NewReader(b))
	}
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(rules, func(id string, _ rule) bool { _, changed := over[id]; return !changed })
	sum := sha256.Sum256(b)
	return &SiteFile{Name: name, SHA256: hex.EncodeToString(sum[:]), Rules: rules}, nil
}

// Text returns the limits in the form of thresholds.yaml, on one line, for another process.
func (f *SiteFile) Text() (string, error) {
	b, err := json.Marshal(thresholdsFile{Schema: 1, Thresholds: f.Rules}) // which is YAML, too
	return string(b), err
}

func parse(in io.Reader) (Rules, error) {
	dec := yaml.NewDecoder(in)
	dec.KnownFields(true)
	var f thresholdsFile
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case f.Schema == 0:
		return nil, errors.New("it does not say by which schema: begin it with \"schema: 1\"")
	case f.Schema != 1:
		return nil, fmt.Errorf("schema %d; this program reads schema 1", f.Schema)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind its first YAML document: write all limits below one \"thresholds:\"")
	}
	for id, r := range f.Thresholds {
		if r == (rule{}) {
			return nil, fmt.Errorf("%s: it changes nothing: give it a limit, a severity or a source", id)
		}
		switch r.Severity {
		case "", severityFail, severityWarn, severityInfo:
		default:
			return nil, fmt.Errorf("%s: severity %q; want fail, warn or info", id, r.Severity)
		}
		if r.Limit != nil && (math.IsNaN(*r.Limit) || math.IsInf(*r.Limit, 0) || *r.Limit < 0) {
			return nil, fmt.Errorf("%s: the limit %v is not a number from 0 on", id, *r.Limit)
		}
	}
	return f.Thresholds, nil
}

// Write lists the wanted checks, with their limits and sources.
func (rules Rules) Write(w io.Writer, wanted func(id string) bool) error {
	var b strings.Builder
	for _, id := range IDs() {
		if !wanted(id) {
			continue
		}
		r := rules[id]
		limit := ""
		if r.Limit != nil {
			limit = fmt.Sprintf(", limit %v %s", *r.Limit, r.Unit)
		}
		fmt.Fprintf(&b, "%-30s %s\n%-30s   %s%s: %s\n", id, Title(id), "", r.Severity, limit, r.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
