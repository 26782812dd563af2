package attest

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode"
)

// A kind is how a value is read.
type kind int

const (
	asType    kind = iota // as its type says in UnmarshalJSON, or as encoding/json reads it
	asRaw                 // json.RawMessage
	asPointer             // all below are as encoding/json reads them
	asObject
	asMap
	asList
	asString
	asBool
	asInt
	asUint
	asFloat
)

// A form is a Go type as it is read from JSON.
type form struct {
	kind   kind
	elem   *form // of a pointer, a list or a map
	fields []field
	null   bool // null is encoded as null
	time   bool // time.Time
}

// A field is one of a struct, or of one that is embedded in it.
type field struct {
	name  string
	index []int
	form  *form
	omit  bool // left out where it is zero
}

// fixed reports whether no value of the form counts as zero to encoding/json's omitempty.
func (f *form) fixed() bool { return f.kind == asObject || f.time }

var forms sync.Map // *form by reflect.Type

func formOf(t reflect.Type) *form {
	if f, ok := forms.Load(t); ok {
		return f.(*form)
	}
	f := newForm(t, map[reflect.Type]*form{})
	forms.Store(t, f)
	return f
}

// newForm makes a form, given those of the types around it.
func newForm(t reflect.Type, made map[reflect.Type]*form) *form {
	if f, ok := made[t]; ok {
		return f
	}
	f := &form{time: t == reflect.TypeFor[time.Time]()}
	made[t] = f
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		f.null = true
	}
	p := reflect.PointerTo(t)
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		f.kind = asRaw
		return f
	case p.Implements(reflect.TypeFor[json.Unmarshaler]()), p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()), t == reflect.TypeFor[json.Number]():
		return f
	}
	switch t.Kind() {
	case reflect.Pointer:
		f.kind, f.elem = asPointer, newForm(t.Elem(), made)
	case reflect.Struct:
		f.kind, f.fields = asObject, fieldsOf(t, nil, made)
	case reflect.Map:
		if t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			f.kind, f.elem = asMap, newForm(t.Elem(), made)
		}
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 { // base64
			f.kind, f.elem = asList, newForm(t.Elem(), made)
		}
	case reflect.String:
		f.kind = asString
	case reflect.Bool:
		f.kind = asBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.kind = asInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		f.kind = asUint
	case reflect.Float32, reflect.Float64:
		f.kind = asFloat
	}
	return f
}

func fieldsOf(t reflect.Type, above []int, made map[reflect.Type]*form) (fs []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(above[:len(above):len(above)], i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("json") == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			fs = append(fs, fieldsOf(f.Type, index, made)...)
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			fs = append(fs, field{name, index, newForm(f.Type, made), strings.Contains(options, "omitempty")})
		}
	}
	if len(fs) > maxFields {
		panic(t.String() + " has too many fields")
	}
	return fs
}

// foldName maps names that encoding/json does not distinguish to one: it compares them by Unicode's
// simple folding, in which U+017F is an s and U+212A a k.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}
