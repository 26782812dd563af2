package sbom

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/internal/attest"
)

// TestHostile: whatever stands for a value of a document that somebody attached to an image, the
// document is read or refused.
func TestHostile(t *testing.T) {
	raw, err := Statement(sample())
	if err != nil {
		t.Fatal(err)
	}
	st, err := attest.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(st.Predicate, &doc); err != nil {
		t.Fatal(err)
	}
	n := 0
	try := func(path string) {
		n++
		predicate, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("%s: %v", path, r)
			}
		}()
		other := *st
		other.Predicate = predicate
		_, _ = Kind.Check(&other)
	}
	var mutate func(path string, v any, set func(any))
	mutate = func(path string, v any, set func(any)) {
		for i, o := range []any{nil, map[string]any{}, []any{}, []any{nil}, []any{map[string]any{}}, "", "x", -1, true} {
			set(o)
			try(fmt.Sprintf("%s, value %d", path, i))
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				mutate(path+"."+name, v[name], func(o any) { v[name] = o })
			}
		case []any:
			if len(v) > 0 {
				mutate(path+"[0]", v[0], func(o any) { v[0] = o })
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		mutate(name, doc[name], func(o any) { doc[name] = o })
	}
	if n < 100 {
		t.Errorf("%d documents", n)
	}
}
