package explain

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// shownCauses is how many causes a text tells in full.
const shownCauses = 3

// WriteText writes the report for a person, in lines of width columns.
func (r *Report) WriteText(w io.Writer, width int) error {
	t := NewText(width)
	head := string(r.Verdict)
	if r.Verdict == Fault && len(r.Causes) > 0 {
		head += " (" + string(r.Causes[0].Sure) + ")"
	}
	t.Par("verdict: "+head+": ", r.Summary)
	for i := range r.Causes {
		c := &r.Causes[i]
		switch {
		case i >= shownCauses && len(r.Causes) > shownCauses+1:
			if i == shownCauses {
				t.Line("")
			}
			t.Par("and "+c.head()+": ", fmt.Sprintf("%s (%s:%d)", c.Cause, c.Lines[0].File, c.Lines[0].Number))
			continue
		case i > 0:
			t.Line("")
			t.Par("and "+c.head()+": ", c.Cause)
			if c.Verdict == NoFault { // what it is not
				continue
			}
		}
		c.write(t)
	}
	for _, text := range r.Ask {
		t.Par("   ask for: ", text)
	}
	if len(r.Known) > 0 {
		t.Line("")
		t.Par("understood: ", strings.Join(r.Known, "; "))
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

// WriteBeside writes the causes after another report.
func (r *Report) WriteBeside(w io.Writer, width int) error {
	t := NewText(width)
	for i := range r.Causes {
		t.Line("")
		t.Par("and "+r.Causes[i].head()+": ", r.Causes[i].Cause)
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

func (c *Cause) head() string {
	if c.Verdict == Fault {
		return string(c.Verdict) + " (" + string(c.Sure) + ")"
	}
	return string(c.Verdict)
}

// shownLines is how many lines of evidence a text has for a cause.
const shownLines = 4

func (c *Cause) write(t *Text) {
	for _, l := range c.Lines[:min(len(c.Lines), shownLines)] {
		t.quote(fmt.Sprintf("   %s:%d: ", l.File, l.Number), l.Text, l.match)
	}
	if n := len(c.Follows); n > 0 {
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" and %d more", n-1)
		}
		t.Line(fmt.Sprintf("   follows from it: %s:%d%s", c.Follows[0].File, c.Follows[0].Number, more))
	}
	for _, text := range c.Remedy {
		t.Par("   remedy: ", text)
	}
	if c.Verify != "" {
		t.Par("   verify: ", c.Verify)
	}
	for _, text := range c.Ask {
		t.Par("   ask for: ", text)
	}
	t.Line("   source: " + strings.Join(c.Source, " "))
}

// A Text is lines for a person, broken at spaces.
type Text struct {
	b     strings.Builder
	width int
}

// NewText returns an empty text with lines of width columns.
func NewText(width int) *Text { return &Text{width: max(width, 60)} }

func (t *Text) String() string { return t.b.String() }

// Line adds a line.
func (t *Text) Line(s string) { t.b.WriteString(s + "\n") }

// Par adds a paragraph; lines after the first begin below the text.
func (t *Text) Par(head, text string) {
	indent := min(utf8.RuneCountInString(head), 11)
	line := head
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > t.width {
			t.Line(line)
			line, empty = strings.Repeat(" ", indent), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	t.Line(line)
}

// maxQuote is how many characters of a line a text quotes.
const maxQuote = 240

// quote writes a line of an input; of a long one the part around what matched.
func (t *Text) quote(head, text, match string) {
	if i := strings.Index(text, match); match != "" && i > maxQuote/2 {
		before := []rune(text[:i])
		text = "…" + string(before[max(0, len(before)-maxQuote/4):]) + text[i:]
	}
	if r := []rune(text); len(r) > maxQuote {
		text = string(r[:maxQuote]) + "…"
	}
	t.Par(head, text)
}
