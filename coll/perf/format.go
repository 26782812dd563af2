package perf

import (
	"math"
	"strconv"
	"strings"
)

// fit formats a number right-aligned in a width: with two decimals if they fit, else with one,
// else with none, else as a power of ten.
func fit(v float64, width int) string {
	if s, ok := special(v); ok {
		return pad(s, width)
	}
	for _, decimals := range []int{2, 1, 0} {
		if s := strconv.FormatFloat(v, 'f', decimals, 64); len(s) <= width {
			return pad(s, width)
		}
	}
	return pad(strconv.FormatFloat(v, 'e', width-6, 64), width)
}

// special returns C's name of a NaN or an infinity.
func special(v float64) (string, bool) {
	switch {
	case math.IsNaN(v):
		return "nan", true
	case math.IsInf(v, 1):
		return "inf", true
	case math.IsInf(v, -1):
		return "-inf", true
	}
	return "", false
}

func pad(s string, width int) string {
	return strings.Repeat(" ", max(0, width-len(s))) + s
}

// general formats like C's %g: six significant digits, no trailing zeros.
func general(v float64) string {
	if s, ok := special(v); ok {
		return s
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
