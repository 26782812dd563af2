package perf

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// What C's strtod and strtol accept at the beginning of a text.
var (
	cNumber  = regexp.MustCompile(`(?s)^[ \t\n\v\f\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(.?)`)
	cInteger = regexp.MustCompile(`^[ \t\n\v\f\r]*([+-]?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*))`)
)

// units are the units of sizes, powers of 1024.
var units = map[string]float64{"": 1, "K": 1 << 10, "k": 1 << 10, "M": 1 << 20, "m": 1 << 20, "G": 1 << 30, "g": 1 << 30}

// ParseSize reads a size in bytes: a decimal number, which may have a fraction
// and an exponent, and at most one of G, M, K in either case, powers of 1024.
// As in nccl-tests only the first letter after the number counts ("128MB" is
// 128M), and fractions of a byte are cut off.
func ParseSize(s string) (int64, error) {
	m := cNumber.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("size %q is not a number", s)
	}
	unit, ok := units[m[2]]
	if !ok {
		return 0, fmt.Errorf("size %q: the unit is G, M or K", s)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if v *= unit; err != nil || v < 0 || v >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q is out of range", s)
	}
	return int64(v), nil
}

// parseInt reads an integer as C's strtol with base 0 does, cut to 32 bits: 0x is hexadecimal, a
// leading 0 octal, text after the digits is ignored, and a text without digits is 0.
func parseInt(s string) int {
	m := cInteger.FindStringSubmatch(s)
	if m == nil {
		return 0
	}
	v, _ := strconv.ParseInt(m[1], 0, 64) // an out-of-range value becomes the nearest limit
	return int(int32(v))
}
