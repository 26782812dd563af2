package attest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

const (
	maxDepth  = 200 // levels of a document
	maxFields = 64  // of a struct
	// maxCompared is how many names of an object are compared with each other one by one.
	maxCompared = 32
)

// A reader reads a document in one pass into a value of which it knows the form. What has no form (nil)
// is only checked.
type reader struct {
	b        []byte
	i        int // the next byte
	unsigned bool
	data     []string
	path     []step
	names    [][]byte // of all objects that are open, the innermost last, but for those of fields
}

func (r *reader) document(v reflect.Value) error {
	if err := r.value(v, formOf(v.Type()), false, false); err != nil {
		return err
	}
	if r.next() != 0 {
		return errors.New("more text follows the document")
	}
	return nil
}

// value reads one value. null: it may be null in a signed document.
func (r *reader) value(v reflect.Value, f *form, null, data bool) error {
	if len(r.path) > maxDepth {
		return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	c := r.next()
	if c == 'n' && f != nil && !null && !r.unsigned && r.literal("null") {
		return r.otherwise([]byte("null"), v)
	}
	for ; f != nil && f.kind == asPointer && c != 'n'; f = f.elem {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if f != nil && (f.kind == asType || f.kind == asRaw) {
		return r.byType(v, f, data)
	}
	switch c {
	case '{':
		if f != nil && f.kind != asObject && f.kind != asMap {
			return errJSON
		}
		return r.object(v, f, data)
	case '[':
		if f != nil && f.kind != asList {
			return errJSON
		}
		return r.list(v, f)
	case '"':
		return r.text(v, f)
	case 'n':
		return found(r.literal("null"))
	case 't':
		return r.truth(v, f, "true")
	case 'f':
		return r.truth(v, f, "false")
	}
	return r.number(v, f)
}

// byType reads a value whose type reads it itself.
func (r *reader) byType(v reflect.Value, f *form, data bool) error {
	begin := r.i
	if err := r.value(reflect.Value{}, nil, true, data); err != nil {
		return err
	}
	raw := r.b[begin:r.i:r.i]
	if f.kind == asRaw {
		v.SetBytes(raw)
		return nil
	}
	if u, ok := v.Addr().Interface().(json.Unmarshaler); !ok {
		return json.Unmarshal(raw, v.Addr().Interface())
	} else if err := u.UnmarshalJSON(raw); err != nil {
		return err
	}
	if !f.time || r.unsigned {
		return nil
	}
	again, err := v.Interface().(json.Marshaler).MarshalJSON()
	if err != nil || !bytes.Equal(again, raw) {
		return r.otherwise(raw, string(again))
	}
	return nil
}

// An object is one that is being read.
type object struct {
	fields []field
	fold   bool // names that differ in case alone are one
	guess  int  // index of the field that probably comes next
	seen   uint64
	names  int               // index of its first name in the reader's
	many   map[string]string // a name by itself, folded if fold; made where there are many
}

// object reads the names and values of an object.
func (r *reader) object(v reflect.Value, f *form, data bool) error {
	o := object{fold: r.unsigned && !data || len(r.path) == 0, names: len(r.names)}
	if f != nil {
		if o.fields = f.fields; f.kind == asMap {
			v.Set(reflect.MakeMap(v.Type()))
		}
	}
	r.i++
	at := len(r.path)
	r.path = append(r.path, step{index: member})
	for first := true; ; first = false {
		if c := r.next(); c == '}' && first {
			r.i++
			break
		} else if c != '"' {
			return errJSON
		}
		name, err := r.quoted()
		if err != nil {
			return err
		}
		r.path[at].name = name
		if r.next() != ':' {
			return errJSON
		}
		r.i++
		if err := r.member(v, f, &o, name); err != nil {
			return err
		}
		c := r.next()
		r.i++
		if c == '}' {
			break
		} else if c != ',' {
			return errJSON
		}
	}
	if !r.unsigned {
		for i, f := range o.fields {
			if o.seen>>i&1 == 0 && (!f.omit || f.form.fixed()) {
				r.path[at].name = []byte(f.name)
				return fmt.Errorf("%v is missing", place(r.path))
			}
		}
	}
	r.path, r.names = r.path[:at], r.names[:o.names]
	return nil
}

// member reads the value of a name into the field or the map's element of that name.
func (r *reader) member(v reflect.Value, f *form, o *object, name []byte) error {
	i, err := r.field(o, name)
	data := r.data != nil && slices.Contains(r.data, string(name))
	switch {
	case err != nil:
		return err
	case i >= 0:
		to := &o.fields[i]
		return r.value(v.FieldByIndex(to.index), to.form, to.form.null || to.omit && !to.form.fixed(), data)
	case f == nil || f.kind != asMap:
		return r.value(reflect.Value{}, nil, true, data)
	}
	elem := reflect.New(v.Type().Elem()).Elem()
	if err := r.value(elem, f.elem, f.elem.null, data); err != nil {
		return err
	}
	v.SetMapIndex(reflect.ValueOf(string(name)).Convert(v.Type().Key()), elem)
	return nil
}

// field returns the index of the field that has a name, -1 if none has it. It is an error if the object
// has the name already, or if some readers take it for another one.
func (r *reader) field(o *object, name []byte) (int, error) {
	for range o.fields {
		i := o.guess % len(o.fields)
		o.guess = i + 1
		if o.fields[i].name == string(name) {
			if o.seen>>i&1 == 1 {
				return 0, r.twice(o.fields[i].name, name)
			}
			o.seen |= 1 << i
			return i, nil
		}
	}
	for i, f := range o.fields {
		if strings.EqualFold(f.name, string(name)) {
			if o.fold && o.seen>>i&1 == 1 {
				return 0, r.twice(f.name, name)
			}
			return 0, fmt.Errorf("the name %.100q%s is spelled %q: some readers take it for that", name, r.inside(), f.name)
		}
	}
	return -1, r.distinct(o, name)
}

// distinct compares a name with the object's others that are not fields.
func (r *reader) distinct(o *object, name []byte) error {
	key := func(name []byte) string {
		if o.fold {
			return foldName(string(name))
		}
		return string(name)
	}
	others := r.names[o.names:]
	switch {
	case len(others) < maxCompared:
		for _, other := range others {
			if bytes.Equal(other, name) || o.fold && bytes.EqualFold(other, name) {
				return r.twice(string(other), name)
			}
		}
	case o.many == nil:
		o.many = map[string]string{}
		for _, other := range others {
			o.many[key(other)] = string(other)
		}
		fallthrough
	default:
		if other, ok := o.many[key(name)]; ok {
			return r.twice(other, name)
		}
		o.many[key(name)] = string(name)
	}
	r.names = append(r.names, name)
	return nil
}

func (r *reader) list(v reflect.Value, f *form) error {
	var of *form
	if f != nil {
		of = f.elem
	}
	r.i++
	at := len(r.path)
	r.path = append(r.path, step{})
	for n := 0; ; n++ {
		if n == 0 && r.next() == ']' {
			if r.i++; of != nil {
				v.Set(reflect.MakeSlice(v.Type(), 0, 0))
			}
			break
		}
		r.path[at].index = n
		var elem reflect.Value
		if of != nil {
			if n == v.Cap() {
				v.Grow(4)
			}
			v.SetLen(n + 1)
			elem = v.Index(n)
		}
		if err := r.value(elem, of, of == nil || of.null, false); err != nil {
			return err
		}
		c := r.next()
		r.i++
		if c == ']' {
			break
		} else if c != ',' {
			return errJSON
		}
	}
	r.path = r.path[:at]
	return nil
}

func (r *reader) text(v reflect.Value, f *form) error {
	s, err := r.quoted()
	switch {
	case err != nil || f == nil:
		return err
	case f.kind != asString:
		return errJSON
	}
	v.SetString(string(s))
	return nil
}

func (r *reader) truth(v reflect.Value, f *form, literal string) error {
	switch {
	case !r.literal(literal), f != nil && f.kind != asBool:
		return errJSON
	case f != nil:
		v.SetBool(literal == "true")
	}
	return nil
}

func (r *reader) number(v reflect.Value, f *form) error {
	begin := r.i
	if !r.digits() {
		return errJSON
	}
	if f == nil {
		return nil
	}
	text := r.b[begin:r.i]
	switch f.kind {
	case asInt:
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || v.OverflowInt(n) {
			return errJSON
		}
		v.SetInt(n)
	case asUint:
		n, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil || v.OverflowUint(n) {
			return errJSON
		}
		v.SetUint(n)
	case asFloat:
		x, err := strconv.ParseFloat(string(text), v.Type().Bits())
		if err != nil {
			return errJSON
		}
		v.SetFloat(x)
	default:
		return errJSON
	}
	return nil
}
