package matrix

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

// variables are those that every component has; {version of NAME} is that of another component.
var variables = []string{
	"version", "version.upstream", "version.short", "version.minor",
	"cuda", "cuda.major", "cuda.minor", "distro", "release", "variant",
	"arch", "machine", "multiarch", "lib",
}

const versionOf = "version of "

// inBraces finds "{{" and what begins like a variable: a brace and a letter. "${" is a shell's.
var inBraces = regexp.MustCompile(`\$\{[^}]*\}|\{\{|\{[A-Za-z][^{}]*\}?`)

// A template is text with {variables}.
type template struct {
	Text string
	At   Pos
}

func (t *template) decode(r *reporter, field string, n *yaml.Node) {
	if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 && len(n.Content) == 2 && n.Content[1].Value == "" {
		r.report(pos(n), field, "text that begins with a brace is a mapping in YAML", fmt.Sprintf("put all of it in quotes, as in %q", "{"+n.Content[0].Value+"}…"))
		return
	}
	text, ok := r.text(field, n)
	if !ok {
		return
	}
	t.Text, t.At = text, pos(n)
	r.checkVariables(field, *t, false)
	if text == "" {
		r.report(t.At, field, "the text is empty", "write it, or leave the key out")
	}
}

// checkVariables reports variables that there are not.
func (r *reporter) checkVariables(field string, t template, exact bool) {
	for _, found := range inBraces.FindAllString(t.Text, -1) {
		if found == "{{" || found[0] == '$' {
			continue
		}
		name, closed := strings.CutSuffix(found[1:], "}")
		if exact {
			name = strings.TrimSuffix(name, ":exact")
		}
		of, is := strings.CutPrefix(name, versionOf)
		all := slices.Concat(variables, r.vars)
		switch {
		case !closed:
			r.report(t.At, field, fmt.Sprintf("the brace of %q has no end", found), `close it, or write "{{" for a brace that begins no variable`)
		case is && !slices.Contains(r.components, of):
			r.report(t.At, field, fmt.Sprintf("there is no component %q", of), suggest("component", of, r.components))
		case !is && !slices.Contains(all, name):
			r.report(t.At, field, fmt.Sprintf("there is no variable {%s}", name), suggest("variable", name, all)+`; "{{" is a brace that begins no variable`)
		}
	}
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (template) JSONSchema() *jsonschema.Schema { return defined("text") }

// A pattern is a template of a regular expression (RE2), in which {version:exact} is a version that
// is not part of a longer one.
type pattern struct{ template }

func (p *pattern) decode(r *reporter, field string, n *yaml.Node) {
	text, ok := r.text(field, n)
	if !ok {
		return
	}
	p.Text, p.At = text, pos(n)
	r.checkVariables(field, p.template, true)
	if _, err := regexp.Compile(fillPattern(text, func(string) string { return "0" })); err != nil {
		r.report(p.At, field, fmt.Sprintf("%q is not a regular expression: %s", text, strings.TrimPrefix(err.Error(), "error parsing regexp: ")), "write it in RE2's syntax; a backslash makes the next character a plain one")
	}
}

// fillText fills in a template's variables.
func fillText(text string, value func(name string) string) string {
	return inBraces.ReplaceAllStringFunc(text, func(found string) string {
		switch {
		case found == "{{":
			return "{"
		case found[0] == '$':
			return found
		}
		return value(strings.TrimSuffix(found[1:], "}"))
	})
}

// fillPattern fills in a pattern's variables, as literal text.
func fillPattern(text string, value func(name string) string) string {
	out, last := "", 0
	for _, at := range inBraces.FindAllStringIndex(text, -1) {
		before, found := text[last:at[0]], text[at[0]:at[1]]
		out, last = out+before, at[1]
		name, exact := strings.CutSuffix(strings.TrimSuffix(found[1:], "}"), ":exact")
		switch {
		case found == "{{":
			out += `\{`
		case found[0] == '$':
			out += found
		case exact:
			out += leftOf(out) + versionEnd(value(name))
		default:
			out += regexp.QuoteMeta(value(name))
		}
	}
	return out + text[last:]
}

// ExactVersion returns a pattern for a version that is not part of a longer one: it matches "v4.1.4"
// and "4.1.4rc2" but not "4.1.40".
func ExactVersion(version string) string { return leftOf("") + versionEnd(version) }

// leftOf returns what a pattern must match between the text before it and a version: that the version
// does not begin there.
func leftOf(before string) string {
	if before == "" || strings.HasSuffix(before, "^") {
		return `(?:^|[^0-9.])`
	}
	if last := before[len(before)-1]; last >= '0' && last <= '9' || strings.ContainsRune(`.)]}*+?\`, rune(last)) {
		return `[^0-9.]` // it may match a digit or a dot
	}
	return `(?:.*[^0-9.])?`
}

func versionEnd(version string) string { return regexp.QuoteMeta(version) + `(?:\b|[^0-9])` }

// choices is a text, or a list of texts of which the first whose conditions hold is taken.
type choices []textChoice

type textChoice struct {
	At     Pos      `json:"-"`
	When   partTest `json:"when,omitempty" jsonschema_description:"Where it is taken."`
	Unless partTest `json:"unless,omitempty" jsonschema_description:"Where it is not."`
	Value  text     `json:"value" jsonschema_description:"The text."`
}

// A text is a template that may be empty.
type text struct{ template }

func (t *text) decode(r *reporter, field string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Value == "" {
		t.At = pos(n)
		return
	}
	t.template.decode(r, field, n)
}

func (c *choices) decode(r *reporter, field string, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		only := textChoice{At: pos(n)}
		only.Value.decode(r, field, n)
		*c = choices{only}
		return
	}
	r.decodeInto(field, n, (*[]textChoice)(c))
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (choices) JSONSchema() *jsonschema.Schema { return defined("choices") }

// named is a mapping from names of one kind to values, in the file's order.
type named[K ruled, V any] []namedValue[V]

type namedValue[V any] struct {
	Name  string
	At    Pos
	Value V
}

func (m *named[K, V]) decode(r *reporter, field string, n *yaml.Node) {
	entries, ok := r.mapping(field, n, "name", nil)
	if ok && len(n.Content) == 0 {
		r.report(pos(n), field, "the mapping is empty", "fill it, or leave the key out")
	}
	for _, e := range entries {
		var k K
		if msg, remedy := k.kind().problem(e.key); msg != "" {
			r.report(e.at, join(field, e.key), msg, remedy)
		}
		v := namedValue[V]{Name: e.key, At: e.at}
		r.decodeInto(join(field, e.key), e.value, &v.Value)
		*m = append(*m, v)
	}
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (named[K, V]) JSONSchema() *jsonschema.Schema {
	var k K
	var v V
	one := uint64(1)
	s := &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: reflectSchema(v)}
	if p := k.kind().pattern; p != nil {
		s.PropertyNames = &jsonschema.Schema{Pattern: p.String()}
	}
	return s
}

// scripts is one script or several, which run one after the other.
type scripts []value[relative]

func (s *scripts) decode(r *reporter, field string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		n = &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Column: n.Column, Content: []*yaml.Node{n}}
	}
	r.decodeInto(field, n, (*[]value[relative])(s))
	for i, f := range *s {
		if relativeKind.pattern.MatchString(f.Text) {
			r.checkFile(item(field, i), f.At, f.Text)
		}
	}
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (scripts) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{value[relative]{}.JSONSchema(), reflectSchema([]value[relative]{})}}
}

// bare decodes an entry of a list: a mapping, or text alone, which is the entry's only value.
func bare[T any](r *reporter, field string, n *yaml.Node, entry *T, only *template) (isText bool) {
	if n.Kind == yaml.ScalarNode {
		only.decode(r, field, n)
		return true
	}
	r.structure(field, n, reflect.ValueOf(entry).Elem())
	return false
}

func (e *packageEntry) decode(r *reporter, field string, n *yaml.Node) {
	var t template
	if bare(r, field, n, e, &t) {
		e.At, e.Install = pos(n), []template{t}
	}
	for i, p := range e.Install {
		if p.At.set() && strings.ContainsAny(p.Text, " \t\n'\"$;&|<>`\\") {
			r.report(p.At, item(field, i), fmt.Sprintf("%q is not a package", p.Text), `write its name, as in "jq", or name=version; one entry for each`)
		}
	}
}

func (e *sourceEntry) decode(r *reporter, field string, n *yaml.Node) {
	if bare(r, field, n, e, &e.URL) {
		e.At = pos(n)
	}
}

func (e *dirEntry) decode(r *reporter, field string, n *yaml.Node) {
	if bare(r, field, n, e, &e.Dir) {
		e.At = pos(n)
	}
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (packageEntry) JSONSchema() *jsonschema.Schema { return defined("packages") }

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (dirEntry) JSONSchema() *jsonschema.Schema { return defined("directory") }

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (sourceEntry) JSONSchema() *jsonschema.Schema { return defined("source") }

// The same without the methods, for the schema.
type (
	plainPackageEntry packageEntry
	plainDirEntry     dirEntry
	plainSourceEntry  sourceEntry
)

func orText(entry any) *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{defined("text"), reflectSchema(entry)}}
}

// A versionSource is a version, or the locked package that has it.
type versionSource struct {
	At      Pos
	Text    string
	Package value[anyName]
}

func (v *versionSource) decode(r *reporter, field string, n *yaml.Node) {
	v.At = pos(n)
	if n.Kind == yaml.ScalarNode {
		var text value[anyVersion]
		text.decode(r, field, n)
		v.Text = text.Text
		return
	}
	var of struct {
		Package value[anyName] `json:"package"`
	}
	r.decodeInto(field, n, &of)
	v.Package = of.Package
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (versionSource) JSONSchema() *jsonschema.Schema {
	of := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), Required: []string{"package"}, AdditionalProperties: jsonschema.FalseSchema}
	name := value[anyName]{}.JSONSchema()
	name.Description = "A package, whose locked version it is."
	of.Properties.Set("package", name)
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{value[anyVersion]{}.JSONSchema(), of}}
}

// versionForms are the versions that a component has: words, or those of one form.
type versionForms struct {
	At      Pos
	Words   []string
	Form    *regexp.Regexp
	Example string
}

type writtenForm struct {
	At      Pos               `json:"-"`
	Form    value[sentence]   `json:"form" jsonschema_description:"RE2 that a whole version matches."`
	Example value[anyVersion] `json:"example" jsonschema_description:"A version of the form, for messages."`
}

func (v *versionForms) decode(r *reporter, field string, n *yaml.Node) {
	v.At = pos(n)
	if n.Kind == yaml.SequenceNode {
		var words []value[anyVersion]
		r.decodeInto(field, n, &words)
		for _, w := range words {
			v.Words = append(v.Words, w.Text)
		}
		return
	}
	var w writtenForm
	r.decodeInto(field, n, &w)
	form, err := regexp.Compile("^(?:" + w.Form.Text + ")$")
	switch {
	case err != nil:
		r.report(w.Form.At, field+".form", fmt.Sprintf("%q is not a regular expression", w.Form.Text), "write it in RE2's syntax")
	case w.Example.At.set() && !form.MatchString(w.Example.Text):
		r.report(w.Example.At, field+".example", fmt.Sprintf("%q is not of the form %q", w.Example.Text, w.Form.Text), "correct one of the two")
	}
	v.Form, v.Example = form, w.Example.Text
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (versionForms) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{reflectSchema([]value[anyVersion]{}), reflectSchema(writtenForm{})}}
}

type (
	license     struct{}
	homepage    struct{}
	varName     struct{}
	envName     struct{}
	labelName   struct{}
	fileName    struct{}
	anyName     struct{}
	relative    struct{}
	fileMode    struct{}
	fingerprint struct{}
	builder     struct{}
	mounting    struct{}
	distroOfRow struct{}
	cudaOfRow   struct{}
)

var (
	licenseKind = kind{
		what: "a license", pattern: regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+-]*( (AND|OR|WITH) [(]?[A-Za-z0-9][A-Za-z0-9.+-]*[)]?)*$`),
		remedy: `write an SPDX expression, as in "MIT" or "Apache-2.0 AND BSD-3-Clause", or LicenseRef-NAME`,
	}
	homepageKind = kind{
		what: "a homepage", pattern: regexp.MustCompile(`^https?://[^ ]+$`),
		remedy: `write its address, as in "https://example.org"`,
	}
	varNameKind = kind{
		what: "a variable's name", pattern: regexp.MustCompile(`^[a-z][a-z0-9]*([-_][a-z0-9]+)*$`),
		remedy: `use lower-case letters and digits, separated by "-", as in "arch-doca"`,
	}
	envNameKind = kind{
		what: "an environment variable", pattern: regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`),
		remedy: `use letters, digits and "_", as in "TOOL_HOME"`,
	}
	labelNameKind = kind{
		what: "a label", pattern: regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`),
		remedy: `use lower-case letters and digits, separated by ".", "_" or "-", as in "org.example.tool"`,
	}
	fileNameKind = kind{
		what: "a file's name", pattern: regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`),
		remedy: `use letters, digits, ".", "_" and "-", as in "tool.tar.gz"`,
	}
	anyNameKind = kind{
		what: "a package", pattern: regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]+$`),
		remedy: `write its name, as in "openssh-server"`,
	}
	relativeKind = kind{
		what: "a file beside component.yaml", pattern: regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*(/[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*)*$`),
		remedy: `write its path from there, as in "build.sh"`,
	}
	fileModeKind = kind{
		what: "a file's mode", pattern: regexp.MustCompile(`^0[0-7]{3}$`),
		remedy: `write it in quotes, as in "0755"`,
	}
	fingerprintKind = kind{
		what: "a fingerprint", pattern: regexp.MustCompile(`^([0-9A-F]{4} ?){10}$`),
		remedy: `write its 40 digits in upper case, as "gpg --show-keys FILE" prints them`,
	}
	builderKind     = kind{what: "a builder", words: []string{"tools"}}
	mountingKind    = fileNameKind
	distroOfRowKind = kind{what: "a choice of a release", words: []string{"own", "oldest"}}
	cudaOfRowKind   = kind{what: "a choice of a CUDA version", words: []string{"own", "lowest-of-major", "highest-of-major"}}
)

func (license) kind() kind     { return licenseKind }
func (homepage) kind() kind    { return homepageKind }
func (varName) kind() kind     { return varNameKind }
func (envName) kind() kind     { return envNameKind }
func (labelName) kind() kind   { return labelNameKind }
func (fileName) kind() kind    { return fileNameKind }
func (anyName) kind() kind     { return anyNameKind }
func (relative) kind() kind    { return relativeKind }
func (fileMode) kind() kind    { return fileModeKind }
func (fingerprint) kind() kind { return fingerprintKind }
func (builder) kind() kind     { return builderKind }
func (mounting) kind() kind    { return mountingKind }
func (distroOfRow) kind() kind { return distroOfRowKind }
func (cudaOfRow) kind() kind   { return cudaOfRowKind }
