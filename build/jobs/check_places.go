package jobs

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A places maps the normalized paths of a document's values to their positions.
type places struct {
	c     *checker
	pos   map[string]place
	steps int // aliases could make a small document endless

	strict    bool // all unknown fields are reported already
	batch     bool // the pods are of a Job
	templates bool // a controller may add volumes to the pods
}

type place struct{ line, column int }

const maxSteps = 200000

// note records the positions of a value and of all values below it. It returns false
// if the document is too large or too deep.
func (s *places) note(n *yaml.Node, path string, depth int) bool {
	if s.steps++; s.steps > maxSteps || depth > 100 {
		return false
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	s.pos[path] = place{n.Line, n.Column}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		s.pos[path] = place{n.Line + 1, 1}
	}
	for i, v := range n.Content {
		name := fmt.Sprint(i)
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			name = n.Content[i-1].Value
		}
		if !s.note(v, strings.Trim(path+"."+name, "."), depth+1) {
			return false
		}
	}
	return true
}

// normal normalizes a path: a[b] and a.b are the same.
func normal(path string) string {
	return strings.Trim(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
}

// at returns the position of a value, or else of the nearest enclosing value.
func (s *places) at(path string) (line, column int) {
	for p := normal(path); ; {
		if at, ok := s.pos[p]; ok {
			return s.c.base + at.line, at.column
		}
		i := strings.LastIndexByte(p, '.')
		if i < 0 {
			break
		}
		p = p[:i]
	}
	top := s.pos[""]
	return s.c.base + top.line, top.column
}

// report adds a finding about a value.
func (s *places) report(level, path, message, remedy string) {
	line, column := s.at(path)
	s.c.add(level, line, column, path, message, remedy)
}

var named = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"|Go struct field [A-Za-z0-9]+\.([A-Za-z0-9.]+) of type`)

// fieldOf returns the field that an error of the API's decoder names.
func fieldOf(err error) string {
	if m := named.FindStringSubmatch(err.Error()); m != nil {
		return cmp.Or(m[1], m[2])
	}
	return ""
}

// skip reports that the document is not checked, since the API's decoder refuses it.
func (s *places) skip(err error) {
	s.report(LevelSkipped, fieldOf(err), "the document is not checked: "+strings.TrimPrefix(err.Error(), "json: "), "kubectl apply --dry-run=server says more; a template must be rendered first")
}
