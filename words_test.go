package assay_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// most is how many packages may give one unexported name to a function or a type. A name that occurs
// more often does not lead a search to its place.
const most = 6

// pronouns are no names: they say nothing to somebody who has not read what is around them.
var pronouns = strings.Fields("said told tell mine ours theirs own other others near far look who here there it this that them")

// declared are the names of functions, methods and types in a file.
func declared(t *testing.T, name string) (functions, methods, types []*ast.Ident) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.HasPrefix(text, []byte("// Code generated")) {
		return nil, nil, nil
	}
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				methods = append(methods, d.Name)
			} else {
				functions = append(functions, d.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					types = append(types, s.Name)
				}
			}
		}
	}
	return functions, methods, types
}

// TestNames: names can be searched.
func TestNames(t *testing.T) {
	packages := map[string][]string{} // by unexported name
	for _, file := range sources(t) {
		functions, methods, types := declared(t, file)
		for _, id := range slices.Concat(functions, methods, types) {
			if slices.Contains(pronouns, id.Name) {
				t.Errorf("%s: %s: a pronoun is no name", file, id.Name)
			}
		}
		for _, id := range slices.Concat(functions, types) {
			if dir := path.Dir(file); !id.IsExported() && id.Name != "main" && id.Name != "init" && id.Name != "_" && !slices.Contains(packages[id.Name], dir) {
				packages[id.Name] = append(packages[id.Name], dir)
			}
		}
	}
	if len(packages) < 1000 {
		t.Errorf("only %d names were found", len(packages))
	}
	for name, in := range packages {
		if len(in) > most {
			t.Errorf("%s is a function or a type in %d packages, more than %d: %s", name, len(in), most, strings.Join(in, " "))
		}
	}
}

// sources are the Go files of the module that are no tests.
func sources(t *testing.T) (files []string) {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	for f := range strings.FieldsSeq(string(out)) {
		if !strings.HasSuffix(f, "_test.go") && !strings.Contains(f, "/testdata/") {
			files = append(files, f)
		}
	}
	return files
}

// journeyStep is a line of a journey: a file, and names in it.
var journeyStep = regexp.MustCompile("^[0-9]+\\. `([^`]+)` ([^:]+):")

// TestJourneys: what the journeys of docs/architecture.md name is in the files that they name.
func TestJourneys(t *testing.T) {
	doc, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, journeys, _ := strings.Cut(string(doc), "\n## Five journeys\n")
	journeys, _, _ = strings.Cut(journeys, "\n## ")
	for i, journey := range strings.Split(journeys, "\n### ")[1:] {
		steps := 0
		for line := range strings.Lines(journey) {
			m := journeyStep.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			steps++
			text, err := os.ReadFile(m[1])
			if err != nil {
				t.Error(err)
			}
			for name := range strings.SplitSeq(strings.ReplaceAll(m[2], "`", ""), ", ") {
				if !defines(m[1], text, name) {
					t.Errorf("docs/architecture.md: journey %d, step %d: %s has no %s", i+1, steps, m[1], name)
				}
			}
		}
		if steps < 12 {
			t.Errorf("docs/architecture.md: journey %d has %d steps that can be read", i+1, steps)
		}
	}
	if n := strings.Count(journeys, "\n### "); n != 5 {
		t.Errorf("docs/architecture.md has %d journeys", n)
	}
}

// defines reports whether a file of Go defines a name, F or Type.Method, or another file has it.
func defines(file string, text []byte, name string) bool {
	if path.Ext(file) != ".go" {
		return bytes.Contains(text, []byte(name))
	}
	pattern := "(func|type|var|const) " + name
	if receiver, method, ok := strings.Cut(name, "."); ok {
		pattern = `func \(\w+ \*?` + receiver + `\) ` + method
	}
	return regexp.MustCompile("(?m)^" + pattern + `\b`).Match(text)
}
