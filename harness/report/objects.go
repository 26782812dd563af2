package report

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// A bunch is a group of a check's objects that have the same message.
type bunch struct {
	Verdict result.Verdict
	Objects []result.Object
}

// bunches groups a check's objects, the worst first. Objects of one bunch have the same verdict and
// reason, and nearly the same limit and expected value. Reasons of measured objects may differ in
// their figures.
func bunches(objects []result.Object) (out []bunch) {
	for _, v := range result.Verdicts() {
		found := map[string][]int{} // indexes of bunches by key
		for _, o := range objects {
			if o.Verdict != v {
				continue
			}
			key := alike(o)
			i := slices.IndexFunc(found[key], func(i int) bool { return sameReference(out[i].Objects[0].Measured, o.Measured) })
			if i < 0 {
				found[key] = append(found[key], len(out))
				out = append(out, bunch{v, []result.Object{o}})
				continue
			}
			b := &out[found[key][i]]
			b.Objects = append(b.Objects, o)
		}
	}
	return out
}

var digits = regexp.MustCompile(`[0-9]+([.][0-9]+)?`)

// alike returns a key that is equal for objects that one line can describe, if near agrees.
func alike(o result.Object) string {
	m := o.Measured
	if m == nil {
		return fmt.Sprintf("%q %q", o.Quantity, o.Reason)
	}
	limit := ""
	if m.Limit != nil {
		limit = string(m.Limit.Kind) + m.Limit.Source
	}
	return fmt.Sprintf("%q %q %q %q %q", o.Quantity, digits.ReplaceAllString(o.Reason, "0"), m.Unit, m.Source, limit)
}

// sameReference reports whether the limits and expected values of two measurements differ by at most 5 %, as
// they do where each GPU has its own reference.
func sameReference(a, b *result.Measurement) bool {
	if a == nil || a == b {
		return true
	}
	within := func(x, y float64) bool { return math.Abs(x-y) <= 0.05*max(math.Abs(x), math.Abs(y)) }
	return within(a.Expected, b.Expected) && (a.Limit == nil || within(a.Limit.Value, b.Limit.Value))
}

// outcome returns the message of a bunch.
func (b bunch) outcome() string {
	o := b.Objects[0]
	var parts []string
	if m := o.Measured; m == nil {
		parts = append(parts, o.Reason)
	} else {
		of := func(value func(m *result.Measurement) float64) string {
			low, high := value(m), value(m)
			for _, other := range b.Objects {
				low, high = min(low, value(other.Measured)), max(high, value(other.Measured))
			}
			return span(low, high, m.Unit)
		}
		same := !slices.ContainsFunc(b.Objects, func(other result.Object) bool { return other.Reason != o.Reason })
		value := of(func(m *result.Measurement) float64 { return m.Value })
		if same && o.Reason != "" {
			parts = append(parts, o.Reason)
		}
		if !same || !strings.Contains(o.Reason, value) {
			parts = append(parts, value)
		}
		if l := m.Limit; l != nil {
			parts = append(parts, fmt.Sprintf("limit: %s %s (%s)", limitWords[l.Kind], of(func(m *result.Measurement) float64 { return m.Limit.Value }), l.Source))
		}
		if m.Expected != 0 {
			parts = append(parts, fmt.Sprintf("expected: %s (%s)", of(func(m *result.Measurement) float64 { return m.Expected }), m.Source))
		}
	}
	text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
	return join(o.Quantity, text)
}

// mostNames is the largest length of the names in one line.
const mostNames = 90

// names lists the objects of a bunch: "GPU 0-3, 7".
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

// some shortens a list that is too long, and appends the total number.
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

// condense merges names that differ only in their last number: "GPU 0-3, 7, mlx5_0".
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

// valuesOf returns the range of the objects' values, and their limit if it is the same for all. It
// returns nothing if the objects have different quantities.
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

// kindOf returns what the objects are, as far as their names show.
func kindOf(objects []result.Object) string {
	if slices.ContainsFunc(objects, func(o result.Object) bool { return o.Peer != "" }) {
		return words.Form(len(objects), "pair")
	}
	if slices.ContainsFunc(objects, func(o result.Object) bool { return !strings.HasPrefix(o.Name, "GPU ") }) {
		return words.Form(len(objects), "object")
	}
	return words.Form(len(objects), "GPU")
}
