package matrix

import (
	"cmp"
	"strconv"
	"strings"
)

// CUDAMajor returns "12" for CUDA 12.9.1, "" for an image without CUDA.
func (t Target) CUDAMajor() string {
	major, _, _ := strings.Cut(t.CUDA, ".")
	return major
}

// numbers returns the leading numeric fields of a version, without a Debian
// epoch: [2 27 6 1] for "2.27.6-1", [4 6 0 1] for "1:4.6.0-1", none for
// "distro" or a commit.
func numbers(version string) []int {
	if _, rest, ok := strings.Cut(version, ":"); ok {
		version = rest
	}
	var out []int
	for _, field := range strings.FieldsFunc(version, func(r rune) bool { return strings.ContainsRune(".-_+~", r) }) {
		n, err := strconv.Atoi(field)
		if err != nil {
			break
		}
		out = append(out, n)
	}
	return out
}

// CompareVersions orders versions by their numbers, then as text, so that the
// order is total: negative if a is older than b.
func CompareVersions(a, b string) int {
	x, y := numbers(a), numbers(b)
	return cmp.Or(compareNumbers(x, y, max(len(x), len(y))), strings.Compare(a, b))
}

// compareNumbers compares the first n fields; a missing field is 0.
func compareNumbers(a, b []int, n int) int {
	at := func(v []int, i int) int {
		if i < len(v) {
			return v[i]
		}
		return 0
	}
	for i := range n {
		if c := cmp.Compare(at(a, i), at(b, i)); c != 0 {
			return c
		}
	}
	return 0
}
