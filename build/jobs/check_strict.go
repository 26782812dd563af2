package jobs

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/assay-hpc/assay/internal/nearest"
)

// A strict walk holds a YAML document against a Go type of an API: every field
// must exist and have the right type. The API's own decoder stops at the first
// wrong type and knows no lines; it still has the last word, after this.
type strict struct {
	c     *checker
	pos   map[string]place // of each value by its normal path, for those who look later
	steps int              // aliases could make a small document endless
}

type place struct{ line, column int }

const maxSteps = 200000

func (s *strict) bad(n *yaml.Node, path, message, remedy string) {
	s.c.add(LevelError, s.c.base+n.Line, n.Column, path, message, remedy)
}

// walk looks at a value that should be of type t.
func (s *strict) walk(n *yaml.Node, t reflect.Type, path string, depth int) {
	if s.steps++; s.steps > maxSteps || depth > 100 {
		if s.steps == maxSteps+1 || depth > 100 {
			s.steps = maxSteps + 1
			s.bad(n, path, "the document is too deep or its aliases make it too large", "write it out")
		}
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	s.pos[normal(path)] = place{n.Line, n.Column}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // as absent
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if known, problem := special(n, t); known {
		if problem != "" {
			s.bad(n, path, problem, "the API refuses it")
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		s.object(n, t, path, depth)
	case reflect.Map:
		if s.want(n, yaml.MappingNode, path, "a mapping") {
			s.pairs(n, path, func(key string, k, v *yaml.Node) { s.walk(v, t.Elem(), path+"["+key+"]", depth+1) })
		}
	case reflect.Slice:
		if s.want(n, yaml.SequenceNode, path, "a list") {
			for i, e := range n.Content {
				s.walk(e, t.Elem(), fmt.Sprintf("%s[%d]", path, i), depth+1)
			}
		}
	case reflect.Interface:
	default:
		if s.want(n, yaml.ScalarNode, path, article(t)) {
			if problem, remedy := scalar(n, t); problem != "" {
				s.bad(n, path, problem, remedy)
			}
		}
	}
}

func (s *strict) want(n *yaml.Node, kind yaml.Kind, path, what string) bool {
	if n.Kind == kind {
		return true
	}
	kinds := map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "a single value"}
	s.bad(n, path, fmt.Sprintf("is %s", kinds[n.Kind]), "write "+what)
	return false
}

// pairs calls f for each key of a mapping, and reports those that are there twice.
func (s *strict) pairs(n *yaml.Node, path string, f func(key string, k, v *yaml.Node)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode:
			s.bad(k, path, "a key is not a single value", "write a name")
		case k.ShortTag() == "!!merge":
			s.bad(k, path, "merge keys (<<) are read differently by different readers of YAML", "write the fields out")
		case seen[k.Value]:
			s.bad(k, join(path, k.Value), "the key is there twice", "remove one")
		default:
			seen[k.Value] = true
			f(k.Value, k, v)
		}
	}
}

func (s *strict) object(n *yaml.Node, t reflect.Type, path string, depth int) {
	if !s.want(n, yaml.MappingNode, path, "a mapping") {
		return
	}
	fields := map[string]reflect.Type{}
	jsonFields(t, fields)
	s.pairs(n, path, func(key string, k, v *yaml.Node) {
		if ft, ok := fields[key]; ok {
			s.walk(v, ft, join(path, key), depth+1)
			return
		}
		s.bad(k, join(path, key), "there is no such field", s.suggest(key, fields))
	})
}

// suggest is what somebody who wrote an unknown field probably meant.
func (s *strict) suggest(key string, fields map[string]reflect.Type) string {
	var names, below []string
	for name, t := range fields {
		names = append(names, name)
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		inner := map[string]reflect.Type{}
		if t.Kind() == reflect.Struct {
			jsonFields(t, inner)
		}
		if _, ok := inner[key]; ok {
			below = append(below, name)
		}
	}
	slices.Sort(names)
	slices.Sort(below)
	if best := nearest.To(key, names); nearest.Distance(key, best) <= 2 {
		return fmt.Sprintf("did you mean %q?", best)
	}
	if len(below) > 0 {
		return fmt.Sprintf("%s is a field of %s", key, strings.Join(below, " and of "))
	}
	if len(names) > 12 {
		return "remove it"
	}
	return "the fields here are " + strings.Join(names, ", ")
}

// jsonFields gathers the fields that encoding/json reads into a struct.
func jsonFields(t reflect.Type, into map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && (name == "" || strings.Contains(opts, "inline")):
			jsonFields(f.Type, into)
		case name != "":
			into[name] = f.Type
		}
	}
}

var (
	quantityType = reflect.TypeFor[resource.Quantity]()
	intstrType   = reflect.TypeFor[intstr.IntOrString]()
	timeType     = reflect.TypeFor[metav1.Time]()
	microType    = reflect.TypeFor[metav1.MicroTime]()
	fieldsType   = reflect.TypeFor[metav1.FieldsV1]()
	bytesType    = reflect.TypeFor[[]byte]()
)

// special looks at values that read themselves; known says that t is one of them.
func special(n *yaml.Node, t reflect.Type) (known bool, problem string) {
	switch t {
	case fieldsType:
		return true, ""
	case quantityType, intstrType, timeType, microType, bytesType:
	default:
		return false, ""
	}
	if n.Kind != yaml.ScalarNode {
		return true, "is not a single value"
	}
	switch t {
	case quantityType:
		if _, err := resource.ParseQuantity(n.Value); err != nil || isBool(n) {
			return true, fmt.Sprintf("%q is no quantity, such as 8 or 960Gi", n.Value)
		}
	case intstrType:
		if tag := n.ShortTag(); tag != "!!int" && tag != "!!str" || isBool(n) {
			return true, fmt.Sprintf("%q is neither a number nor a name", n.Value)
		}
	case timeType, microType:
		if _, err := time.Parse(time.RFC3339, n.Value); err != nil {
			return true, fmt.Sprintf("%q is no time, such as 2026-03-01T00:00:00Z", n.Value)
		}
	case bytesType:
		if _, err := base64.StdEncoding.DecodeString(n.Value); err != nil {
			return true, "is not base64"
		}
	}
	return true, ""
}

func article(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	}
	return "a number"
}

// yes is what YAML 1.1, which Kubernetes reads, takes for a boolean beside true
// and false.
var yes = regexp.MustCompile(`^(y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE)$`)

func isBool(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 && yes.MatchString(n.Value)
}

// scalar holds a single value against a basic type.
func scalar(n *yaml.Node, t reflect.Type) (problem, remedy string) {
	switch t.Kind() {
	case reflect.String:
		if tag := n.ShortTag(); tag != "!!str" && tag != "!!timestamp" || isBool(n) {
			return fmt.Sprintf("%s is not a string to YAML", n.Value), fmt.Sprintf("write %q", n.Value)
		}
	case reflect.Bool:
		if !isBool(n) {
			return fmt.Sprintf("%q is no boolean", n.Value), "write true or false"
		}
	default:
		if n.ShortTag() != "!!int" {
			return fmt.Sprintf("%q is no whole number", n.Value), "write digits, without quotes"
		}
		v, err := strconv.ParseInt(n.Value, 0, 64)
		if err != nil || t.Kind() == reflect.Int32 && (v > math.MaxInt32 || v < math.MinInt32) {
			return fmt.Sprintf("%s is out of range", n.Value), "write a smaller number"
		}
	}
	return "", ""
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// normal is a path in one of its spellings: a[b] and a.b are the same.
func normal(path string) string {
	return strings.Trim(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
}

// at is where a value stands, or the nearest value around it.
func (s *strict) at(path string) (line, column int) {
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

// report reports something about a value that was walked over before.
func (s *strict) report(level, path, message, remedy string) {
	line, column := s.at(path)
	s.c.add(level, line, column, path, message, remedy)
}
