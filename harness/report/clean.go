package report

import (
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/assay-hpc/assay/harness/certificate"
)

// printable takes from a text what could steer a terminal or make a line read
// otherwise than it is written: it comes from programs of an image that nobody
// vouches for yet. What is no character in XML goes, too.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029', r == '\ufffe', r == '\uffff':
			return '·'
		}
		return r
	}, s)
}

// printableLines does so line by line, and ends the last line, too.
func printableLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(printable(strings.TrimRight(line, "\r\n")) + "\n")
	}
	return b.String()
}

// clean returns a copy of a certificate in which every text is printable: who
// renders the copy cannot forget a field.
func clean(s *certificate.Statement) *certificate.Statement {
	out := cleaned(reflect.ValueOf(s)).Interface().(*certificate.Statement)
	for i, r := range s.Predicate.Results {
		out.Predicate.Results[i].Output = printableLines(r.Output)
	}
	return out
}

func cleaned(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(printable(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(cleaned(v.Elem()))
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = reflect.Append(out, cleaned(v.Index(i)))
		}
	case reflect.Map:
		out.Set(reflect.MakeMap(v.Type()))
		for _, key := range v.MapKeys() {
			out.SetMapIndex(cleaned(key), cleaned(v.MapIndex(key)))
		}
	case reflect.Struct:
		if _, ok := v.Interface().(time.Time); ok {
			return v
		}
		for i := range v.NumField() {
			out.Field(i).Set(cleaned(v.Field(i)))
		}
	default:
		return v
	}
	return out
}
