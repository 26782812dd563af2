package perf

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize reads a size in bytes: a decimal number, which may have a fraction
// and an exponent, and at most one of G, M, K in either case, powers of 1024.
// As in nccl-tests only the first letter after the number counts ("128MB" is
// 128M), and fractions of a byte are cut off.
func ParseSize(s string) (int64, error) {
	num, rest := splitNumber(strings.TrimLeft(s, " \t\n\v\f\r"))
	v, err := strconv.ParseFloat(num, 64)
	if err != nil {
		return 0, fmt.Errorf("size %q is no number", s)
	}
	if rest != "" {
		switch rest[0] {
		case 'G', 'g':
			v *= 1 << 30
		case 'M', 'm':
			v *= 1 << 20
		case 'K', 'k':
			v *= 1 << 10
		default:
			return 0, fmt.Errorf("size %q: the unit is G, M or K", s)
		}
	}
	if v < 0 || v >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q is out of range", s)
	}
	return int64(v), nil
}

// splitNumber cuts s after the longest decimal number that it begins with.
func splitNumber(s string) (num, rest string) {
	i := 0
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	i = digits(s, i)
	if i < len(s) && s[i] == '.' {
		i = digits(s, i+1)
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		if k := digits(s, j); k > j {
			i = k
		}
	}
	return s[:i], s[i:]
}

// digits returns the index of the first byte from i on that is no digit.
func digits(s string, i int) int {
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return i
}

// parseInt reads an integer as C's strtol with base 0 does, cut to 32 bits:
// 0x is hexadecimal, a leading 0 octal, what follows the digits is ignored,
// and no digits at all are 0.
func parseInt(s string) int {
	s = strings.TrimLeft(s, " \t\n\v\f\r")
	sign := int64(1)
	if s != "" && (s[0] == '+' || s[0] == '-') {
		if s[0] == '-' {
			sign = -1
		}
		s = s[1:]
	}
	base := int64(10)
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') && digit(s[2]) < 16 {
		base, s = 16, s[2:]
	} else if s != "" && s[0] == '0' {
		base = 8
	}
	var v int64
	for i := 0; i < len(s) && digit(s[i]) < base; i++ {
		d := digit(s[i])
		if v > (math.MaxInt64-d)/base {
			v = math.MaxInt64
			break
		}
		v = v*base + d
	}
	return int(int32(sign * v))
}

// digit is the value of a digit in any base to 36; what is none is larger.
func digit(c byte) int64 {
	switch {
	case '0' <= c && c <= '9':
		return int64(c - '0')
	case 'a' <= c && c <= 'z':
		return int64(c-'a') + 10
	case 'A' <= c && c <= 'Z':
		return int64(c-'A') + 10
	}
	return math.MaxInt64
}
