package matrix

import (
	"encoding/json"

	"github.com/invopop/jsonschema"
)

// Schema returns the JSON Schema (2020-12) of matrix.yaml, for editors and CI. It covers keys,
// types and spelling. What shows only when the matrix is expanded (combinations, tags, unused
// lines) needs [Parse] and [File.Targets].
func Schema() []byte {
	s := reflectSchema(matrixDocument{})
	s.Version = jsonschema.Version
	s.ID = "https://github.com/assay-hpc/assay/matrix.schema.json"
	s.Title = "assay's matrix.yaml"
	s.Description = "Which container images there are: axes, versions of components, and constraints with their reasons. docs/matrix.md is the reference."
	s.Definitions = jsonschema.Definitions{
		"components": componentsSchema(),
		"version":    {OneOf: []*jsonschema.Schema{value[anyVersion]{}.JSONSchema(), reflectSchema([]choice{})}},
		"selector":   conditionsSchema(axisKeys),
		"facts":      conditionsSchema(factKeys),
		"condition":  conditionSchema(),
	}
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("matrix: " + err.Error()) // only plain data above
	}
	return append(out, '\n')
}

// defined refers to a definition of [Schema].
func defined(name string) *jsonschema.Schema {
	return &jsonschema.Schema{Ref: "#/$defs/" + name}
}

// reflectSchema creates a schema without an ID of its own. Types that occur often refer to
// definitions; all others are written out.
func reflectSchema(v any) *jsonschema.Schema {
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: true}
	s := r.Reflect(v)
	s.Version = ""
	fillLists(s)
	return s
}

// fillLists adds the parser's rule to every list: it must not be empty.
func fillLists(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Type == "array" {
		one := uint64(1)
		s.MinItems = &one
		fillLists(s.Items)
	}
	if s.Properties != nil {
		for p := s.Properties.Oldest(); p != nil; p = p.Next() {
			fillLists(p.Value)
		}
	}
}

// closedObject is a mapping that must not be empty and may have only the properties that the
// caller adds.
func closedObject() *jsonschema.Schema {
	one := uint64(1)
	return &jsonschema.Schema{
		Type: "object", Properties: jsonschema.NewProperties(), MinProperties: &one,
		AdditionalProperties: jsonschema.FalseSchema,
	}
}

// eitherOf requires exactly one of two keys.
func eitherOf(s *jsonschema.Schema, a, b string) {
	s.OneOf = []*jsonschema.Schema{{Required: []string{a}}, {Required: []string{b}}}
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (formatVersion) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Const: 1}
}

// JSONSchemaExtend adds that a base is an image or a debootstrap.
func (base) JSONSchemaExtend(s *jsonschema.Schema) { eitherOf(s, "image", "debootstrap") }

// JSONSchemaExtend adds the keys that rows need, and that there must be at least one target.
func (matrixDocument) JSONSchemaExtend(s *jsonschema.Schema) {
	need := []string{"base", "tag", "capabilities", "components"}
	s.DependentRequired = map[string][]string{"axes": need, "include": need}
	s.AnyOf = []*jsonschema.Schema{{Required: []string{"images"}}, {Required: []string{"axes"}}, {Required: []string{"include"}}}
}
