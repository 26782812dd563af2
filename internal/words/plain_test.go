package words

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, tt := range []struct{ name, in, line, text string }{
		{"empty", "", "", ""},
		{"ASCII", `a "b" \ c`, `a "b" \ c`, `a "b" \ c`},
		{"letters of others", "Zürich 東京 ✔ · … 🚀", "Zürich 東京 ✔ · … 🚀", "Zürich 東京 ✔ · … 🚀"},
		{"no-break space", "a\u00a0b", "a\u00a0b", "a\u00a0b"},
		{"lines", "a\n\tb\n", `a\n\tb\n`, "a\n\tb\n"},
		{"carriage return", "a\rb\r\n", `a\rb\r\n`, "a\\rb\\r\n"},
		{"colour", "\x1b[31mred", `\u001b[31mred`, `\u001b[31mred`},
		{"title of the window", "\x1b]0;x\a", `\u001b]0;x\u0007`, `\u001b]0;x\u0007`},
		{"C1", "\u009b31m\u0085", `\u009b31m\u0085`, `\u009b31m\u0085`},
		{"C1 as a byte", "\x9b31m", `\x9b31m`, `\x9b31m`},
		{"NUL and DEL", "\x00\x7f", `\u0000\u007f`, `\u0000\u007f`},
		{"right to left", "a\u202egnp.exe\u2066", `a\u202egnp.exe\u2066`, `a\u202egnp.exe\u2066`},
		{"separators of lines", "a\u2028b\u2029", `a\u2028b\u2029`, `a\u2028b\u2029`},
		{"invisible", "a\u200bb\ufeff\u00ad", `a\u200bb\ufeff\u00ad`, `a\u200bb\ufeff\u00ad`},
		{"tags", "a\U000e0041", `a\udb40\udc41`, `a\udb40\udc41`},
		{"private and none", "\ue000\ufffe", `\ue000\ufffe`, `\ue000\ufffe`},
		{"not UTF-8", "a\xff\xc3", `a\xff\xc3`, `a\xff\xc3`},
		{"a surrogate as bytes", "\xed\xa0\x80", `\xed\xa0\x80`, `\xed\xa0\x80`},
		{"the replacement character", "\ufffd", "\ufffd", "\ufffd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Line(tt.in); got != tt.line {
				t.Errorf("Line(%q) = %q; want %q", tt.in, got, tt.line)
			}
			if got := Lines(tt.in); got != tt.text {
				t.Errorf("Lines(%q) = %q; want %q", tt.in, got, tt.text)
			}
		})
	}
}

// TestWriter: characters that arrive in parts are put together.
func TestWriter(t *testing.T) {
	const in = "東京\x1b[2J\n🚀\u202e\xe6\x9d"
	const want = "東京\\u001b[2J\n🚀\\u202e\\xe6\\x9d"
	for size := 1; size <= len(in); size++ {
		var b bytes.Buffer
		w := NewWriter(&b)
		for rest := in; rest != ""; {
			n := min(size, len(rest))
			if got, err := w.Write([]byte(rest[:n])); got != n || err != nil {
				t.Fatalf("Write(%q) = %d, %v; want %d", rest[:n], got, err, n)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != want {
			t.Errorf("written in parts of %d bytes: %q; want %q", size, got, want)
		}
	}
}

func TestWriterFails(t *testing.T) {
	w := NewWriter(failing{})
	if n, err := w.Write([]byte("a")); n != 0 || !errors.Is(err, errFull) {
		t.Errorf("Write to a full disk = %d, %v; want 0, %v", n, err, errFull)
	}
}

var errFull = errors.New("no space left")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestRaw(t *testing.T) {
	var b bytes.Buffer
	if got := Raw(NewWriter(&b)); got != &b {
		t.Errorf("Raw(NewWriter(b)) = %v; want b", got)
	}
	if got := Raw(struct{ *Writer }{NewWriter(&b)}); got != &b {
		t.Errorf("Raw of what embeds NewWriter(b) = %v; want b", got)
	}
	if got := Raw(&b); got != &b {
		t.Errorf("Raw(b) = %v; want b", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[31m\u202e\xff\n", 3)
	f.Add("\U000e0041🚀", 5)
	f.Fuzz(func(t *testing.T, s string, cut int) {
		line, text := Line(s), Lines(s)
		for _, got := range []string{line, strings.NewReplacer("\n", "", "\t", "").Replace(text)} {
			for _, r := range got {
				if !unicode.IsGraphic(r) {
					t.Fatalf("%q became %q, which has %U", s, got, r)
				}
			}
			if !utf8.ValidString(got) {
				t.Fatalf("%q became %q, which is not UTF-8", s, got)
			}
		}
		if again := Line(text); again != line {
			t.Errorf("Line(Lines(%q)) = %q; want %q", s, again, line)
		}
		if again := Lines(text); again != text {
			t.Errorf("Lines(Lines(%q)) = %q; want %q", s, again, text)
		}
		var b bytes.Buffer
		w := NewWriter(&b)
		cut = min(max(cut, 0), len(s))
		for _, part := range []string{s[:cut], s[cut:]} {
			if _, err := w.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil || b.String() != text {
			t.Errorf("%q written in two parts became %q, %v; want %q", s, b.String(), err, text)
		}
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(Lines(string(doc))), &got); err != nil || got != want {
			t.Errorf("the JSON document %s became another one: %q, %v; want %q", doc, got, err, want)
		}
	})
}
