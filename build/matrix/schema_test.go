package matrix

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/golden"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
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

// An editor shows descriptions; a key without one helps nobody.
func TestSchemaDescribesEveryKey(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(Schema(), &doc); err != nil {
		t.Fatal(err)
	}
	undescribed(t, "", doc)
}

func undescribed(t *testing.T, path string, schema map[string]any) {
	if items, ok := schema["items"].(map[string]any); ok {
		undescribed(t, path+"[]", items)
	}
	properties, _ := schema["properties"].(map[string]any)
	for key, p := range properties {
		s := p.(map[string]any)
		if filepath.Base(path) == "when" || filepath.Base(path) == "require" {
			continue // the keys there are the names of what is compared
		}
		if s["description"] == nil {
			t.Errorf("%s/%s has no description", path, key)
		}
		undescribed(t, path+"/"+key, s)
	}
}

func TestSchemaGolden(t *testing.T) {
	golden.Check(t, "schema.golden.json", string(Schema()))
}
