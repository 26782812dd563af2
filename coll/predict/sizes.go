package predict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ParseSizes parses a list, "1M,2G", or a range of doublings, "1M:2G".
func ParseSizes(s string) ([]int64, error) {
	if from, to, ok := strings.Cut(s, ":"); ok {
		a, err := parseSize(from)
		if err != nil {
			return nil, err
		}
		b, err := parseSize(to)
		if err != nil {
			return nil, err
		}
		if a > b {
			return nil, fmt.Errorf("%s: the first is larger than the last", s)
		}
		var out []int64
		for ; a <= b; a *= 2 {
			out = append(out, a)
		}
		return out, nil
	}
	var out []int64
	for part := range strings.SplitSeq(s, ",") {
		n, err := parseSize(part)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// maxSize is far beyond any buffer, and can be doubled without overflow.
const maxSize = 1 << 50

func parseSize(s string) (int64, error) {
	digits, shift := s, 0
	if n := len(s); n > 0 {
		if i := strings.IndexByte("KMGT", s[n-1]&^0x20); i >= 0 {
			digits, shift = s[:n-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > maxSize>>shift {
		return 0, fmt.Errorf("%q is not a size of 1 byte or more such as 65536, 64K, 1M or 8G", s)
	}
	return n << shift, nil
}
