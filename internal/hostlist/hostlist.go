// Package hostlist reads and writes lists of hosts as Slurm, Flux and Open MPI do: "node[01-08,12]".
package hostlist

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Most is the largest number of hosts in an expanded list.
const Most = 1 << 16

// Expand expands host lists as launchers write them: names separated by commas, in
// which "[1-3,07]" stands for each of the numbers, with leading zeros preserved; a name
// may contain several brackets. OpenMPI's brackets begin with the number of digits:
// "[3:1-20]".
func Expand(s string, digits bool) ([]string, error) {
	var out []string
	for _, word := range splitOutside(s) {
		if word == "" {
			continue
		}
		names, err := expandWord(word, digits, Most-len(out))
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
		return nil, fmt.Errorf("more than %d hosts", Most)
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
			return nil, fmt.Errorf("more than %d hosts", Most)
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

// Compress writes hosts as a list that [Expand] expands: names that differ in their last number
// alone share brackets. Hosts keep the order in which their first one comes; numbers are sorted.
// Names that have brackets or commas themselves are written as they are.
func Compress(hosts []string) string {
	type key struct {
		before, after string
		width         int // of numbers with leading zeros; else 0
	}
	var order []key
	numbers := map[key][]int{}
	for _, h := range hosts {
		k, n := key{before: h}, -1
		end := strings.LastIndexAny(h, "0123456789") + 1
		if end > 0 && !strings.ContainsAny(h, "[],") {
			start := len(strings.TrimRight(h[:end], "0123456789"))
			if v, err := strconv.Atoi(h[start:end]); err == nil && end-start <= 9 {
				k, n = key{before: h[:start], after: h[end:]}, v
				if h[start] == '0' && end-start > 1 {
					k.width = end - start
				}
			}
		}
		if _, ok := numbers[k]; !ok {
			order = append(order, k)
		}
		numbers[k] = append(numbers[k], n)
	}
	// Numbers without leading zeros belong to a list with them if they have its width: 099, 100.
	for _, k := range order {
		if k.width == 0 {
			continue
		}
		wide := key{before: k.before, after: k.after}
		numbers[wide] = slices.DeleteFunc(numbers[wide], func(n int) bool {
			fits := n >= 0 && len(strconv.Itoa(n)) == k.width
			if fits {
				numbers[k] = append(numbers[k], n)
			}
			return fits
		})
	}
	var out []string
	for _, k := range order {
		if len(numbers[k]) > 0 {
			out = append(out, k.before+ranges(numbers[k], k.width)+k.after)
		}
	}
	return strings.Join(out, ",")
}

// ranges writes numbers as "[1-3,7]", or a single one without brackets; -1 is none.
func ranges(numbers []int, width int) string {
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	if numbers[0] < 0 {
		return ""
	}
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := fmt.Sprintf("%0*d", width, numbers[i])
		if j > i {
			part += fmt.Sprintf("-%0*d", width, numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	if len(numbers) == 1 {
		return parts[0]
	}
	return "[" + strings.Join(parts, ",") + "]"
}
