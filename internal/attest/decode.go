package attest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Decode reads one signed JSON document of at most limit bytes into v. It ignores unknown fields.
// It rejects text after the document, duplicate names in an object, and top-level names that
// encoding/json does not distinguish: it uses the last of them, other readers the first. The caller
// compares what is below with [Covers].
func Decode(b []byte, limit int, v any) error {
	return decode(b, limit, v, walker{})
}

// DecodeUnsigned reads one JSON document that nobody signed, but that decides what is used: an
// index, a manifest, a configuration, a list, an envelope. Every reader must see the same in it, so
// it also rejects, at any depth, names that encoding/json does not distinguish ("digest", "Digest",
// "dige\u017ft"), names that encoding/json takes for a field of v and other readers do not, and
// invalid UTF-8. The names in the objects called data (labels of an image) are not fields: they may
// differ in case alone.
func DecodeUnsigned(b []byte, limit int, v any, data ...string) error {
	if len(b) <= limit && !utf8.Valid(b) {
		return errors.New("it is not UTF-8")
	}
	return decode(b, limit, v, walker{unsigned: true, data: data})
}

func decode(b []byte, limit int, v any, w walker) error {
	if len(b) > limit {
		return fmt.Errorf("%d bytes are too many: at most %d are read", len(b), limit)
	}
	if !w.unsigned && distinct(b) {
		return json.Unmarshal(b, v)
	}
	if err := w.document(b, reflect.TypeOf(v)); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// document reads a whole document beside the type t.
func (w *walker) document(b []byte, t reflect.Type) error {
	w.dec = json.NewDecoder(bytes.NewReader(b))
	w.dec.UseNumber()
	w.known = map[reflect.Type]*fields{}
	if err := w.value(t, nil, 0, false); err != nil {
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	if _, err := w.dec.Token(); err != io.EOF {
		return errors.New("more text follows the document")
	}
	return nil
}

// distinct reports whether a document certainly is one JSON value, not nested too deeply, whose objects
// have distinct names, at the top level also by [foldName]. It is many times faster than a walker,
// which finds out what is wrong where it reports false.
func distinct(b []byte) bool {
	const many = 512                      // names of one object: beyond it comparing each with all others is slow
	if !utf8.Valid(b) || !json.Valid(b) { // two bytes that are not UTF-8 are one to encoding/json
		return false
	}
	var names [][]byte // of all objects that are open, the innermost last
	var first []int    // of each open object, index in names; -1 for a list
	isName := false    // the next text is a name
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			if len(first) == maxDepth {
				return false
			}
			if isName = b[i] == '{'; isName {
				first = append(first, len(names))
			} else {
				first = append(first, -1)
			}
		case '}', ']':
			if from := first[len(first)-1]; from >= 0 {
				names = names[:from]
			}
			first, isName = first[:len(first)-1], false
		case ',':
			isName = first[len(first)-1] >= 0
		case '"':
			end := i + 1
			for b[end] != '"' {
				if b[end] == '\\' {
					if isName {
						return false // it may be another's with an escape
					}
					end++
				}
				end++
			}
			if isName {
				name, own := b[i+1:end], names[first[len(first)-1]:]
				if len(own) == many || slices.ContainsFunc(own, func(o []byte) bool {
					return bytes.Equal(o, name) || len(first) == 1 && bytes.EqualFold(o, name)
				}) {
					return false
				}
				names, isName = append(names, name), false
			}
			i = end
		}
	}
	return true
}

// maxDepth limits how deep a document is nested.
const maxDepth = 200

// A walker reads a document's tokens beside the type that the document is decoded into.
type walker struct {
	dec      *json.Decoder
	unsigned bool
	data     []string
	known    map[reflect.Type]*fields
}

// value reads one value. t is the type that it is decoded into, nil if it is not decoded.
func (w *walker) value(t reflect.Type, at *position, depth int, data bool) error {
	if depth > maxDepth {
		return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	tok, err := w.dec.Token()
	if err != nil {
		return err
	}
	t = decoded(t)
	switch tok {
	case json.Delim('{'):
		return w.object(t, at, depth+1, data)
	case json.Delim('['):
		var elem reflect.Type
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			elem = t.Elem()
		}
		for i := 0; w.dec.More(); i++ {
			if err := w.value(elem, &position{up: at, index: i}, depth+1, false); err != nil {
				return err
			}
		}
		_, err = w.dec.Token()
	}
	return err
}

// object reads the names and values of an object, up to its end.
func (w *walker) object(t reflect.Type, at *position, depth int, data bool) error {
	fold := w.unsigned && !data || depth == 1
	fs := w.fields(t)
	seen := map[string]string{}
	for w.dec.More() {
		tok, err := w.dec.Token()
		if err != nil {
			return err
		}
		name, ok := tok.(string)
		if !ok {
			return fmt.Errorf("%v stands where a name should", tok)
		}
		key := name
		if fold {
			key = foldName(name)
		}
		if first, twice := seen[key]; twice && first == name {
			return fmt.Errorf("the name %.100q stands twice in one object%s", name, in(at))
		} else if twice {
			return fmt.Errorf("the names %.100q and %.100q stand in one object%s: some readers take them for one", first, name, in(at))
		}
		seen[key] = name
		var value reflect.Type
		if fs != nil {
			var exact bool
			if value, exact = fs.types[name]; !exact && w.unsigned {
				if want, ok := fs.folded[foldName(name)]; ok {
					return fmt.Errorf("the name %.100q%s is spelled %q: some readers take it for that", name, in(at), want)
				}
			}
		} else if t != nil && t.Kind() == reflect.Map {
			value = t.Elem()
		}
		if err := w.value(value, &position{at, name, member}, depth, slices.Contains(w.data, name)); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

// A position is a value's position in a document, nil for the document itself. Only an error spells it
// out: a name may be as long as the document, and have as many values below it.
type position struct {
	up    *position
	name  string
	index int // of a list's element; member: it has a name
}

const member = -1

func (p *position) String() string {
	switch {
	case p == nil:
		return ""
	case p.index == member:
		return fmt.Sprintf("%v.%.100s", p.up, p.name)
	}
	return fmt.Sprintf("%v[%d]", p.up, p.index)
}

func in(at *position) string {
	if at == nil {
		return ""
	}
	return fmt.Sprintf(" (%.200s)", strings.TrimPrefix(at.String(), "."))
}

// decoded returns the type that encoding/json fills, nil if the type reads its JSON itself.
func decoded(t reflect.Type) reflect.Type {
	own := reflect.TypeFor[json.Unmarshaler]()
	for first := true; t != nil; first = false {
		if !first && (t.Implements(own) || reflect.PointerTo(t).Implements(own)) {
			return nil
		}
		if t.Kind() != reflect.Pointer {
			break
		}
		t = t.Elem()
	}
	if t != nil && reflect.PointerTo(t).Implements(own) {
		return nil
	}
	return t
}

// fields are the JSON names of a struct.
type fields struct {
	types  map[string]reflect.Type
	folded map[string]string // by the folded name
}

// fields returns nil if t is no struct.
func (w *walker) fields(t reflect.Type) *fields {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	if fs, ok := w.known[t]; ok {
		return fs
	}
	fs := &fields{map[string]reflect.Type{}, map[string]string{}}
	fs.add(t)
	w.known[t] = fs
	return fs
}

func (fs *fields) add(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			fs.add(f.Type)
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			fs.types[name] = f.Type
			fs.folded[foldName(name)] = name
		}
	}
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

// Covers checks that doc contains everything in known, the encoding of what was read from doc:
// every name in known is in doc, with the same spelling and value. Additional content of doc is
// ignored. A field that a reader relies on can therefore not be missing, or come from a name that
// other readers do not recognise.
func Covers(doc, known []byte) error {
	var plain bytes.Buffer
	if bytes.Equal(doc, bytes.TrimSpace(known)) {
		return nil
	} else if err := json.Compact(&plain, doc); err == nil && bytes.Equal(plain.Bytes(), bytes.TrimSpace(known)) {
		return nil // it is in canonical form
	}
	var d, k any
	for b, v := range map[*[]byte]*any{&doc: &d, &known: &k} {
		dec := json.NewDecoder(bytes.NewReader(*b))
		dec.UseNumber()
		if err := dec.Decode(v); err != nil {
			return err
		}
	}
	return covers(d, k, nil)
}

func covers(doc, known any, at *position) error {
	switch k := known.(type) {
	case map[string]any:
		d, ok := doc.(map[string]any)
		if !ok {
			return fmt.Errorf("%v is not an object", at)
		}
		for name, v := range k {
			dv, ok := d[name]
			if !ok {
				return fmt.Errorf("%v is missing", &position{at, name, member})
			}
			if err := covers(dv, v, &position{at, name, member}); err != nil {
				return err
			}
		}
		return nil
	case []any:
		d, ok := doc.([]any)
		if !ok || len(d) != len(k) {
			return fmt.Errorf("%v is not a list of %d", at, len(k))
		}
		for i := range k {
			if err := covers(d[i], k[i], &position{up: at, index: i}); err != nil {
				return err
			}
		}
		return nil
	case json.Number:
		if d, ok := doc.(json.Number); ok {
			a, aerr := d.Float64()
			b, berr := k.Float64()
			if aerr == nil && berr == nil && a == b {
				return nil
			}
		}
	default:
		if doc == known {
			return nil
		}
	}
	return fmt.Errorf("%v is %.50q, which is read as %.50q", at, fmt.Sprint(doc), fmt.Sprint(known))
}
