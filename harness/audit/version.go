package audit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A constraint is alternatives, each of bounds that must all hold.
type constraint [][]bound

type bound struct {
	operator string
	version  []int
}

var boundText = regexp.MustCompile(`^(>=|<=|>|<|=)(\d+(?:\.\d+)*)$`)

// parseConstraint reads ">=2.28.0 <2.29.3 || =2.30.4".
func parseConstraint(s string) (constraint, error) {
	var c constraint
	for alternative := range strings.SplitSeq(s, "||") {
		var bounds []bound
		for _, text := range strings.Fields(alternative) {
			m := boundText.FindStringSubmatch(text)
			if m == nil {
				return nil, fmt.Errorf("%q is not an operator and a version, such as >=2.28.0", text)
			}
			bounds = append(bounds, bound{m[1], numbers(m[2])})
		}
		if len(bounds) == 0 {
			return nil, fmt.Errorf("%q has an empty alternative", s)
		}
		c = append(c, bounds)
	}
	return c, nil
}

// holds says whether a version satisfies the constraint. What is no number in it does not count: "2.28.3-1+cuda13.0" is
// 2.28.3.
func (c constraint) holds(version string) bool {
	v := numbers(version)
	if len(v) == 0 {
		return false
	}
	for _, bounds := range c {
		all := true
		for _, b := range bounds {
			d := compare(v, b.version)
			switch b.operator {
			case ">=":
				all = all && d >= 0
			case ">":
				all = all && d > 0
			case "<=":
				all = all && d <= 0
			case "<":
				all = all && d < 0
			default:
				all = all && d == 0
			}
		}
		if all {
			return true
		}
	}
	return false
}

var leading = regexp.MustCompile(`^(?:\d+:)?v?(\d+(?:\.\d+)*)`)

// numbers returns the parts of a version: of a package's, without epoch and revision.
func numbers(s string) []int {
	m := leading.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return nil
	}
	var out []int
	for part := range strings.SplitSeq(m[1], ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		out = append(out, n)
	}
	return out
}

// compare compares versions part by part; parts that are missing are 0.
func compare(a, b []int) int {
	for i := range max(len(a), len(b)) {
		x, y := 0, 0
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			if x < y {
				return -1
			}
			return 1
		}
	}
	return 0
}
