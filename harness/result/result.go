// Package result is what a check says: a verdict with its reason and remedy, what it measured
// against which limit, of which objects, and curves. Checks make results, certificates hold
// them, renderers read them, and all of them know quantities from here.
package result

import (
	"fmt"
	"slices"
)

// Verdict is the outcome of a check.
type Verdict string

const (
	Pass  Verdict = "pass"  // it was done, and all is well
	Warn  Verdict = "warn"  // it was done, something is not as it should be, and work goes on
	Fail  Verdict = "fail"  // it was done, and something is wrong
	Skip  Verdict = "skip"  // it does not apply here, for the given reason
	Error Verdict = "error" // it could not be carried out
)

// Bad reports whether something is to blame.
func (v Verdict) Bad() bool { return v == Warn || v == Fail }

// Verdicts are all of them, the worst first.
func Verdicts() []Verdict { return []Verdict{Fail, Error, Warn, Pass, Skip} }

// Worst returns the worst of verdicts; Skip where there is none.
func Worst(verdicts ...Verdict) Verdict {
	for _, v := range Verdicts() {
		if slices.Contains(verdicts, v) {
			return v
		}
	}
	return Skip
}

// A Result is what one check says. The runner of checks adds ID, Component, Title and
// Seconds.
type Result struct {
	ID        string  `json:"id"`
	Component string  `json:"component,omitempty"`
	Title     string  `json:"title"`
	Verdict   Verdict `json:"verdict"`
	// Reason is one sentence, and is never missing unless the verdict is pass.
	Reason   string       `json:"reason,omitempty"`
	Wanted   string       `json:"wanted,omitempty"` // what passes, and who says so, where that is not a limit of what was measured
	Remedy   string       `json:"remedy,omitempty"` // one sentence: what to do about it, where the check knows
	Measured *Measurement `json:"measured,omitempty"`
	Seconds  float64      `json:"seconds"`           // how long it took
	Objects  []Object     `json:"objects,omitempty"` // each thing that it looked at, where that is several or has a name
	Curves   []Curve      `json:"curves,omitempty"`
	Output   string       `json:"output,omitempty"` // the end of what it printed
}

// An Object is one thing that a check looked at, or two: a GPU, a port, a pair.
// No two of a result have the same Name, Peer and Quantity.
type Object struct {
	Name string `json:"name"`           // "GPU 3", "mlx5_0/1"
	Peer string `json:"peer,omitempty"` // the other end: from Name to Peer
	ID   string `json:"id,omitempty"`   // that stays when numbers change: a GPU's UUID, a port's GUID
	Bus  string `json:"bus,omitempty"`  // its PCI address
	// Quantity tells several figures of one thing apart: "write", "read".
	Quantity string       `json:"quantity,omitempty"`
	Verdict  Verdict      `json:"verdict"`
	Reason   string       `json:"reason,omitempty"` // what was seen; needed as in Result
	Measured *Measurement `json:"measured,omitempty"`
}

// A Measurement is a value with what it was judged against.
type Measurement struct {
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Expected float64 `json:"expected,omitempty"`
	Source   string  `json:"source,omitempty"` // of the expected value
	Ratio    float64 `json:"ratio,omitempty"`  // value / expected
	Limit    *Limit  `json:"limit,omitempty"`  // what decides; without it nothing was judged
	Spread   *Spread `json:"spread,omitempty"`
}

// LimitKind is its limit's; "" where it has none.
func (m *Measurement) LimitKind() LimitKind {
	if m.Limit == nil {
		return ""
	}
	return m.Limit.Kind
}

// A Limit is the least or the most that passes.
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

// Passes reports whether a value does; NaN never.
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

// SpreadKind says what lies between a spread's ends.
type SpreadKind string

// The kinds of spreads.
const (
	Range      SpreadKind = "range"      // all samples
	Confidence SpreadKind = "confidence" // the median, with a confidence of 95 %
)

// A Curve is a value over another one: bandwidth over bytes.
type Curve struct {
	Name     string  `json:"name"`
	X        string  `json:"x"` // unit: "B"
	Y        string  `json:"y"` // "GB/s"
	Points   []Point `json:"points"`
	Expected float64 `json:"expected,omitempty"` // of Y, where X is largest
	Source   string  `json:"source,omitempty"`   // of Expected
}

// A Point of a curve: X rises from one to the next.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Summary returns the verdict over all results: fail before error before pass,
// where only skips are no pass, since nothing was shown. What only warns has
// been done and does not keep from work: that is a pass.
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

// Count returns how many results have each verdict.
func Count(results []Result) map[Verdict]int {
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
	}
	return count
}

// Passed returns a pass; the text, which may be empty, says what was seen.
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

// Errored returns an error: the check could not be carried out.
func Errored(format string, a ...any) Result {
	return Result{Verdict: Error, Reason: fmt.Sprintf(format, a...)}
}

// WithOutput returns the result with what a program printed.
func (r Result) WithOutput(s string) Result {
	r.Output = s
	return r
}

// WithRemedy returns the result with what to do about it.
func (r Result) WithRemedy(s string) Result {
	r.Remedy = s
	return r
}
