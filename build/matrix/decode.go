package matrix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/words"
)

// decodable types decode themselves from a node; everything else in a document is a struct, a
// slice or a bool.
type decodable interface {
	decode(r *reporter, field string, n *yaml.Node)
}

// decodeDocument reads the whole text, which must be one YAML mapping.
func (r *reporter) decodeDocument(text []byte, f *File, open Directory) {
	if len(text) > MaxSize {
		r.report(Pos{1, 1}, "", fmt.Sprintf("the file is larger than %d bytes", MaxSize), "is this a matrix file? split it if so")
		return
	}
	r.parse(text, `begin it with "version: 1"; docs/matrix.md has the format`, func(n *yaml.Node) {
		r.ownComponents(n, f, open)
		r.decodeInto("", n, &f.doc)
	})
}

// parse calls decode with the one YAML document of a text.
func (r *reporter) parse(text []byte, empty string, decode func(n *yaml.Node)) {
	var root yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	switch err := dec.Decode(&root); {
	case errors.Is(err, io.EOF):
		r.report(Pos{1, 1}, "", "the file is empty", empty)
		return
	case err != nil:
		r.syntax(text, err)
		return
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		r.report(pos(&second), "", "a second YAML document begins here", `remove the line "---" and what follows`)
	case !errors.Is(err, io.EOF):
		r.syntax(text, err)
	}
	decode(root.Content[0])
}

// A formatVersion is the number 1.
type formatVersion struct{}

func (formatVersion) decode(r *reporter, field string, n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Value != "1" {
		r.report(pos(n), field, fmt.Sprintf("%q is not a version of this format", n.Value), `write "version: 1"; a higher one needs a newer assay`)
	}
}

var syntaxLine = regexp.MustCompile(`(?s)^yaml: (?:line ([0-9]+): )?(.*)$`)

// parserProblems are the messages for which the YAML package counts lines from 0; for messages of
// its scanner it counts from 1.
var parserProblems = []string{
	"did not find expected <", "did not find expected node", "did not find expected key",
	"did not find expected '-'", "did not find expected ','", "found undefined tag handle",
	"found duplicate %", "found incompatible YAML",
}

// syntax reports an error of the YAML parser, which contains a line number at most.
func (r *reporter) syntax(text []byte, err error) {
	m := syntaxLine.FindStringSubmatch(err.Error())
	if m == nil {
		m = []string{"", "", err.Error()}
	}
	line, _ := strconv.Atoi(m[1])
	if line == 0 || slices.ContainsFunc(parserProblems, func(p string) bool { return strings.HasPrefix(m[2], p) }) {
		line++
	}
	column := 1
	if lines := strings.Split(string(text), "\n"); line <= len(lines) {
		s := lines[line-1]
		column += len(s) - len(strings.TrimLeft(s, " \t"))
	}
	r.report(Pos{line, column}, "", "this is not YAML: "+m[2],
		`look at this line and those around it: indent with spaces only, and put text that starts with one of {[>*&!% or holds ": " in quotes`)
}

// decode reads a node into v. The type of v determines what the node must be.
func (r *reporter) decode(field string, n *yaml.Node, v reflect.Value) {
	if c, ok := v.Addr().Interface().(decodable); ok {
		c.decode(r, field, n)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		r.structure(field, n, v)
	case reflect.Slice:
		r.list(field, n, v)
	case reflect.Bool:
		r.boolean(field, n, v)
	default:
		panic("matrix: document holds a " + v.Type().String())
	}
}

// decodeInto is decode for a pointer.
func (r *reporter) decodeInto(field string, n *yaml.Node, p any) {
	r.decode(field, n, reflect.ValueOf(p).Elem())
}

func (r *reporter) structure(field string, n *yaml.Node, v reflect.Value) {
	if at := v.FieldByName("At"); at.IsValid() {
		at.Set(reflect.ValueOf(pos(n)))
	}
	keys, required := keysOf(v.Type())
	entries, ok := r.mapping(field, n, "key", keys)
	if !ok {
		return
	}
	for _, e := range entries {
		r.decode(join(field, e.key), e.value, v.Field(fieldIndex(v.Type(), e.key)))
	}
	for _, k := range required {
		if !meant(n, k, keys) {
			r.report(pos(n), join(field, k), "the key is missing", fmt.Sprintf("add %q here", k+":"))
		}
	}
}

// meant reports whether a mapping contains the key or a misspelling of it; the misspelling itself
// is reported elsewhere.
func meant(n *yaml.Node, key string, keys []string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i].Value
		if k == key || !slices.Contains(keys, k) && words.Nearest(k, keys) == key {
			return true
		}
	}
	return false
}

func (r *reporter) list(field string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		r.wrongType(field, n, "a list", `write it as [a, b] or as lines that begin with "- "`)
		return
	}
	if len(n.Content) == 0 {
		r.report(pos(n), field, "the list is empty", "fill it, or leave the key out where it is optional")
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, c := range n.Content {
		r.decode(item(field, i), c, v.Index(i))
	}
}

func (r *reporter) boolean(field string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		r.wrongType(field, n, "true or false", "write true or false without quotes")
		return
	}
	v.SetBool(n.Value == "true")
}

// text returns a node's text. Numbers are rejected, not read as text, because other tools would
// turn 24.10 into 24.1.
func (r *reporter) text(field string, n *yaml.Node) (string, bool) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		return n.Value, true
	}
	remedy := "write one piece of text"
	if n.Kind == yaml.ScalarNode && n.Value != "" {
		remedy = fmt.Sprintf("put it in quotes: %q", n.Value)
	}
	r.wrongType(field, n, "text", remedy)
	return "", false
}

// A keyValue is one key of a mapping with its value.
type keyValue struct {
	key   string
	at    Pos
	value *yaml.Node
}

// mapping returns the entries of a mapping that have an allowed key, any if allowed is nil, and
// reports the others. The parameter what names the kind of key: "key", "component".
func (r *reporter) mapping(field string, n *yaml.Node, what string, allowed []string) ([]keyValue, bool) {
	if n.Kind != yaml.MappingNode {
		r.wrongType(field, n, "a mapping", `write it as lines of "key: value"`)
		return nil, false
	}
	var out []keyValue
	for i := 0; i+1 < len(n.Content); i += 2 {
		e := keyValue{n.Content[i].Value, pos(n.Content[i]), n.Content[i+1]}
		first := slices.IndexFunc(out, func(o keyValue) bool { return o.key == e.key })
		switch {
		case n.Content[i].Kind != yaml.ScalarNode || allowed != nil && !slices.Contains(allowed, e.key):
			remedy := suggest(what, e.key, allowed)
			if what == "component" {
				remedy += fmt.Sprintf(`; or say here what it is, as in "%s: {packages: [%[1]s]}"`, e.key)
			}
			r.report(e.at, join(field, e.key), fmt.Sprintf("unknown %s %q", what, e.key), remedy)
		case first >= 0:
			r.report(e.at, join(field, e.key), fmt.Sprintf("%s %q is here twice", what, e.key),
				fmt.Sprintf("the first is at %s; remove one", out[first].at))
		default:
			out = append(out, e)
		}
	}
	return out, true
}

// wrongType reports a node of the wrong type.
func (r *reporter) wrongType(field string, n *yaml.Node, want, remedy string) {
	if n.Kind == yaml.AliasNode {
		remedy = "write the value out again"
	}
	r.report(pos(n), field, fmt.Sprintf("%s where %s belongs", describe(n), want), remedy)
}

// describe says what a node is, with its value if it is a scalar or an alias.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping stands"
	case yaml.SequenceNode:
		return "a list stands"
	case yaml.AliasNode:
		return fmt.Sprintf("the alias %q, which this format does not have, stands", "*"+n.Value)
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing stands"
	case "!!int", "!!float":
		return fmt.Sprintf("the number %s stands", n.Value)
	}
	return fmt.Sprintf("%q stands", n.Value)
}

// keysOf returns the keys that a struct's tags name, and those that are required.
func keysOf(t reflect.Type) (all, required []string) {
	for i := range t.NumField() {
		key, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if key == "-" {
			continue
		}
		all = append(all, key)
		if options != "omitempty" {
			required = append(required, key)
		}
	}
	return all, required
}

func fieldIndex(t reflect.Type, key string) int {
	for i := range t.NumField() {
		if k, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); k == key {
			return i
		}
	}
	panic("matrix: no field " + key)
}

func pos(n *yaml.Node) Pos { return Pos{max(n.Line, 1), max(n.Column, 1)} }

func join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

func item(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
