// Package plain makes text that others wrote safe to print: a certificate, a
// registry's answer, a file's content or another machine's message may hold what
// steers a terminal, hides text or turns its direction around.
//
// Graphic characters stay as they are. All others are written as JSON escapes
// them ("\u001b"), so that a reader sees them, and a JSON document stays the same
// document. A byte that is not UTF-8 is written as "\xff".
//
// [Line] is for a value inside a line, [Text] for text of several lines, and
// [Writer] for everything that a program prints.
package plain

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns s as a part of one line: line feeds and tabs are escaped, too.
func Line(s string) string { return escape(s, "") }

// Text returns s with its line feeds and tabs as they are.
func Text(s string) string { return escape(s, "\n\t") }

func escape(s, keep string) string {
	var b strings.Builder
	done := 0 // what of s is in b
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if bad := r == utf8.RuneError && size == 1; bad || !unicode.IsGraphic(r) && !strings.ContainsRune(keep, r) {
			b.WriteString(s[done:i])
			if bad {
				fmt.Fprintf(&b, `\x%02x`, s[i])
			} else {
				b.WriteString(visible(r))
			}
			done = i + size
		}
		i += size
	}
	if done == 0 {
		return s
	}
	return b.String() + s[done:]
}

func visible(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\t':
		return `\t`
	case '\r':
		return `\r`
	}
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// A Writer writes what it is given as [Text] does. Escape sequences of the
// program's own go to [Raw]. Several goroutines may write.
type Writer struct {
	w    io.Writer
	mu   sync.Mutex
	rest []byte // the beginning of a character whose end is yet to come
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write reports len(p) or, after an error, 0: where in p that was is not known.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := append(w.rest, p...)
	n := whole(b)
	w.rest = append([]byte(nil), b[n:]...)
	if _, err := io.WriteString(w.w, Text(string(b[:n]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the beginning of a character whose end did not come.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := io.WriteString(w.w, Text(string(w.rest)))
	w.rest = nil
	return err
}

// whole is how much of b does not end within a character.
func whole(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// Raw returns what a Writer, or a type that embeds one, writes to, and any other
// writer itself. It is for colours, for lines that replace one another, and for
// documents whose bytes count; texts from elsewhere pass through [Line] first.
func Raw(w io.Writer) io.Writer {
	if p, ok := w.(interface{ raw() io.Writer }); ok {
		return p.raw()
	}
	return w
}

func (w *Writer) raw() io.Writer { return w.w }
