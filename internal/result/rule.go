package result

import "fmt"

// A Rule is a user's own limit: a value, or a fraction of what the hardware should reach.
type Rule struct {
	Value    float64 `json:"value,omitempty"` // in the figure's unit; 0: Fraction decides
	Fraction float64 `json:"fraction,omitempty"`
	Of       string  `json:"of,omitempty"` // peak or typical
	Source   string  `json:"source"`       // file and line of the rule
}

// Judge replaces an object's limit with the rule, and judges the object by it. figure names what
// was measured; known returns what the hardware should reach, with its source, and 0 if that is
// not known.
func (r Rule) Judge(figure string, o *Object, known func(of string) (value float64, source string)) {
	m := o.Measured
	if m == nil || o.Verdict == Skip || o.Verdict == Error {
		return
	}
	limit := Limit{Value: r.Value, Kind: AtLeast, Source: r.Source}
	if r.Fraction > 0 {
		value, source := known(r.Of)
		if value <= 0 || source == "" {
			o.Verdict = Error
			o.Reason = fmt.Sprintf("%s: limits: %s: the database has no %s value of it for this machine; give a value", r.Source, figure, r.Of)
			return
		}
		m.Expect(value, source)
		limit.Value = r.Fraction * value
	}
	if BetterOf("", figure, m.Unit, "") == Lower {
		limit.Kind = AtMost
	}
	m.Limit = &limit
	o.Hold()
}

// Hold judges an object by the limit of its measurement. Without one it passes.
func (o *Object) Hold() {
	m := o.Measured
	o.Verdict, o.Reason = Pass, ""
	if l := m.Limit; l != nil && !l.Passes(m.Value) {
		word := map[LimitKind]string{AtLeast: "less", AtMost: "more"}[l.Kind]
		o.Verdict, o.Reason = Fail, fmt.Sprintf("%.4g %s, %s than %.4g", m.Value, m.Unit, word, l.Value)
	}
}

// Held replaces the limits of a result's objects, all of one figure, with a rule, and sums them
// up again. known returns what the hardware should reach for an object's figure.
func (r Result) Held(rule Rule, figure string, known func(o *Object, of string) (value float64, source string)) Result {
	if len(r.Objects) == 0 {
		return r // it was skipped, or could not be made
	}
	for i := range r.Objects {
		o := &r.Objects[i]
		rule.Judge(figure, o, func(of string) (float64, string) { return known(o, of) })
	}
	sum := Sum(r.Objects)
	r.Verdict, r.Reason, r.Measured = sum.Verdict, sum.Reason, Speaking(figure, r.Objects)
	if r.Verdict == Pass {
		r.Reason, r.Remedy = Values(r.Objects), ""
	}
	return r
}
