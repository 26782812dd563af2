package jobs

import (
	"bytes"
	"regexp"
	"strings"
)

// A script is a shell script being written. Callers quote words that are data, and pass
// shell syntax unquoted.
type script struct{ b bytes.Buffer }

func (s *script) line(text string) { s.b.WriteString(text + "\n") }

// comment writes the text as one line, with spaces for line breaks.
func (s *script) comment(text string) {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text)
	s.line(strings.TrimRight("# "+text, " "))
}

// command writes words, on several lines if they are too long for one.
func (s *script) command(words ...string) {
	const indent = "  "
	col := 0
	for i, w := range words {
		switch {
		case i == 0:
			s.b.WriteString(w)
			col = len(w)
		case col+1+len(w) > 100:
			s.b.WriteString(" \\\n" + indent + w)
			col = len(indent) + len(w)
		default:
			s.b.WriteString(" " + w)
			col += 1 + len(w)
		}
	}
	s.b.WriteByte('\n')
}

// export sets a variable and writes its reason above.
func (s *script) export(v Var) {
	s.comment(v.reason())
	s.line("export " + v.Name + "=" + quote(v.Value))
}

func (s *script) bytes() []byte { return s.b.Bytes() }

var safeWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote quotes s as one word of a shell command line.
func quote(s string) string {
	if safeWord.MatchString(s) && s[0] != '=' { // zsh expands a leading =
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
