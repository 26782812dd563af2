package suite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// FileVersion is the version of the files that [ParseFile] reads.
const FileVersion = 1

// A File is a suite as data: the kinds of checks to run, and their parameters.
type File struct {
	Name    string // its origin, for errors
	Title   string
	Limit   time.Duration // for all checks together; 0: none
	Entries []Entry
}

// An Entry is one item of a file. It names a kind of check, and may produce several checks.
type Entry struct {
	ID      string // of its check, or the prefix of its checks' ids; default: its kind
	Run     string // the kind
	Needs   []string
	Timeout time.Duration          // of each check; 0: the kind's default
	Limits  map[string]result.Rule // replace figures' own limits
	file    string
	line    int
	with    *yaml.Node
}

// A Kind creates the checks of entries.
type Kind struct {
	Name  string
	Usage string // what it checks, for the user
	Make  func(*Entry) ([]Check, error)
}

// fileDocument is the YAML form of a file.
type fileDocument struct {
	Version int       `yaml:"version"`
	Title   string    `yaml:"title"`
	Limit   string    `yaml:"limit"`
	Checks  yaml.Node `yaml:"checks"`
}

type entryDocument struct {
	Run     string               `yaml:"run"`
	ID      string               `yaml:"id"`
	Needs   []string             `yaml:"needs"`
	Timeout string               `yaml:"timeout"`
	Limits  map[string]yaml.Node `yaml:"limits"`
	With    yaml.Node            `yaml:"with"`
}

type limitDocument struct {
	Value    float64 `yaml:"value"`
	Fraction float64 `yaml:"fraction"`
	Of       string  `yaml:"of"`
}

// An id becomes part of the names of checks, files, metrics and pages.
var goodID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`)

const maxID = 100

// maxFile is far more than a list of checks needs.
const maxFile = 1 << 20

// ParseFile reads a file strictly: anything unknown is an error, with the name and the line.
func ParseFile(name string, r io.Reader) (*File, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s: more than %d bytes are no list of checks", name, maxFile)
	}
	var root, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	switch err := dec.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: it is empty; want version, title and checks", name)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is more behind its first YAML document; write all checks below one \"checks:\"", name)
	}
	f := &File{Name: name}
	if err := f.read(root.Content[0]); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) read(n *yaml.Node) error {
	var d fileDocument
	if err := decode(f.Name, n, &d); err != nil {
		return err
	}
	f.Title = strings.TrimSpace(d.Title)
	switch {
	case d.Version != FileVersion:
		return at(f.Name, n, "version: %d; this harness reads version %d", d.Version, FileVersion)
	case f.Title == "":
		return at(f.Name, n, "title: it is missing; say in a few words what a pass shows")
	case d.Checks.Kind != yaml.SequenceNode || len(d.Checks.Content) == 0:
		return at(f.Name, n, "checks: want a list of at least one, such as - run: health")
	}
	var err error
	if f.Limit, err = duration(d.Limit); err != nil {
		return at(f.Name, n, "limit: %w", err)
	}
	for _, c := range d.Checks.Content {
		e, err := f.entry(c)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(f.Entries, func(o Entry) bool { return o.ID == e.ID }) {
			return at(f.Name, c, "id: two entries are called %q; give one of them an id of its own", e.ID)
		}
		f.Entries = append(f.Entries, *e)
	}
	return nil
}

func (f *File) entry(n *yaml.Node) (*Entry, error) {
	var d entryDocument
	if err := decode(f.Name, n, &d); err != nil {
		return nil, err
	}
	e := &Entry{ID: d.ID, Run: d.Run, Needs: d.Needs, file: f.Name, line: n.Line, with: &d.With}
	if e.Run == "" {
		return nil, at(f.Name, n, "run: it is missing; say what kind of check this is")
	}
	e.ID = cmp.Or(e.ID, e.Run)
	if !goodID.MatchString(e.ID) || len(e.ID) > maxID {
		return nil, at(f.Name, n, "id: %.120q; want at most %d letters, digits, '.', '_' and '-', as words with slashes between, such as gpu/memory", e.ID, maxID)
	}
	var err error
	if e.Timeout, err = duration(d.Timeout); err != nil {
		return nil, at(f.Name, n, "timeout: %w", err)
	}
	for name, node := range d.Limits {
		rule, err := limitRule(f.Name, &node)
		if err != nil {
			return nil, err
		}
		if e.Limits == nil {
			e.Limits = map[string]result.Rule{}
		}
		rule.Source = e.Place()
		e.Limits[name] = rule
	}
	return e, nil
}

func limitRule(file string, n *yaml.Node) (result.Rule, error) {
	var d limitDocument
	if err := decode(file, n, &d); err != nil {
		return result.Rule{}, err
	}
	switch {
	case d.Value < 0 || d.Fraction < 0 || (d.Value > 0) == (d.Fraction > 0):
		return result.Rule{}, at(file, n, "want either value or fraction, a number above 0")
	case d.Fraction > 0 && d.Of != "peak" && d.Of != "typical":
		return result.Rule{}, at(file, n, "of: %q; a fraction is of peak (the hardware's own figure) or typical (what was published of healthy nodes)", d.Of)
	case d.Value > 0 && d.Of != "":
		return result.Rule{}, at(file, n, "of: a value is a fraction of nothing")
	}
	return result.Rule{Value: d.Value, Fraction: d.Fraction, Of: d.Of}, nil
}

// duration parses a time such as 30s; "" is 0.
func duration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a time such as 30s or 5m", s)
	}
	return d, nil
}

func at(file string, n *yaml.Node, format string, a ...any) error {
	return fmt.Errorf("%s:%d: %w", file, n.Line, fmt.Errorf(format, a...))
}

// decode decodes YAML, and refuses keys that v lacks.
func decode(file string, n *yaml.Node, v any) error {
	if n.Kind != yaml.MappingNode {
		return at(file, n, "want keys and values")
	}
	known := keys(v)
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if !slices.Contains(known, key.Value) {
			return at(file, key, "there is no key %q here; did you mean %q? (all: %s)", key.Value, words.Nearest(key.Value, known), strings.Join(known, ", "))
		}
	}
	if err := n.Decode(v); err != nil {
		var typed *yaml.TypeError
		if errors.As(err, &typed) {
			err = errors.New(strings.Join(typed.Errors, "; ")) // they contain line numbers
			return fmt.Errorf("%s: %w", file, err)
		}
		return at(file, n, "%w", err)
	}
	return nil
}

// keys returns the YAML names of a struct's fields.
func keys(v any) (out []string) {
	for f := range reflect.TypeOf(v).Elem().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		out = append(out, name)
	}
	return out
}

// Decode decodes the entry's "with" into a struct. Fields that it does not mention keep their
// values.
func (e *Entry) Decode(v any) error {
	if e.with == nil || e.with.Kind == 0 {
		return nil
	}
	return decode(e.file, e.with, v)
}

// Select returns which of a kind's checks the patterns under "only" and "skip" select. A pattern
// that covers none of ids is an error: a typo would otherwise include or exclude checks
// unnoticed.
func (e *Entry) Select(only, skip, ids []string) (wanted func(id string) bool, err error) {
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"only", only}, {"skip", skip}} {
		for _, p := range list.patterns {
			if !slices.ContainsFunc(ids, func(id string) bool { return Covers(p, id) }) {
				return nil, e.Errorf("with: %s: no check of %s matches %q; the nearest is %q", list.key, e.Run, p, words.Nearest(p, ids))
			}
		}
	}
	wanted = Selection{only, skip}.Wants
	if !slices.ContainsFunc(ids, wanted) {
		return nil, e.Errorf("with: only and skip leave no check of %s (there are %s)", e.Run, strings.Join(ids, ", "))
	}
	return wanted, nil
}

// Covers reports whether a pattern covers an id, as a whole or up to a slash: "component/*" and
// "component" cover all checks below.
func Covers(pattern, id string) bool {
	for s := id; s != "."; s = path.Dir(s) {
		if ok, _ := path.Match(pattern, s); ok {
			return true
		}
	}
	return false
}

// CoversAny reports whether one of patterns covers an id.
func CoversAny(patterns []string, id string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Covers(p, id) })
}

// Errorf returns an error with the entry's file and line.
func (e *Entry) Errorf(format string, a ...any) error {
	return fmt.Errorf("%s:%d: %w", e.file, e.line, fmt.Errorf(format, a...))
}

// Checks creates the file's checks. A need may name an entry, which means all of its checks.
func (f *File) Checks(kinds []Kind) ([]Check, error) {
	var out []Check
	made := map[string][]string{} // by entry
	for i := range f.Entries {
		e := &f.Entries[i]
		k, err := kind(kinds, e)
		if err != nil {
			return nil, err
		}
		checks, err := k.Make(e)
		if err != nil {
			return nil, err
		}
		for _, c := range checks {
			c.Needs = slices.Concat(c.Needs, e.Needs)
			if e.Timeout > 0 {
				c.Timeout = e.Timeout
			}
			made[e.ID] = append(made[e.ID], c.ID)
			out = append(out, c)
		}
	}
	if err := f.checkNeeds(out, made); err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Needs = expanded(out[i].Needs, made)
	}
	if err := Validate(out); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	return out, nil
}

func kind(kinds []Kind, e *Entry) (Kind, error) {
	var names []string
	for _, k := range kinds {
		if k.Name == e.Run {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kind{}, e.Errorf("run: there is no kind of check %q; did you mean %q? (all: %s)", e.Run, words.Nearest(e.Run, names), strings.Join(names, ", "))
}

// checkNeeds reports a need that is neither a check nor an entry.
func (f *File) checkNeeds(checks []Check, made map[string][]string) error {
	names := slices.Sorted(maps.Keys(made))
	for _, c := range checks {
		names = append(names, c.ID)
	}
	for i := range f.Entries {
		for _, need := range f.Entries[i].Needs {
			if !slices.Contains(names, need) {
				return f.Entries[i].Errorf("needs: there is no check or entry %q; the nearest is %q", need, words.Nearest(need, names))
			}
		}
	}
	return nil
}

// expanded replaces entries with their checks.
func expanded(needs []string, made map[string][]string) (out []string) {
	for _, n := range needs {
		if ids, ok := made[n]; ok {
			out = append(out, ids...)
		} else {
			out = append(out, n)
		}
	}
	return out
}

// Suite returns the file as a suite with that name.
func (f *File) Suite(name string, kinds []Kind) Suite {
	return Suite{Name: name, Title: f.Title, Checks: func(context.Context, *Env) ([]Check, error) { return f.Checks(kinds) }}
}

// FileSuite returns the name of a suite in a file.
func FileSuite(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".yaml"), ".yml")
}

// Place returns the entry's file and line.
func (e *Entry) Place() string { return fmt.Sprintf("%s:%d", e.file, e.line) }
