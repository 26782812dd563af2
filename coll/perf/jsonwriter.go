package perf

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A jsonWriter writes compact JSON in the manner of nccl-tests' reports: keys
// in the order given, booleans as strings, floats with six decimals, what is
// no number as a string, slashes escaped.
type jsonWriter struct {
	b     strings.Builder
	comma bool // the next value or key is not the first
}

func (j *jsonWriter) sep() {
	if j.comma {
		j.b.WriteByte(',')
	}
	j.comma = true
}

func (j *jsonWriter) open(c byte) {
	j.sep()
	j.b.WriteByte(c)
	j.comma = false
}

func (j *jsonWriter) close(c byte) {
	j.b.WriteByte(c)
	j.comma = true
}

func (j *jsonWriter) key(k string) {
	j.sep()
	j.quote(k)
	j.b.WriteByte(':')
	j.comma = false
}

func (j *jsonWriter) object(f func()) { j.open('{'); f(); j.close('}') }
func (j *jsonWriter) array(f func())  { j.open('['); f(); j.close(']') }
func (j *jsonWriter) null()           { j.sep(); j.b.WriteString("null") }

func (j *jsonWriter) int(v int64) { j.sep(); j.b.WriteString(strconv.FormatInt(v, 10)) }

func (j *jsonWriter) float(v float64) {
	j.sep()
	if s, ok := special(v); ok {
		j.quote(s)
		return
	}
	j.b.WriteString(strconv.FormatFloat(v, 'f', 6, 64))
}

func (j *jsonWriter) floats(v []float64) {
	j.array(func() {
		for _, x := range v {
			j.float(x)
		}
	})
}

func (j *jsonWriter) string(s string) { j.sep(); j.quote(s) }

func (j *jsonWriter) strings(v []string) {
	j.array(func() {
		for _, s := range v {
			j.string(s)
		}
	})
}

func (j *jsonWriter) bool(v bool) { j.string(strconv.FormatBool(v)) }

func (j *jsonWriter) quote(s string) {
	j.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\' || r == '/':
			j.b.WriteByte('\\')
			j.b.WriteRune(r)
		case r == '\n':
			j.b.WriteString(`\n`)
		case r == '\t':
			j.b.WriteString(`\t`)
		case r < 0x20 || r == utf8.RuneError:
			fmt.Fprintf(&j.b, `\u%04x`, r)
		default:
			j.b.WriteRune(r)
		}
	}
	j.b.WriteByte('"')
}
