// Package result is the outcome of checks: a verdict with its reason and remedy, what was
// measured with its limit, the objects, and curves. Checks create results, certificates contain
// them, and renderers read them. All of them use the quantities that are registered here.
package result

import (
	"cmp"
	"fmt"
	"slices"
)

// Verdict is the outcome of a check.
type Verdict string

const (
	Pass  Verdict = "pass"  // it was run, and all is well
	Warn  Verdict = "warn"  // it was run, something is not as it should be, and work can continue
	Fail  Verdict = "fail"  // it was run, and something is wrong
	Skip  Verdict = "skip"  // it does not apply here, for the given reason
	Error Verdict = "error" // it could not be run
)

// Bad reports whether something is at fault.
func (v Verdict) Bad() bool { return v == Warn || v == Fail }

// Verdicts returns all verdicts, the worst first.
func Verdicts() []Verdict { return []Verdict{Fail, Error, Warn, Pass, Skip} }

// Worst returns the worst of verdicts; Skip if there are none.
func Worst(verdicts ...Verdict) Verdict {
	for _, v := range Verdicts() {
		if slices.Contains(verdicts, v) {
			return v
		}
	}
	return Skip
}

// A Result is the result of one check. The runner of checks adds ID, Component, Title and
// Seconds.
type Result struct {
	ID        string  `json:"id"`
	Component string  `json:"component,omitempty"`
	Title     string  `json:"title"`
	Verdict   Verdict `json:"verdict"`
	// Reason is one sentence, required unless the verdict is pass.
	Reason   string       `json:"reason,omitempty"`
	Wanted   string       `json:"wanted,omitempty"` // what passes, with its source, if that is not a limit of Measured
	Remedy   string       `json:"remedy,omitempty"` // one sentence: how to fix it, if the check knows
	Measured *Measurement `json:"measured,omitempty"`
	Seconds  float64      `json:"seconds"`           // how long it took
	Objects  []Object     `json:"objects,omitempty"` // the things that it tested, if there are several or they have names
	Curves   []Curve      `json:"curves,omitempty"`
	Output   string       `json:"output,omitempty"` // the end of its output
}

// An Object is one thing that a check tested, or a pair of them: a GPU, a port, a pair. The
// objects of a result differ in Name, Peer or Quantity.
type Object struct {
	Name string `json:"name"`           // "GPU 3", "mlx5_0/1"
	Peer string `json:"peer,omitempty"` // the other end: from Name to Peer
	ID   string `json:"id,omitempty"`   // stable when numbers change: a GPU's UUID, a port's GUID
	Bus  string `json:"bus,omitempty"`  // its PCI address
	// Quantity distinguishes several figures of one thing: "write", "read".
	Quantity string       `json:"quantity,omitempty"`
	Verdict  Verdict      `json:"verdict"`
	Reason   string       `json:"reason,omitempty"` // what was seen; required as in Result
	Measured *Measurement `json:"measured,omitempty"`
}

// A Measurement is a value with the reference that it was judged by.
type Measurement struct {
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Expected float64 `json:"expected,omitempty"`
	Source   string  `json:"source,omitempty"` // of the expected value
	Ratio    float64 `json:"ratio,omitempty"`  // value / expected
	Limit    *Limit  `json:"limit,omitempty"`  // decides the verdict; without it nothing was judged
	Spread   *Spread `json:"spread,omitempty"`
}

// Expect sets what the value should reach, if that is known with its source.
func (m *Measurement) Expect(value float64, source string) {
	if value > 0 && source != "" {
		m.Expected, m.Source, m.Ratio = value, source, m.Value/value
	}
}

// AtLeast sets the lowest value that passes, if that is known with its source.
func (m *Measurement) AtLeast(value float64, source string) {
	if value > 0 && source != "" {
		m.Limit = &Limit{Value: value, Kind: AtLeast, Source: source}
	}
}

// LimitKind returns the kind of the limit; "" if there is none.
func (m *Measurement) LimitKind() LimitKind {
	if m.Limit == nil {
		return ""
	}
	return m.Limit.Kind
}

// A Limit is the lowest or the highest value that passes.
type Limit struct {
	Value  float64   `json:"value"`
	Kind   LimitKind `json:"kind"`
	Source string    `json:"source"`
}

// LimitKind says on which side of a limit a value passes.
type LimitKind string

// The kinds of limits.
const (
	AtLeast LimitKind = "atLeast"
	AtMost  LimitKind = "atMost"
)

// Passes reports whether a value passes; NaN never does.
func (l Limit) Passes(v float64) bool {
	if l.Kind == AtMost {
		return v <= l.Value
	}
	return v >= l.Value
}

// A Spread says how certain a value is.
type Spread struct {
	Low     float64    `json:"low"`
	High    float64    `json:"high"`
	Kind    SpreadKind `json:"kind"`
	Samples int        `json:"samples"`
}

// SpreadKind says what a spread contains.
type SpreadKind string

// The kinds of spreads.
const (
	Range      SpreadKind = "range"      // all samples
	Confidence SpreadKind = "confidence" // the median, with a confidence of 95 %
)

// A Curve is one value as a function of another: bandwidth over bytes.
type Curve struct {
	Name     string  `json:"name"`
	X        string  `json:"x"` // unit: "B"
	Y        string  `json:"y"` // "GB/s"
	Points   []Point `json:"points"`
	Expected float64 `json:"expected,omitempty"` // Y at the largest X
	Source   string  `json:"source,omitempty"`   // of Expected
}

// A Point is a point of a curve. X increases from one to the next.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Summary returns the verdict over all results: fail before error before pass. If all were
// skipped it is a skip, since nothing was shown. A warning counts as a pass: the check was run,
// and work can continue.
func Summary(results []Result) Verdict {
	count := Count(results)
	switch {
	case count[Fail] > 0:
		return Fail
	case count[Error] > 0:
		return Error
	case count[Pass]+count[Warn] > 0:
		return Pass
	}
	return Skip
}

// Count returns the number of results with each verdict.
func Count(results []Result) map[Verdict]int {
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
	}
	return count
}

// Passed returns a pass. The text, which may be empty, says what was seen.
func Passed(format string, a ...any) Result {
	return Result{Verdict: Pass, Reason: fmt.Sprintf(format, a...)}
}

// Failed returns a failure with its reason.
func Failed(format string, a ...any) Result {
	return Result{Verdict: Fail, Reason: fmt.Sprintf(format, a...)}
}

// Skipped returns a skip: the check does not apply, for this reason.
func Skipped(format string, a ...any) Result {
	return Result{Verdict: Skip, Reason: fmt.Sprintf(format, a...)}
}

// Errored returns an error: the check could not be run.
func Errored(format string, a ...any) Result {
	return Result{Verdict: Error, Reason: fmt.Sprintf(format, a...)}
}

// Add adds a problem: the result is at least as bad as it, has its reason after those of others, and
// the first remedy of the worst problems.
func (r *Result) Add(v Verdict, reason, remedy string) {
	if worst := Worst(r.Verdict, v); worst != r.Verdict {
		r.Verdict, r.Remedy = worst, ""
	}
	if v == r.Verdict {
		r.Remedy = cmp.Or(r.Remedy, remedy)
	}
	if r.Reason != "" && reason != "" {
		reason = r.Reason + "; " + reason
	}
	r.Reason = cmp.Or(reason, r.Reason)
}

// WithOutput returns the result with a program's output.
func (r Result) WithOutput(s string) Result {
	r.Output = s
	return r
}

// WithRemedy returns the result with a remedy.
func (r Result) WithRemedy(s string) Result {
	r.Remedy = s
	return r
}
