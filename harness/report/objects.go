package report

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/harness/result"
)

// A bunch is those objects of a check of which the same is to be said.
type bunch struct {
	Verdict result.Verdict
	Objects []result.Object
}

// bunches gathers a check's objects, the worst first. Objects come together
// that have one verdict, one limit, and one reason; those whose reasons differ
// in their figures alone come together too, where the figure was measured.
func bunches(objects []result.Object) (out []bunch) {
	for _, v := range result.Verdicts() {
		first := map[string]int{}
		for _, o := range objects {
			if o.Verdict != v {
				continue
			}
			key := alike(o)
			i, ok := first[key]
			if !ok {
				i = len(out)
				first[key] = i
				out = append(out, bunch{Verdict: v})
			}
			out[i].Objects = append(out[i].Objects, o)
		}
	}
	return out
}

var digits = regexp.MustCompile(`[0-9]+([.][0-9]+)?`)

// alike is equal for objects of which the same is to be said.
func alike(o result.Object) string {
	m := o.Measured
	if m == nil {
		return fmt.Sprintf("%q %q", o.Quantity, o.Reason)
	}
	return fmt.Sprintf("%q %q %q %v %q %q", o.Quantity, digits.ReplaceAllString(o.Reason, "0"), m.Unit, m.Expected, m.Source, limitText(m))
}

// said is what is to be said of a bunch.
func (b bunch) said() string {
	o := b.Objects[0]
	var parts []string
	if m := o.Measured; m == nil {
		parts = append(parts, o.Reason)
	} else {
		low, high := m.Value, m.Value
		same := true
		for _, other := range b.Objects {
			low, high = min(low, other.Measured.Value), max(high, other.Measured.Value)
			same = same && other.Reason == o.Reason
		}
		value := span(low, high, m.Unit)
		if same && o.Reason != "" {
			parts = append(parts, o.Reason)
		}
		if !same || !strings.Contains(o.Reason, value) {
			parts = append(parts, value)
		}
		if limit := limitText(m); limit != "" {
			parts = append(parts, "limit: "+limit)
		}
		if m.Expected != 0 {
			parts = append(parts, "expected: "+expectedText(m))
		}
	}
	text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
	return join(o.Quantity, text)
}

// most names that one line has.
const mostNames = 90

// names says which objects a bunch has: "GPU 0-3, 7".
func (b bunch) names() string {
	var from, to []string
	by := map[string][]string{}
	for _, o := range b.Objects {
		if by[o.Name] == nil {
			from = append(from, o.Name)
		}
		by[o.Name] = append(by[o.Name], o.Peer)
		if o.Peer != "" && !slices.Contains(to, o.Peer) {
			to = append(to, o.Peer)
		}
	}
	if o := b.Objects[0]; len(b.Objects) == 1 && o.Bus != "" && o.Bus != o.Name {
		return fmt.Sprintf("%s (%s)", o.Name, o.Bus)
	}
	if len(to) == 0 {
		return some(condense(from), len(b.Objects), "in all")
	}
	if n := len(from); n > 2 && len(b.Objects) == n*(n-1) && len(to) == n && subset(to, from) {
		return fmt.Sprintf("all %d pairs of %s", len(b.Objects), condense(from))
	}
	var pairs []string
	for _, name := range from {
		pairs = append(pairs, name+" → "+condense(by[name]))
	}
	return some(strings.Join(pairs, "; "), len(b.Objects), "pairs")
}

// some cuts a list that is too long, and says then of how many it was.
func some(list string, n int, what string) string {
	short := shorten(list, mostNames)
	if short != list {
		short += fmt.Sprintf(" (%d %s)", n, what)
	}
	return short
}

func subset(a, of []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(of, s) })
}

// condense writes names that differ in their last number as one:
// "GPU 0-3, 7, mlx5_0".
func condense(names []string) string {
	var out []string
	before, first, last := "", 0, 0
	open := false
	flush := func() {
		if open && last > first {
			out[len(out)-1] += fmt.Sprintf("-%d", last)
		}
		open = false
	}
	for _, name := range names {
		prefix := strings.TrimRight(name, "0123456789")
		n, err := strconv.Atoi(name[len(prefix):])
		if err != nil || strconv.Itoa(n) != name[len(prefix):] {
			flush()
			out = append(out, name)
			before = ""
			continue
		}
		switch {
		case open && prefix == before && n == last+1:
			last = n
			continue
		case prefix == before && prefix != "" && len(out) > 0:
			flush()
			out = append(out, strconv.Itoa(n))
		default:
			flush()
			out = append(out, name)
		}
		before, first, last, open = prefix, n, n, true
	}
	flush()
	return strings.Join(out, ", ")
}

// tally counts objects by verdict in words: "8 GPUs: 7 passed, 1 failed".
func tally(objects []result.Object) string {
	var parts []string
	for _, v := range result.Verdicts() {
		n := 0
		for _, o := range objects {
			if o.Verdict == v {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, outcomes[v]))
		}
	}
	return fmt.Sprintf("%d %s: %s", len(objects), kindOf(objects), strings.Join(parts, ", "))
}

// valuesOf says from which to which value objects were measured, and the limit that
// they have in common; nothing, if not all are of one quantity.
func valuesOf(objects []result.Object) (values, limit string) {
	var low, high float64
	unit, quantity := "", ""
	limits := map[string]bool{}
	for _, o := range objects {
		m := o.Measured
		switch {
		case m == nil:
			continue
		case unit == "":
			low, high, unit, quantity = m.Value, m.Value, m.Unit, o.Quantity
		case m.Unit != unit || o.Quantity != quantity:
			return "", ""
		}
		low, high = min(low, m.Value), max(high, m.Value)
		limit = limitText(m)
		limits[limit] = true
	}
	if len(limits) > 1 {
		limit = ""
	}
	if unit == "" {
		return "", ""
	}
	return span(low, high, unit), limit
}

// kindOf says what objects are, where their names tell.
func kindOf(objects []result.Object) string {
	if slices.ContainsFunc(objects, func(o result.Object) bool { return o.Peer != "" }) {
		return plural(len(objects), "pair")
	}
	if slices.ContainsFunc(objects, func(o result.Object) bool { return !strings.HasPrefix(o.Name, "GPU ") }) {
		return plural(len(objects), "object")
	}
	return plural(len(objects), "GPU")
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}
