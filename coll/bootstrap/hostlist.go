package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
)

// maxHostlist is the maximum number of hosts in an expanded list.
const maxHostlist = 1 << 16

// expandHosts expands host lists as launchers write them: names separated by commas, in
// which "[1-3,07]" stands for each of the numbers, with leading zeros preserved; a name
// may contain several brackets. OpenMPI's brackets begin with the number of digits:
// "[3:1-20]".
func expandHosts(s string, digits bool) ([]string, error) {
	var out []string
	for _, word := range splitOutside(s) {
		if word == "" {
			continue
		}
		names, err := expandWord(word, digits, maxHostlist-len(out))
		if err != nil {
			return nil, fmt.Errorf("host list %q: %w", s, err)
		}
		out = append(out, names...)
	}
	return out, nil
}

// splitOutside splits at commas that are not within brackets.
func splitOutside(s string) []string {
	var out []string
	depth, start := 0, 0
	for i, c := range s {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth <= 0:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

func expandWord(word string, digits bool, limit int) ([]string, error) {
	before, rest, ok := strings.Cut(word, "[")
	if strings.Contains(before, "]") {
		return nil, fmt.Errorf("a ] without [ in %q", word)
	}
	if !ok {
		return []string{word}, nil
	}
	inside, after, ok := strings.Cut(rest, "]")
	if !ok || strings.Contains(inside, "[") {
		return nil, fmt.Errorf("a [ without ] in %q", word)
	}
	numbers, err := expandRanges(inside, digits, limit)
	if err != nil {
		return nil, err
	}
	tails, err := expandWord(after, digits, limit)
	if err != nil {
		return nil, err
	}
	if len(numbers)*len(tails) > limit {
		return nil, fmt.Errorf("more than %d hosts", maxHostlist)
	}
	var out []string
	for _, n := range numbers {
		for _, t := range tails {
			out = append(out, before+n+t)
		}
	}
	return out, nil
}

func expandRanges(s string, digits bool, limit int) ([]string, error) {
	width := 0
	if digits {
		w, rest, ok := strings.Cut(s, ":")
		n, err := strconv.Atoi(w)
		if !ok || err != nil || n < 0 || n > 20 {
			return nil, fmt.Errorf("%q does not begin with a number of digits", s)
		}
		width, s = n, rest
	}
	var out []string
	for r := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.ParseUint(first, 10, 32)
		b, err2 := strconv.ParseUint(last, 10, 32)
		if err1 != nil || err2 != nil || b < a {
			return nil, fmt.Errorf("%q is not a range of numbers", r)
		}
		if b-a >= uint64(limit) || len(out)+int(b-a) >= limit {
			return nil, fmt.Errorf("more than %d hosts", maxHostlist)
		}
		pad := width
		if !digits {
			pad = len(first)
		}
		for n := a; n <= b; n++ {
			out = append(out, fmt.Sprintf("%0*d", min(pad, 20), n))
		}
	}
	return out, nil
}
