package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Decode reads one signed JSON document of at most limit bytes into v, a pointer to a zero value,
// which keeps parts of b (as [json.RawMessage]). It ignores unknown fields. It refuses what another
// reader may read differently: bytes that are not UTF-8, text after the document, names that stand
// twice in an object, names that encoding/json takes for a field and others do not ("Verdict"), a
// field that is missing although it is not omitempty, and a value that would be encoded differently,
// such as null for a number, or another spelling of a time.
func Decode(b []byte, limit int, v any) error {
	return decode(limit, v, &reader{b: b})
}

// DecodeUnsigned reads one JSON document that nobody signed, but that decides what is used: an
// index, a manifest, a configuration, a list, an envelope. Every reader must see the same in it, so
// it also refuses, at any depth and in unknown fields, names that encoding/json does not distinguish
// ("digest", "Digest", "dige\u017ft"). Fields may be missing, or null. The names in the objects
// called data (labels of an image) are not fields: they may differ in case alone.
func DecodeUnsigned(b []byte, limit int, v any, data ...string) error {
	return decode(limit, v, &reader{b: b, unsigned: true, data: data})
}

func decode(limit int, v any, r *reader) error {
	if len(r.b) > limit {
		return fmt.Errorf("%d bytes are too many: at most %d are read", len(r.b), limit)
	}
	if !utf8.Valid(r.b) {
		return errors.New("it is not UTF-8")
	}
	into := reflect.ValueOf(v).Elem()
	err := r.document(into)
	if errors.Is(err, errJSON) { // encoding/json says what is wrong
		if said := json.Unmarshal(r.b, reflect.New(into.Type()).Interface()); said != nil {
			return said
		}
	}
	return err
}

// errJSON means that a text is not JSON, or has a value of another type than the field.
var errJSON = errors.New("it is not the JSON that is expected")

// A step leads from an object or a list to a value in it.
type step struct {
	name  []byte
	index int // of a list's element; member: it has a name
}

const member = -1

// place spells where a value is: ".results[3].id". Only an error does: a name may be as long as the
// document, and have as many values below it.
func place(path []step) string {
	var b strings.Builder
	for _, s := range path {
		if s.index == member {
			fmt.Fprintf(&b, ".%.100s", s.name)
		} else {
			fmt.Fprintf(&b, "[%d]", s.index)
		}
	}
	return b.String()
}

// inside says in which object the value is that is being read; "" for the document's.
func (r *reader) inside() string {
	if len(r.path) < 2 {
		return ""
	}
	return fmt.Sprintf(" (%.200s)", strings.TrimPrefix(place(r.path[:len(r.path)-1]), "."))
}

func (r *reader) twice(first string, name []byte) error {
	if first == string(name) {
		return fmt.Errorf("the name %.100q stands twice in one object%s", name, r.inside())
	}
	return fmt.Errorf("the names %.100q and %.100q stand in one object%s: some readers take them for one", first, name, r.inside())
}

// otherwise means that a value is read as what is written differently.
func (r *reader) otherwise(doc []byte, as any) error {
	return fmt.Errorf("%v is %.50q, which is read as %.50q", place(r.path), doc, fmt.Sprint(as))
}
