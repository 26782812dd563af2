package matrix

import (
	"encoding/json"
	"maps"

	"github.com/invopop/jsonschema"
)

// Schema returns the JSON Schema (2020-12) of matrix.yaml, for editors and CI. It covers keys,
// types and spelling. What shows only when the matrix is expanded (combinations, tags, unused
// lines) needs [Parse] and [File.Targets].
func Schema(lib *Library) []byte {
	s := reflectSchema(matrixDocument{})
	s.Version = jsonschema.Version
	s.ID = "https://github.com/assay-hpc/assay/matrix.schema.json"
	s.Title = "assay's matrix.yaml"
	s.Description = "Which container images there are: axes, versions of components, and constraints with their reasons. docs/matrix.md is the reference."
	names := &reporter{components: lib.Names()}
	s.Definitions = jsonschema.Definitions{
		"components": componentsSchema(lib),
		"version":    {OneOf: []*jsonschema.Schema{value[anyVersion]{}.JSONSchema(), reflectSchema([]choice{})}},
		"selector":   conditionsSchema(axisKeys, false),
		"facts":      conditionsSchema(names.factKeys(), true),
		"condition":  conditionSchema(),
		"base":       baseSchema(),
	}
	maps.Copy(s.Definitions, partDefinitions(names))
	s.Definitions["definition"] = reflectSchema(componentDocument{})
	s.Definitions["own"] = ownSchema()
	return marshalSchema(s)
}

// DefinitionSchema returns the JSON Schema of component.yaml.
func DefinitionSchema(lib *Library) []byte {
	s := reflectSchema(componentDocument{})
	s.Version = jsonschema.Version
	s.ID = "https://github.com/assay-hpc/assay/component.schema.json"
	s.Title = "a component of assay's"
	s.Description = "How a component becomes part of an image. docs/components.md is the reference."
	s.Definitions = partDefinitions(&reporter{components: lib.Names()})
	s.Definitions["condition"] = conditionSchema()
	return marshalSchema(s)
}

// partDefinitions are what the keys of a component refer to.
func partDefinitions(names *reporter) jsonschema.Definitions {
	return jsonschema.Definitions{
		"parts":     conditionsSchema(names.partKeys(), true),
		"text":      {Type: "string", Description: "Text with {variables}."},
		"choices":   orText([]textChoice{}),
		"packages":  orText(plainPackageEntry{}),
		"directory": orText(plainDirEntry{}),
		"source":    orText(plainSourceEntry{}),
	}
}

// ownSchema is an entry of a matrix that defines a component.
func ownSchema() *jsonschema.Schema {
	from := closedObject()
	dir := &jsonschema.Schema{Type: "string", Pattern: `^\.\.?/`, Description: "Directory with a component.yaml, relative to this file."}
	from.Properties.Set("from", dir)
	from.Properties.Set("version", &jsonschema.Schema{AllOf: []*jsonschema.Schema{defined("version")}, Description: "Its version, where it is not the one that the component states."})
	from.Required = []string{"from"}
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{dir, from, defined("definition")}}
}

func marshalSchema(s *jsonschema.Schema) []byte {
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

// JSONSchemaExtend adds that a component must have something.
func (componentDocument) JSONSchemaExtend(s *jsonschema.Schema) {
	one := uint64(1)
	s.MinProperties = &one
}

// JSONSchemaExtend adds the keys that rows need, and that there must be at least one target.
func (matrixDocument) JSONSchemaExtend(s *jsonschema.Schema) {
	need := []string{"base", "tag", "capabilities", "components"}
	s.DependentRequired = map[string][]string{"axes": need, "include": need}
	s.AnyOf = []*jsonschema.Schema{{Required: []string{"images"}}, {Required: []string{"axes"}}, {Required: []string{"include"}}}
}
