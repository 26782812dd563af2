package matrix

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/golden"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema(library())))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("matrix.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("matrix.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance reads a YAML file as an editor's validator sees it.
func instance(t *testing.T, path string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(read(t, path), &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSchemaTakesGoodFiles(t *testing.T) {
	s := compileSchema(t)
	for _, path := range []string{realFile, "testdata/good.yaml"} {
		if err := s.Validate(instance(t, path)); err != nil {
			t.Errorf("Validate(%s) = %v", path, err)
		}
	}
}

// What is wrong with the shape of a file, an editor must show.
func TestSchemaRefusesBadShapes(t *testing.T) {
	s := compileSchema(t)
	files, err := filepath.Glob("testdata/bad/shape_*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("Glob = %d files, %v; want at least 20", len(files), err)
	}
	for _, path := range files {
		if s.Validate(instance(t, path)) == nil {
			t.Errorf("Validate(%s) = nil; want an error", path)
		}
	}
}

// What the schema cannot see, it must not refuse either: these files have the
// right form.
func TestSchemaTakesRightShapes(t *testing.T) {
	s := compileSchema(t)
	for _, pattern := range []string{"testdata/bad/meaning_*.yaml", "testdata/bad/result_*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("Glob(%s) = %d files, %v", pattern, len(files), err)
		}
		for _, path := range files {
			if err := s.Validate(instance(t, path)); err != nil {
				t.Errorf("Validate(%s) = %v", path, err)
			}
		}
	}
}

// A reference to a definition checks no less than the definition would in its place: wherever a
// good file is broken, the schema refuses it.
func TestSchemaRefusesEveryBreak(t *testing.T) {
	s := compileSchema(t)
	n := 0
	for _, path := range []string{realFile, "testdata/good.yaml"} {
		doc := instance(t, path)
		breakValue(doc, filepath.Base(path), func(v any) { doc = v }, func(what string) {
			if strings.HasSuffix(what, ": an unknown key") && strings.Contains(what, "/constraints/") && strings.Count(what, "/") > 2 {
				return // any key may be a component that the file itself defines
			}
			if n++; s.Validate(doc) == nil {
				t.Errorf("Validate(%s) = nil; want an error", what)
			}
		})
		if err := s.Validate(doc); err != nil {
			t.Errorf("Validate(%s), mended again = %v", path, err)
		}
	}
	if n < 200 {
		t.Errorf("%d breaks; want 200 and more", n)
	}
}

// breakValue breaks a value in one place after another and calls try each time: a mapping has a
// key too many or is a text, a list is empty, a scalar is a mapping. set puts something else where
// the value is.
func breakValue(v any, where string, set func(any), try func(what string)) {
	swap := func(wrong any, how string) {
		set(wrong)
		try(where + ": " + how)
		set(v)
	}
	switch v := v.(type) {
	case map[string]any:
		for k, child := range v {
			breakValue(child, where+"/"+k, func(x any) { v[k] = x }, try)
		}
		v["nonesuch"] = "1"
		try(where + ": an unknown key")
		delete(v, "nonesuch")
		swap("", "a text for a mapping")
	case []any:
		for i, child := range v {
			breakValue(child, where+"/"+strconv.Itoa(i), func(x any) { v[i] = x }, try)
		}
		swap([]any{}, "an empty list")
	default:
		swap(map[string]any{}, "a mapping for a scalar")
	}
}

// What the schema says it says once.
func TestSchemaRepeatsNothing(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(Schema(library()), &doc); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 300 && seen[string(text)] {
			t.Errorf("the schema has twice, instead of a definition: %s", text)
		}
		seen[string(text)] = true
		switch v := v.(type) {
		case map[string]any:
			for _, child := range v {
				walk(child)
			}
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	walk(doc)
}

// An editor shows descriptions; a key without one helps nobody.
func TestSchemaDescribesEveryKey(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(Schema(library()), &doc); err != nil {
		t.Fatal(err)
	}
	for name, s := range doc["$defs"].(map[string]any) {
		// The keys of conditions are the names of what is compared.
		if name != "selector" && name != "facts" && name != "parts" {
			undescribed(t, "$defs/"+name, s.(map[string]any))
		}
	}
	undescribed(t, "", doc)
}

func undescribed(t *testing.T, path string, schema map[string]any) {
	alternatives, _ := schema["oneOf"].([]any)
	for _, s := range alternatives {
		undescribed(t, path, s.(map[string]any))
	}
	if items, ok := schema["items"].(map[string]any); ok {
		undescribed(t, path+"[]", items)
	}
	properties, _ := schema["properties"].(map[string]any)
	for key, p := range properties {
		s := p.(map[string]any)
		if s["description"] == nil {
			t.Errorf("%s/%s has no description", path, key)
		}
		undescribed(t, path+"/"+key, s)
	}
}

func TestSchemaGolden(t *testing.T) {
	golden.Check(t, "schema.golden.json", string(Schema(library())))
}
