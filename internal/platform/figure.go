package platform

import (
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Confidence says how far a figure can be trusted.
type Confidence string

// The levels: the vendor's or measurer's own page; a reliable secondary source; a single unverified
// claim.
const (
	High   Confidence = "high"
	Medium Confidence = "medium"
	Low    Confidence = "low"
)

func (c Confidence) valid() bool { return c == High || c == Medium || c == Low }

// A Figure is one value with its source. In the file it is a list (value, source, confidence and an
// optional note), or null, which is not Known. The value is a number, a list of alternatives, or
// text. In a file of one's own (OwnFile) the value alone will do.
type Figure struct {
	Value      float64   // the number; the first of Values; 0 for a text
	Values     []float64 // all alternatives, if there are several
	Text       string    // the value as written
	Source     string    // key of DB.Sources
	Confidence Confidence
	Note       string
}

// Known reports whether there is a figure.
func (f Figure) Known() bool { return f.Source != "" }

// String formats the figure with its source: "450 (mle-net, high)".
func (f Figure) String() string {
	if !f.Known() {
		return "not known"
	}
	s := fmt.Sprintf("%s (%s, %s", f.Text, f.Source, f.Confidence)
	if f.Note != "" {
		s += ": " + f.Note
	}
	return s + ")"
}

// UnmarshalYAML reads the list. It is not called for null: the Figure stays zero.
func (f *Figure) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*f = Figure{Source: ownSource, Confidence: High} // that ours have none is checked with the sources
		return f.value(n)
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) < 3 || len(n.Content) > 4 {
		return fmt.Errorf("line %d: a figure is [value, source, confidence] and perhaps a note, or null", n.Line)
	}
	*f = Figure{}
	if err := f.value(n.Content[0]); err != nil {
		return err
	}
	rest := []*string{&f.Source, (*string)(&f.Confidence), &f.Note}
	for i, c := range n.Content[1:] {
		if c.Kind != yaml.ScalarNode || c.Value == "" {
			return fmt.Errorf("line %d: source, confidence and note of a figure are texts", c.Line)
		}
		*rest[i] = c.Value
	}
	if !f.Confidence.valid() {
		return fmt.Errorf("line %d: confidence %q; want high, medium or low", n.Line, f.Confidence)
	}
	return nil
}

func (f *Figure) value(n *yaml.Node) error {
	switch n.Kind {
	case yaml.ScalarNode:
		f.Text = n.Value
		if n.ShortTag() == "!!str" {
			return nil
		}
		return n.Decode(&f.Value)
	case yaml.SequenceNode:
		if err := n.Decode(&f.Values); err != nil || len(f.Values) == 0 {
			return fmt.Errorf("line %d: the alternatives of a figure are numbers", n.Line)
		}
		f.Value, f.Text = f.Values[0], fmt.Sprint(f.Values)
		return nil
	}
	return fmt.Errorf("line %d: a figure's value is a number, a text or a list of numbers", n.Line)
}

// Counts is one number, or several alternatives, or null for unknown.
type Counts []int

// UnmarshalYAML reads a number or a list.
func (c *Counts) UnmarshalYAML(n *yaml.Node) error {
	var one int
	if n.Decode(&one) == nil {
		*c = Counts{one}
	} else if err := n.Decode((*[]int)(c)); err != nil {
		return fmt.Errorf("line %d: want a number or a list of numbers", n.Line)
	}
	if len(*c) == 0 || slices.Min(*c) < 1 {
		return fmt.Errorf("line %d: a count is at least 1", n.Line)
	}
	return nil
}

// Max returns the largest alternative; 0 if unknown.
func (c Counts) Max() int {
	if len(c) == 0 {
		return 0
	}
	return slices.Max(c)
}

// A Rule is a rule of thumb: a band with its source, or only a text.
type Rule struct {
	Low, High float64 // the band; 0, 0 if none
	Source    string
	Text      string
}

// UnmarshalYAML reads [low, high, source, text] or a text.
func (r *Rule) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&r.Text)
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) != 4 {
		return fmt.Errorf("line %d: a rule is [low, high, source, text] or a text", n.Line)
	}
	for i, v := range []any{&r.Low, &r.High, &r.Source, &r.Text} {
		if err := n.Content[i].Decode(v); err != nil {
			return err
		}
	}
	return nil
}

// A Span is a number, or a text such as "2 or more".
type Span struct {
	N    int // 0 when it is a text
	Text string
}

// UnmarshalYAML reads either.
func (s *Span) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: want a number or a text", n.Line)
	}
	s.Text = n.Value
	if n.ShortTag() != "!!int" {
		return nil
	}
	var err error
	s.N, err = strconv.Atoi(n.Value)
	return err
}

// Values is a number or a list: the ends of a range.
type Values []float64

// UnmarshalYAML reads either.
func (v *Values) UnmarshalYAML(n *yaml.Node) error {
	var one float64
	if n.Decode(&one) == nil {
		*v = Values{one}
		return nil
	}
	return n.Decode((*[]float64)(v))
}
