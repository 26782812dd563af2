package matrix

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever the text, Parse and Targets return; what they take expands the same
// way twice, and no tag means two images.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(paths, realFile, "testdata/good.yaml") {
		f.Add(read(f, path))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := parse("fuzz.yaml", text)
		if err != nil {
			checkErrors(t, err)
			return
		}
		targets, err := file.Targets()
		again, err2 := expand("fuzz.yaml", text)
		if diff := cmp.Diff(targets, again); diff != "" {
			t.Fatalf("two expansions differ:\n%s", diff)
		}
		if err != nil {
			checkErrors(t, err)
			if err2 == nil || err.Error() != err2.Error() {
				t.Fatalf("two expansions fail differently:\n%v\n%v", err, err2)
			}
			return
		}
		checkTargets(t, targets)
	})
}

func checkErrors(t *testing.T, err error) {
	t.Helper()
	all, ok := err.(Errors)
	if !ok || len(all) == 0 {
		t.Fatalf("error is a %T: %v; want Errors", err, err)
	}
	for _, e := range all {
		if !e.Pos.set() || e.Pos.Column < 1 || e.Remedy == "" {
			t.Fatalf("error without a place or a remedy: %+v", e)
		}
	}
}

func checkTargets(t *testing.T, targets []Target) {
	t.Helper()
	if len(targets) == 0 {
		t.Fatal("a file without targets was taken")
	}
	names, tags := map[string]bool{}, map[string]bool{}
	for _, target := range targets {
		if names[target.Name] {
			t.Fatalf("two targets are called %q", target.Name)
		}
		names[target.Name] = true
		for _, tag := range append([]string{target.Tag}, target.Moving...) {
			if tags[tag] {
				t.Fatalf("two images have the tag %q", tag)
			}
			tags[tag] = true
		}
		if len(target.Platforms) == 0 {
			t.Fatalf("%s has no platforms", target.Name)
		}
		if (target.Base.Image == "") == (target.Base.Debootstrap == nil) {
			t.Fatalf("%s has base %+v; want exactly one field", target.Name, target.Base)
		}
	}
}
