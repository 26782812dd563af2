package matrix

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

// facts is what is known about a row or a target, by key: "cuda", "ubuntu", "variant", then
// "capability" and the components. A key without a value has no entry: an image without CUDA has
// no "cuda".
type facts map[string][]string

const (
	plain   = "none"    // a condition's word for no variant, and for what an image has not
	present = "present" // a condition's word for what an image has, in any version
)

var axisKeys = []string{"cuda", "ubuntu", "variant"}

// factKeys are the keys of conditions on finished targets.
func (r *reporter) factKeys() []string {
	return slices.Concat(axisKeys, []string{"capability"}, r.components)
}

// partKeys are the keys of conditions in a component.
func (r *reporter) partKeys() []string {
	return slices.Concat(axisKeys, []string{"debian", "platform", "base", "mpi", "version"}, r.components)
}

// A selector is a list of conditions on a row: its CUDA, Ubuntu and variant.
type selector []condition

// A factTest is a list of conditions on a finished target, including its components' versions and
// its compute capabilities.
type factTest []condition

// A partTest is a list of conditions on a target as one of its components sees it.
type partTest []condition

func (s *selector) decode(r *reporter, field string, n *yaml.Node) {
	*s = r.conditions(field, n, axisKeys)
}

func (s *factTest) decode(r *reporter, field string, n *yaml.Node) {
	*s = r.conditions(field, n, r.factKeys())
}

func (s *partTest) decode(r *reporter, field string, n *yaml.Node) {
	*s = r.conditions(field, n, r.partKeys())
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (selector) JSONSchema() *jsonschema.Schema { return defined("selector") }

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (factTest) JSONSchema() *jsonschema.Schema { return defined("facts") }

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (partTest) JSONSchema() *jsonschema.Schema { return defined("parts") }

// conditionsSchema has the keys, and any other where a matrix's own components are keys, too.
func conditionsSchema(keys []string, own bool) *jsonschema.Schema {
	s := closedObject()
	if own {
		s.AdditionalProperties = defined("condition")
	}
	for _, k := range keys {
		c := defined("condition")
		if k == "variant" {
			c = value[name]{}.JSONSchema()
		}
		s.Properties.Set(k, c)
	}
	return s
}

func (r *reporter) conditions(field string, n *yaml.Node, keys []string) []condition {
	entries, ok := r.mapping(field, n, "key", keys)
	if ok && len(n.Content) == 0 {
		r.report(pos(n), field, "there is no condition here", "write at least one of "+strings.Join(axisKeys, ", "))
	}
	var out []condition
	for _, e := range entries {
		c := condition{Key: e.key}
		c.decode(r, join(field, e.key), e.value)
		out = append(out, c)
	}
	return out
}

// A condition constrains one fact: `>=12.8 <13`, `12.8.2 | >=13.2`, a variant's name, or words of
// which the fact is one: `devel`, `present`, `none`. Versions are compared only to the precision
// that the condition writes out, so that 12.8.1 satisfies both "12.8" and "<=12.8".
type condition struct {
	Key  string
	Text string
	At   Pos

	alternatives [][]term // one of them must hold, with all its terms; or
	words        []string // of which the fact is one
}

type term struct {
	op      string
	version []int
}

const termPattern = `(>=|<=|>|<|=)?[0-9]{1,9}(\.[0-9]{1,9})*(-[0-9]{1,9})?`

var (
	conditionPattern = regexp.MustCompile(`^` + termPattern + `( (\| )?` + termPattern + `)*$`)
	wordsPattern     = regexp.MustCompile(`^[a-z][a-z0-9/.-]*( \| [a-z][a-z0-9/.-]*)*$`)
)

// wordless are the facts that are numbers: of words, only "present" and "none" can fit them.
var wordless = []string{"cuda", "ubuntu", "debian", "capability"}

func (c *condition) decode(r *reporter, field string, n *yaml.Node) {
	text, ok := r.text(field, n)
	if !ok {
		return
	}
	c.Text, c.At = text, pos(n)
	switch {
	case c.Key == "variant": // a name; check validates it
		c.words = []string{text}
	case wordsPattern.MatchString(text) && (text == present || text == plain || !slices.Contains(wordless, c.Key)):
		c.words = strings.Split(text, " | ")
	case !conditionPattern.MatchString(text):
		r.report(c.At, field, fmt.Sprintf("%q is not a condition", text), `write versions with >=, <=, >, < or =, as in ">=12.8 <13" or "12.8.2 | >=13", or "present" or "none"`)
	default:
		c.alternatives = parseAlternatives(text)
	}
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (condition) JSONSchema() *jsonschema.Schema { return defined("condition") }

func conditionSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: conditionPattern.String() + "|" + wordsPattern.String(), Examples: []any{">=12.8 <13", "20.04", "12.8.2 | >=13", "present"}}
}

func parseAlternatives(text string) [][]term {
	var out [][]term
	for s := range strings.SplitSeq(text, "|") {
		out = append(out, parseTerms(s))
	}
	return out
}

func parseTerms(text string) []term {
	var out []term
	for _, s := range strings.Fields(text) {
		version := strings.TrimLeft(s, "<>=")
		out = append(out, term{op: strings.TrimSuffix(s, version), version: numbers(version)})
	}
	return out
}

// holds reports whether one value satisfies the condition.
func (c condition) holds(v string) bool {
	if c.words != nil {
		return c.Text == present || slices.Contains(c.words, v)
	}
	return slices.ContainsFunc(c.alternatives, func(terms []term) bool {
		return !slices.ContainsFunc(terms, func(t term) bool { return !t.holds(v) })
	})
}

// holds is false for a version that has no numbers to compare ("distro").
func (t term) holds(v string) bool {
	have := numbers(v)
	if len(have) == 0 {
		return false
	}
	d := compareNumbers(have, t.version, len(t.version))
	switch t.op {
	case ">=":
		return d >= 0
	case "<=":
		return d <= 0
	case ">":
		return d > 0
	case "<":
		return d < 0
	}
	return d == 0
}

// absent reports whether the condition is that there is no such fact.
func (c condition) absent() bool { return c.Text == plain && c.Key != "variant" }

// applies reports whether every condition holds for some value of its fact.
func applies(conditions []condition, f facts) bool {
	return !slices.ContainsFunc(conditions, func(c condition) bool {
		return !slices.ContainsFunc(f[c.Key], c.holds) && !(c.absent() && len(f[c.Key]) == 0)
	})
}

// broken returns the first value that breaks the condition; a missing fact breaks only "present".
func (c condition) broken(f facts) (value string, is bool) {
	if len(f[c.Key]) == 0 && c.Text == present {
		return "", true
	}
	for _, v := range f[c.Key] {
		if !c.holds(v) {
			return v, true
		}
	}
	return "", false
}
