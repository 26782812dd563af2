package report

import (
	"fmt"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

func figure(v float64, unit string) string { return fmt.Sprintf("%.4g %s", v, unit) }

// span formats a range of values with their unit.
func span(low, high float64, unit string) string {
	if from := fmt.Sprintf("%.4g", low); from != fmt.Sprintf("%.4g", high) {
		return from + " to " + figure(high, unit)
	}
	return figure(low, unit)
}

// measured formats a value with the expected one, in short form.
func measured(m *result.Measurement) string {
	s := figure(m.Value, m.Unit)
	if m.Expected != 0 {
		s += fmt.Sprintf(" of %.4g (%.0f %%, %s)", m.Expected, 100*m.Ratio, m.Source)
	}
	return s
}

// measuredAll formats a value with its limit and spread.
func measuredAll(m *result.Measurement) string {
	s := measured(m)
	if t := limitText(m); t != "" {
		s += "; limit: " + t
	}
	if t := spreadText(m); t != "" {
		s += "; " + t
	}
	return s
}

func expectedText(m *result.Measurement) string {
	return fmt.Sprintf("%s (%s)", figure(m.Expected, m.Unit), m.Source)
}

// limitWords are the kinds of limits in words.
var limitWords = map[result.LimitKind]string{result.AtLeast: "at least", result.AtMost: "at most"}

func limitText(m *result.Measurement) string {
	if m.Limit == nil {
		return ""
	}
	return fmt.Sprintf("%s %s (%s)", limitWords[m.Limit.Kind], figure(m.Limit.Value, m.Unit), m.Limit.Source)
}

func spreadText(m *result.Measurement) string {
	s := m.Spread
	if s == nil {
		return ""
	}
	of := words.Count(s.Samples, "sample")
	if s.Kind == result.Confidence {
		return fmt.Sprintf("%.4g to %.4g with 95 %% confidence, %s", s.Low, s.High, of)
	}
	return fmt.Sprintf("%.4g to %.4g in %s", s.Low, s.High, of)
}
