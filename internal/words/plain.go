// Package words makes what a person reads: text from other sources that is safe to print, numbers
// before nouns, and the name that somebody who mistyped it meant.
//
// A certificate, a registry's answer, a file's content or another machine's message may contain
// characters that control a terminal, hide text or reverse its direction.
//
// Graphic characters stay as they are. All others are written as JSON escapes ("\u001b"), so that a
// reader sees them, and a JSON document keeps its meaning. A byte that is not UTF-8 is written as
// "\xff".
//
// [Line] is for a value inside a line, [Lines] for text of several lines, and [Writer] for
// everything that a program prints.
package words

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns s for use inside a line: line feeds and tabs are escaped too.
func Line(s string) string { return escape(s, "") }

// Lines returns s with line feeds and tabs unchanged.
func Lines(s string) string { return escape(s, "\n\t") }

func escape(s, keep string) string {
	var b strings.Builder
	done := 0 // length of the prefix of s that is in b
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

// A Writer escapes its input like [Lines]. The program's own escape sequences go to [Raw]. Several
// goroutines may write.
type Writer struct {
	w    io.Writer
	mu   sync.Mutex
	rest []byte // the beginning of an incomplete character
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write returns len(p) or, after an error, 0: the position of the error in p is not known.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := append(w.rest, p...)
	n := whole(b)
	w.rest = append([]byte(nil), b[n:]...)
	if _, err := io.WriteString(w.w, Lines(string(b[:n]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the beginning of a character that was not completed.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := io.WriteString(w.w, Lines(string(w.rest)))
	w.rest = nil
	return err
}

// whole returns the length of b without an incomplete character at its end.
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

// Raw returns the underlying writer of a Writer, or of a type that embeds one; other writers are
// returned unchanged. It is for colours, for lines that replace each other, and for documents with
// exact bytes. Text from other sources must pass through [Line] first.
func Raw(w io.Writer) io.Writer {
	if p, ok := w.(interface{ raw() io.Writer }); ok {
		return p.raw()
	}
	return w
}

func (w *Writer) raw() io.Writer { return w.w }
