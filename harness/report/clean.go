package report

import (
	"reflect"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/words"
)

// plainLines makes each line printable, and terminates the last line.
func plainLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(words.Line(strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", " ")) + "\n")
	}
	return b.String()
}

// clean returns a copy in which every text is plain, so that a renderer of the copy cannot forget a
// field. Characters that are invalid in XML are removed too.
func clean[T any](v *T) *T { return cleaned(reflect.ValueOf(v)).Interface().(*T) }

// cleanStatement is clean for a certificate. The output of its checks keeps its lines.
func cleanStatement(s *certificate.Statement) *certificate.Statement {
	out := clean(s)
	for i, r := range s.Predicate.Results {
		out.Predicate.Results[i].Output = plainLines(r.Output)
	}
	return out
}

func cleaned(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(words.Line(v.String()))
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
			if out.Field(i).CanSet() { // unexported fields are not shown
				out.Field(i).Set(cleaned(v.Field(i)))
			}
		}
	default:
		return v
	}
	return out
}
