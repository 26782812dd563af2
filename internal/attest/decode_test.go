package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	kjson "sigs.k8s.io/json"
)

// A decoded has a field of each kind that is read.
type decoded struct {
	embedded
	S  string            `json:"s"`
	I  int8              `json:"i"`
	U  uint              `json:"u,omitempty"`
	F  float64           `json:"f,omitempty"`
	B  bool              `json:"b,omitempty"`
	T  time.Time         `json:"t"`
	P  *decoded          `json:"p,omitempty"`
	L  []inner           `json:"l"`
	M  map[string]int    `json:"m,omitempty"`
	R  json.RawMessage   `json:"r,omitempty"`
	A  any               `json:"a,omitempty"`
	Y  []byte            `json:"y,omitempty"`
	Z  []byte            `json:"z"`
	N  json.Number       `json:"n,omitempty"`
	LL [][]*string       `json:"ll,omitempty"`
	MM map[named][]inner `json:"mm,omitempty"`
}

type embedded struct {
	E string `json:"e,omitempty"`
}

type inner struct{ X, Y float64 }

type named string

const good = `{"e":"é","s":"a\u00e9\n","i":-1,"u":2,"f":1e2,"b":true,"t":"2026-11-30T01:02:03.5Z","p":{"s":"","i":0,"t":"0001-01-01T00:00:00Z","l":null,"z":null},"l":[{"X":1,"Y":-0.0}],` +
	`"m":{"a":1,"b":2},"r":{"z":[1, 2]},"a":[null,"x"],"y":"AQI=","z":"","n":12,"ll":[[],null,["q",null]],"mm":{"k":[]},"new":{"x":1,"y":[{}]}}`

// decodeTests are changes of good, and what is said of them: by Decode and by DecodeUnsigned, "" if they
// accept them.
var decodeTests = []struct{ old, new, signed, unsigned string }{
	{"", "", "", ""},
	{`"b":2`, `"A":2`, "", `the names "a" and "A" stand in one object (m): some readers take them for one`},
	{`"y":[{}]`, `"X":[{}]`, "", `the names "x" and "X" stand in one object (new)`},
	{`"b":2`, `"a":2`, `the name "a" stands twice in one object (m)`, `the name "a" stands twice in one object (m)`},
	{`"b":2`, `"\u0061":2`, `the name "a" stands twice in one object (m)`, `the name "a" stands twice in one object (m)`},
	{`"y":[{}]`, `"y":[{},{"y":{"z":1,"z":2}}]`, `the name "z" stands twice in one object (new.y[1].y)`, `the name "z" stands twice in one object (new.y[1].y)`},
	{`"s":`, `"s":"","s":`, `the name "s" stands twice in one object`, `the name "s" stands twice in one object`},
	{`"new":`, `"ſ":1,"new":`, `the names "s" and "ſ" stand in one object: some`, `the names "s" and "ſ" stand in one object: some`},
	{`"new":`, `"new":1,"New":`, `the names "new" and "New" stand in one object: some`, `the names "new" and "New" stand in one object: some`},
	{`"e":`, `"E":`, `the name "E" is spelled "e"`, `the name "E" is spelled "e"`},
	{`"X":1`, `"x":1`, `the name "x" (l[0]) is spelled "X"`, `the name "x" (l[0]) is spelled "X"`},
	{`"i":-1,`, ``, `.i is missing`, ""},
	{`"X":1,`, ``, `.l[0].X is missing`, ""},
	{`"t":"2026-11-30T01:02:03.5Z",`, ``, `.t is missing`, ""},
	{`"u":2`, `"u":null`, "", ""},
	{`"y":"AQI="`, `"y":null`, "", ""},
	{`"z":""`, `"z":null`, "", ""},
	{`"s":"a\u00e9\n"`, `"s":null`, `.s is "null", which is read as ""`, ""},
	{`"i":-1`, `"i":null`, `.i is "null", which is read as "0"`, ""},
	{`"X":1`, `"X":null`, `.l[0].X is "null"`, ""},
	{`{"X":1,"Y":-0.0}`, `null`, `.l[0] is "null"`, ""},
	{`"a":1,`, `"a":null,`, `.m.a is "null"`, ""},
	{`"2026-11-30T01:02:03.5Z"`, `"2026-11-30T01:02:03.50Z"`, `.t is "\"2026-11-30T01:02:03.50Z\"", which is read as`, ""},
	{`"2026-11-30T01:02:03.5Z"`, `null`, `.t is "null"`, ""},
	{`"2026-11-30T01:02:03.5Z"`, `"yesterday"`, `parsing time`, `parsing time`},
	{`"i":-1`, `"i":128`, `json: cannot unmarshal number 128`, `json: cannot unmarshal number 128`},
	{`"i":-1`, `"i":1.0`, `json: cannot unmarshal number 1.0`, `json: cannot unmarshal number 1.0`},
	{`"i":-1`, `"i":"1"`, `json: cannot unmarshal string`, `json: cannot unmarshal string`},
	{`"u":2`, `"u":-2`, `json: cannot unmarshal number -2`, `json: cannot unmarshal number -2`},
	{`"f":1e2`, `"f":1e999`, `json: cannot unmarshal number 1e999`, `json: cannot unmarshal number 1e999`},
	{`"f":1e2`, `"f":NaN`, `invalid character 'N'`, `invalid character 'N'`},
	{`"b":true`, `"b":1`, `json: cannot unmarshal number`, `json: cannot unmarshal number`},
	{`"b":true`, `"b":truth`, `invalid character`, `invalid character`},
	{`"l":[`, `"l":{},"new2":[`, `json: cannot unmarshal object`, `json: cannot unmarshal object`},
	{`"m":{`, `"m":[],"new2":{`, `json: cannot unmarshal array`, `json: cannot unmarshal array`},
	{`"y":"AQI="`, `"y":"*"`, `illegal base64`, `illegal base64`},
	{`"n":12`, `"n":{}`, `json: cannot unmarshal object`, `json: cannot unmarshal object`},
	{`"i":-1`, `"i":01`, `invalid character`, `invalid character`},
	{`"i":-1`, `"i":- 1`, `invalid character`, `invalid character`},
	{`"f":1e2`, `"f":1.`, `invalid character`, `invalid character`},
	{`"f":1e2`, `"f":1e`, `invalid character`, `invalid character`},
	{`"s":"a`, `"s":"a` + "\x01", `invalid character`, `invalid character`},
	{`\u00e9`, `\u00g9`, `invalid character`, `invalid character`},
	{`\u00e9`, `\x`, `invalid character`, `invalid character`},
	{`é`, "\xff", `it is not UTF-8`, `it is not UTF-8`},
	{`"l":[`, `"l":[,`, `invalid character`, `invalid character`},
	{`-0.0}]`, `-0.0},]`, `invalid character`, `invalid character`},
	{`"i":-1`, `"i"`, `invalid character`, `invalid character`},
	{`"i":-1,`, `,`, `invalid character`, `invalid character`},
	{`"new":{`, `"new":{"deep":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + ",", `it is nested deeper than 200 levels`, `it is nested deeper than 200 levels`},
	{`"new":{`, `"new":{"deep":` + strings.Repeat("[", maxDepth-2) + "1" + strings.Repeat("]", maxDepth-2) + ",", "", ""},
}

func TestDecode(t *testing.T) {
	for _, tt := range decodeTests {
		doc := strings.Replace(good, tt.old, tt.new, 1)
		for what, c := range map[string]struct {
			read func([]byte, any) error
			want string
		}{
			"Decode":         {func(b []byte, v any) error { return Decode(b, MaxSize, v) }, tt.signed},
			"DecodeUnsigned": {func(b []byte, v any) error { return DecodeUnsigned(b, MaxSize, v) }, tt.unsigned},
		} {
			var got, known decoded
			err := c.read([]byte(doc), &got)
			switch {
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s of %s: %v; want %s", what, doc, err, c.want)
			case c.want == "" && err != nil:
				t.Errorf("%s of %s: %v", what, doc, err)
			case c.want == "":
				if err := json.Unmarshal([]byte(doc), &known); err != nil || !reflect.DeepEqual(got, known) {
					t.Errorf("%s of %s: %+v; encoding/json reads %+v, %v", what, doc, got, known, err)
				}
			}
		}
	}
	for doc, want := range map[string]string{
		"": "unexpected end", " ": "unexpected end", "{": "unexpected end", `{"s":"`: "unexpected end", "[]": "cannot unmarshal array", "null": "read as",
		good + "{}": "more text follows", good + " x": "more text follows", good + "\x00": "more text follows", good[:len(good)-1]: "unexpected end",
	} {
		if err := Decode([]byte(doc), MaxSize, new(decoded)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%.30s…) = %v; want %s", doc, err, want)
		}
	}
	labels := strings.Replace(good, `"b":2`, `"A":2`, 1)
	if err := DecodeUnsigned([]byte(" "+labels+"\r\n\t"), MaxSize, new(decoded), "m"); err != nil {
		t.Errorf("names of data that differ in case alone: %v", err)
	}
	if err := Decode(make([]byte, 11), 10, new(decoded)); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("a long document: %v", err)
	}
}

// TestManyNames: objects with more names than are compared one by one.
func TestManyNames(t *testing.T) {
	var b strings.Builder
	for i := range 3 * maxCompared {
		fmt.Fprintf(&b, `"n%d":{"n%d":1},`, i, i)
	}
	for last, want := range map[string]string{`"x":1`: "", `"n0":1`: "stands twice", `"n95":1`: "stands twice", `"N40":1`: "stand in one object"} {
		err := DecodeUnsigned([]byte("{"+b.String()+last+"}"), MaxSize, new(struct{}))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", last, err, want)
		}
	}
}

// TestLongName: what reading a document allocates grows with its length, however long a name is and
// however many values stand below it.
func TestLongName(t *testing.T) {
	name, list := strings.Repeat("n", 1<<20), strings.Repeat("1,", 1<<19)
	doc := fmt.Appendf(nil, `{"a":{%q:[%s1]}}`, name, list)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for what, read := range map[string]func() error{
		"DecodeUnsigned": func() error { return DecodeUnsigned(doc, MaxSize, new(struct{})) },
		"Decode":         func() error { return Decode(doc, MaxSize, new(struct{})) },
	} {
		if err := read(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 500*uint64(len(doc)) { // a path for each value is half a million times 1 MiB
		t.Errorf("%d bytes: %d were allocated", len(doc), n)
	}
}

// FuzzDecode: what is accepted is read as encoding/json reads it, and encodes as what it says; and a
// third reader finds no name twice in it.
func FuzzDecode(f *testing.F) {
	for _, tt := range decodeTests {
		f.Add(strings.Replace(good, tt.old, tt.new, 1))
	}
	f.Fuzz(func(t *testing.T, s string) {
		var unsigned decoded
		unsignedErr := DecodeUnsigned([]byte(s), MaxSize, &unsigned)
		var signed decoded
		signedErr := Decode([]byte(s), MaxSize, &signed)
		for _, read := range []struct {
			got decoded
			err error
		}{{unsigned, unsignedErr}, {signed, signedErr}} {
			if read.err != nil {
				continue
			}
			got := read.got
			var known decoded
			if err := json.Unmarshal([]byte(s), &known); err != nil || !reflect.DeepEqual(got, known) {
				t.Errorf("%q is %+v; encoding/json reads %+v, %v", s, got, known, err)
			}
			var tree any
			if wrong, err := kjson.UnmarshalStrict([]byte(s), &tree); len(wrong) > 0 || err != nil {
				t.Errorf("%q is accepted: %v", s, errors.Join(append(wrong, err)...))
			}
		}
		if signedErr != nil {
			return
		}
		signed.A, signed.Y, signed.N = nil, nil, "" // these are read by encoding/json
		again, err := Encode(signed)
		if err != nil {
			t.Fatal(err)
		}
		var doc, known any
		if err := errors.Join(json.Unmarshal([]byte(s), &doc), json.Unmarshal(again, &known)); err != nil || !says(doc, known) {
			t.Errorf("%q is accepted, and encoded as %s (%v)", s, again, err)
		}
	})
}

// says reports whether a document has all that is known of it.
func says(doc, known any) bool {
	switch k := known.(type) {
	case map[string]any:
		d, ok := doc.(map[string]any)
		for name, v := range k {
			has, there := d[name]
			ok = ok && there && says(has, v)
		}
		return ok
	case []any:
		d, ok := doc.([]any)
		ok = ok && len(d) == len(k)
		for i := range k {
			ok = ok && says(d[i], k[i])
		}
		return ok
	}
	return doc == known
}
