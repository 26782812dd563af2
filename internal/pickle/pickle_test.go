package pickle

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// python runs a program with Python, and returns its output.
func python(t *testing.T, program string) []byte {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	out, err := exec.Command(path, "-c", program).Output()
	if err != nil {
		t.Skipf("python3: %v", err)
	}
	return out
}

// TestDecode: random values that Python pickled are what Python's json says.
func TestDecode(t *testing.T) {
	out := python(t, `
import json, pickle, random, sys
random.seed(7)
def value(depth):
    k = random.randrange(13 if depth else 8)
    if k == 0: return None
    if k == 1: return random.random() < 0.5
    if k == 2: return random.choice([0, 1, -1, 255, 256, 65535, 65536, 2**31-1, -2**31, 2**31, 2**63-1, -2**63, 2**63, -2**200, 2**255, random.getrandbits(60)])
    if k == 3: return random.choice([0.5, -1e300, 1e-300, 3.25])
    if k in (4, 5): return "".join(random.choice("aä€𝄞\n\"0") for _ in range(random.choice([0, 1, 5, 300])))
    if k in (6, 7): return shared
    if k in (8, 9): return [value(depth-1) for _ in range(random.choice([0, 1, 2, 3, 40]))]
    if k == 10: return tuple(value(depth-1) for _ in range(random.randrange(6)))
    return {random.choice(["a", "key", "%d" % i]): value(depth-1) for i in range(random.choice([0, 1, 2, 50]))}
for i in range(400):
    shared = random.choice([["x"], "a text", {"k": [1, 2]}])
    v = value(4)
    print(pickle.dumps(v, random.randrange(2, 6)).hex(), json.dumps(v))
`)
	n := 0
	for line := range strings.Lines(string(out)) {
		hexed, want, _ := strings.Cut(strings.TrimSpace(line), " ")
		var b []byte
		if _, err := fmt.Sscanf(hexed, "%x", &b); err != nil {
			t.Fatal(err)
		}
		got, err := Decode(b)
		if err != nil {
			t.Errorf("%s: %v", hexed, err)
			continue
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if same(t, string(text)) != same(t, want) {
			t.Errorf("%s is %s; want %s", hexed, text, want)
		}
		n++
	}
	if n < 400 {
		t.Errorf("%d values", n)
	}
}

// same writes a JSON text in one way.
func same(t *testing.T, text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	b, err := json.Marshal(normal(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// normal writes numbers with a point as float64.
func normal(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".e") {
			return f
		}
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = normal(v[k])
		}
	}
	return v
}

// TestCode: what would run a program is refused.
func TestCode(t *testing.T) {
	out := python(t, `
import os, pickle
class A:
    def __reduce__(self): return (os.system, ("true",))
for p in range(2, 6): print(pickle.dumps([A()], p).hex())
`)
	for line := range strings.Lines(string(out)) {
		var b []byte
		if _, err := fmt.Sscanf(line, "%x", &b); err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(b); !errors.Is(err, ErrCode) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"\x80\x02]q\x00h\x00a.", "\x80\x02}(X\x01\x00\x00\x00aK\x01u.", "(K\x01K\x02t.", "\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00]\x94(\x88\x89Ne.", "\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x80.", "(a.", "\x80\x02]]h\x00."} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Decode(b)
		if err == nil {
			_, err = json.Marshal(v)
			if err != nil {
				t.Errorf("%x: %v", b, err)
			}
		}
	})
}
