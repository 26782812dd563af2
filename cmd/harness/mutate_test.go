package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// mutations calls f with a document in which one value is another, once for each place that has a
// path of its own, lists by their first entry, and each value. The document is changed back after it.
func mutations(doc any, f func(path string)) {
	others := []any{nil, map[string]any{}, []any{}, []any{nil}, "", "x", -1, 1e300, true}
	var at func(path string, v any, set func(any))
	at = func(path string, v any, set func(any)) {
		for i, o := range others {
			set(o)
			f(fmt.Sprintf("%s, value %d", path, i))
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				at(path+"."+name, v[name], func(o any) { v[name] = o })
			}
		case []any:
			if len(v) > 0 {
				at(path+"[0]", v[0], func(o any) { v[0] = o })
			}
		}
	}
	at("", doc, func(any) {}) // the document itself is not replaced
}

// TestMutatedDocuments: whatever stands for a value of a document that another program wrote, a
// command that reads it ends with a report or an error.
func TestMutatedDocuments(t *testing.T) {
	docs := filepath.Join("..", "..", "docs", "examples")
	for _, tt := range []struct {
		file     string
		commands [][]string
	}{
		{filepath.Join(docs, "no-gpu", "certificate.json"), [][]string{{"report"}, {"report", "--format", "html"}, {"history"}, {"explain"}}},
		{filepath.Join(docs, "h200-1x", "certificate.dsse.json"), [][]string{{"report"}}},
		{filepath.Join(docs, "versus-h200-4x", "all_reduce.json"), [][]string{{"coll", "table"}}},
	} {
		b, err := os.ReadFile(tt.file)
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		file, n := filepath.Join(t.TempDir(), "x.json"), 0
		mutations(doc, func(path string) {
			n++
			if testing.Short() && n%5 != 0 {
				return
			}
			text, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, command := range tt.commands {
				func() {
					defer func() {
						if r := recover(); r != nil {
							t.Errorf("harness %v of %s with %s: %v", command, tt.file, path, r)
						}
					}()
					newApp(io.Discard, io.Discard).Run(append(append([]string{"harness"}, command...), file))
				}()
			}
		})
		if n < 50 {
			t.Errorf("%s: %d mutations", tt.file, n)
		}
	}
}
