package result

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Validate reports the first rule that the result breaks.
func (r *Result) Validate() error {
	if r.ID == "" {
		return errors.New("a result has no id")
	}
	if err := r.validate(); err != nil {
		return fmt.Errorf("result %.80q: %w", r.ID, err)
	}
	return nil
}

func (r *Result) validate() error {
	if err := judged(r.Verdict, r.Reason, r.Measured); err != nil {
		return err
	}
	switch {
	case !isID(r.ID):
		return errors.New("its id is not words with slashes between them")
	case !optional(r.Component):
		return fmt.Errorf("component: %.80q is not a name", r.Component)
	case !finite(r.Seconds) || r.Seconds < 0 || r.Seconds > longest:
		return fmt.Errorf("it took %v seconds", r.Seconds)
	}
	type key struct{ name, peer, quantity string }
	seen := map[key]bool{}
	for _, o := range r.Objects {
		k := key{o.Name, o.Peer, o.Quantity}
		switch {
		case seen[k]:
			return fmt.Errorf("two objects are %.80q, peer %.80q, quantity %.80q", o.Name, o.Peer, o.Quantity)
		case !IsName(o.Name) || !optional(o.Peer) || !optional(o.ID) || !optional(o.Quantity):
			return fmt.Errorf("object %.80q, peer %.80q, id %.80q, quantity %.80q: one of them is not a name", o.Name, o.Peer, o.ID, o.Quantity)
		}
		seen[k] = true
		if err := judged(o.Verdict, o.Reason, o.Measured); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	for _, c := range r.Curves {
		if err := c.validate(); err != nil {
			return fmt.Errorf("the curve %q: %w", c.Name, err)
		}
	}
	return nil
}

// longest exceeds the duration of any check, in seconds.
const longest = 1e9

// judged checks a verdict with its reason and measurement.
func judged(v Verdict, reason string, m *Measurement) error {
	switch {
	case !slices.Contains(Verdicts(), v):
		return fmt.Errorf("verdict %q; want pass, warn, fail, skip or error", v)
	case v != Pass && strings.TrimSpace(reason) == "":
		return fmt.Errorf("%s without a reason", v)
	case m != nil:
		return m.validate()
	}
	return nil
}

func (m *Measurement) validate() error {
	switch {
	case !finite(m.Value) || !finite(m.Expected) || !finite(m.Ratio):
		return errors.New("a measured value is not a number")
	case !IsName(m.Unit):
		return fmt.Errorf("unit: %.80q is not a name", m.Unit)
	case m.Expected != 0 && m.Source == "":
		return errors.New("an expected value needs its source")
	case m.Expected == 0 && m.Ratio != 0:
		return fmt.Errorf("ratio: %v of what is expected, and nothing is", m.Ratio)
	case m.Expected != 0 && !almostEqual(m.Ratio, m.Value/m.Expected):
		return fmt.Errorf("ratio: %v; %v of %v is %v", m.Ratio, m.Value, m.Expected, m.Value/m.Expected)
	}
	if l := m.Limit; l != nil && (!finite(l.Value) || l.Source == "" || l.Kind != AtLeast && l.Kind != AtMost) {
		return errors.New("a limit needs a number, a source, and a kind, atLeast or atMost")
	}
	if s := m.Spread; s != nil && (!finite(s.Low) || !finite(s.High) || s.Low > s.High || s.Samples < 1 || s.Kind != Range && s.Kind != Confidence) {
		return errors.New("a spread needs two numbers, the lower one first, samples, and a kind, range or confidence")
	}
	return nil
}

func (c *Curve) validate() error {
	if !IsName(c.Name) || !IsName(c.X) || !IsName(c.Y) || len(c.Points) == 0 {
		return fmt.Errorf("it needs a name, units and points: %.80q over %.80q, %d points", c.Y, c.X, len(c.Points))
	}
	if !finite(c.Expected) || c.Expected != 0 && c.Source == "" {
		return errors.New("an expected value needs a source")
	}
	for i, p := range c.Points {
		if !finite(p.X) || !finite(p.Y) || i > 0 && p.X <= c.Points[i-1].X {
			return errors.New("its points do not rise in x, or are not numbers")
		}
	}
	return nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// almostEqual tolerates differences in the last digits, which other programs may compute differently.
func almostEqual(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }

// IsName reports whether a text can be a name in a line, a label or a path: some visible
// characters, with spaces only between them.
func IsName(s string) bool {
	return s != "" && strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) })
}

func optional(s string) bool { return s == "" || IsName(s) }

// isID reports whether a text is a check's id: ids become parts of paths.
func isID(s string) bool {
	for word := range strings.SplitSeq(s, "/") {
		if !IsName(word) || word == "." || word == ".." {
			return false
		}
	}
	return true
}
