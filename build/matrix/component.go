package matrix

import (
	"fmt"
	"slices"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

// components is the mapping from component to version, in the file's order.
type components []componentRule

// A componentRule determines the version of one component.
type componentRule struct {
	name    string
	field   string // path in the file
	choices []choice
}

func (c *components) decode(r *reporter, field string, n *yaml.Node) {
	entries, ok := r.mapping(field, n, "component", r.components)
	if ok && len(n.Content) == 0 {
		r.report(pos(n), field, "there is no component here", `name at least one, as in "harness: source"`)
	}
	for _, e := range entries {
		rule := componentRule{name: e.key, field: join(field, e.key)}
		rule.decode(r, e.value)
		*c = append(*c, rule)
	}
}

// decode reads a bare version, a list of choices, or what defines a component: the matrix then
// chooses its version only where it says "from" and "version".
func (c *componentRule) decode(r *reporter, n *yaml.Node) {
	switch {
	case n.Kind == yaml.MappingNode:
		at := pos(n)
		if valueOf(n, "from") != nil {
			r.mapping(c.field, n, "key", []string{"from", "version"})
		}
		if n = valueOf(n, "version"); n == nil || n.Kind == yaml.MappingNode {
			c.choices = []choice{{At: at}}
			return
		}
	case isPath(n):
		c.choices = []choice{{At: pos(n)}}
		return
	}
	if n.Kind == yaml.ScalarNode {
		only := choice{At: pos(n)}
		only.Version.decode(r, c.field, n)
		c.choices = []choice{only}
		return
	}
	r.decodeInto(c.field, n, &c.choices)
	for i, ch := range c.choices {
		if ch.Version.At.set() == ch.Absent.At.set() && ch.At.set() {
			r.report(ch.At, item(c.field, i), "a choice is either a version or an absence",
				`write one of "version: …" and "absent: the reason"`)
		}
	}
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (components) JSONSchema() *jsonschema.Schema { return defined("components") }

func componentsSchema(lib *Library) *jsonschema.Schema {
	s := closedObject()
	for _, name := range lib.Names() {
		s.Properties.Set(name, &jsonschema.Schema{AnyOf: []*jsonschema.Schema{defined("version"), defined("own")}, Description: lib.Definition(name).About()})
	}
	s.AdditionalProperties = defined("own")
	return s
}

// JSONSchemaExtend adds that a choice is a version or an absence.
func (choice) JSONSchemaExtend(s *jsonschema.Schema) { eitherOf(s, "version", "absent") }

// rule returns the rule for the component of that name, or nil.
func (c components) rule(name string) *componentRule {
	i := slices.IndexFunc(c, func(r componentRule) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return &c[i]
}

// choose returns the first choice that fits, or nil.
func (c *componentRule) choose(f facts) *choice {
	i := slices.IndexFunc(c.choices, func(ch choice) bool { return applies(ch.When, f) })
	if i < 0 {
		return nil
	}
	return &c.choices[i]
}

// versions returns every version that the rule can yield.
func (c *componentRule) versions() []string {
	var out []string
	for _, ch := range c.choices {
		if ch.Version.At.set() {
			out = append(out, ch.Version.Text)
		}
	}
	return out
}

// decide picks the version of every component of a row. A component that is left out adds no fact
// to the row.
func (e *expansion) decide(r targetRow, f facts) (out []Component, ok bool) {
	ok = true
	for i := range r.components {
		rule := &r.components[i]
		ch := rule.choose(f)
		if ch == nil {
			e.once(rule.choices[0].At, rule.field, fmt.Sprintf("no choice fits %s", r.name),
				`add a last choice without "when", or one that says "absent" and why`)
			ok = false
			continue
		}
		e.used[ch.At] = true
		if ch.Absent.At.set() {
			continue
		}
		version := ch.Version.Text
		if version == "" {
			if version = e.matrix.Definition(rule.name).defaultVersion(); version == "" {
				e.once(ch.At, rule.field, rule.name+" does not say its version", fmt.Sprintf(`write it in its %s, or here: {from: %s, version: …}`, DefinitionFile, e.matrix.Definition(rule.name).From))
				ok = false
				continue
			}
		}
		f[rule.name] = []string{version}
		out = append(out, Component{Name: rule.name, Version: version})
	}
	return out, ok
}
