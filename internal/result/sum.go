package result

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Sum sums objects up: the worst verdict, and its reason.
func Sum(objects []Object) Result {
	var verdicts []Verdict
	for _, o := range objects {
		verdicts = append(verdicts, o.Verdict)
	}
	res := Result{Verdict: Worst(verdicts...), Objects: objects}
	var bad []Object
	for _, o := range objects {
		if o.Verdict == res.Verdict && res.Verdict != Pass {
			bad = append(bad, o)
		}
	}
	if len(bad) > 0 {
		res.Reason = named(bad)
	}
	return res
}

// named combines the reasons of objects into a sentence; a common reason appears once.
func named(bad []Object) string {
	first := bad[0]
	same := !slices.ContainsFunc(bad, func(o Object) bool { return o.Reason != first.Reason })
	switch {
	case len(bad) == 1:
		return objectName(first) + ": " + first.Reason
	case same && len(bad) <= 4:
		var names []string
		for _, o := range bad {
			names = append(names, objectName(o))
		}
		return strings.Join(names, ", ") + ": " + first.Reason
	case same:
		return fmt.Sprintf("%s and %d more: %s", objectName(first), len(bad)-1, first.Reason)
	}
	return fmt.Sprintf("%s: %s; and %d more", objectName(first), first.Reason, len(bad)-1)
}

// objectName names an object.
func objectName(o Object) string {
	s := o.Name
	if o.Peer != "" {
		s += " to " + o.Peer
	}
	if o.Quantity != "" {
		s += ", " + o.Quantity
	}
	return s
}

// Speaking returns the measurement that represents all objects: the one nearest its limit;
// without limits the one with the worst ratio to its expected value; without these the worst one,
// if all have the same unit.
func Speaking(check string, objects []Object) *Measurement {
	var limited, expected, plain []*Measurement
	lower := false
	for _, o := range objects {
		m := o.Measured
		if m != nil {
			lower = BetterOf(check, o.Quantity, m.Unit, m.LimitKind()) == Lower
		}
		switch {
		case m == nil:
		case m.Limit != nil:
			limited = append(limited, m)
		case m.Expected > 0:
			expected = append(expected, m)
		default:
			plain = append(plain, m)
		}
	}
	switch {
	case len(limited) > 0:
		return slices.MinFunc(limited, by(room))
	case len(expected) > 0 && lower:
		return slices.MaxFunc(expected, by(func(m *Measurement) float64 { return m.Ratio }))
	case len(expected) > 0:
		return slices.MinFunc(expected, by(func(m *Measurement) float64 { return m.Ratio }))
	case len(plain) == 0 || slices.ContainsFunc(plain, func(m *Measurement) bool { return m.Unit != plain[0].Unit }):
		return nil
	case lower:
		return slices.MaxFunc(plain, by(func(m *Measurement) float64 { return m.Value }))
	}
	return slices.MinFunc(plain, by(func(m *Measurement) float64 { return m.Value }))
}

func by(key func(*Measurement) float64) func(a, b *Measurement) int {
	return func(a, b *Measurement) int { return cmp.Compare(key(a), key(b)) }
}

// room returns the ratio of a value to its limit: 1 is at the limit, more passes.
func room(m *Measurement) float64 {
	value, limit := m.Value, m.Limit.Value
	if m.Limit.Kind == AtMost {
		value, limit = limit, value
	}
	switch {
	case limit > 0:
		return value / limit
	case value >= limit:
		return math.Inf(1)
	}
	return math.Inf(-1)
}

// Distinct numbers objects with the same name: two findings about one device.
func Distinct(objects []Object) []Object {
	type key struct{ name, peer, quantity string }
	seen := map[key]int{}
	for i := range objects {
		o := &objects[i]
		k := key{o.Name, o.Peer, o.Quantity}
		seen[k]++
		if n := seen[k]; n > 1 {
			o.Quantity = strings.TrimSpace(fmt.Sprintf("%s %d", o.Quantity, n))
		}
	}
	return objects
}

// Values describes the value that all objects have, or the range of their values.
func Values(objects []Object) string {
	var low, high *Measurement
	for _, o := range objects {
		m := o.Measured
		if m == nil {
			return reasons(objects)
		}
		if low == nil || m.Value < low.Value {
			low = m
		}
		if high == nil || m.Value > high.Value {
			high = m
		}
	}
	switch {
	case len(objects) == 1:
		return "" // the measurement contains it
	case low.Value == high.Value:
		return fmt.Sprintf("%.4g %s, all %d", low.Value, low.Unit, len(objects))
	}
	return fmt.Sprintf("%.4g to %.4g %s", low.Value, high.Value, low.Unit)
}

// reasons is Values for reasons.
func reasons(objects []Object) string {
	first := objects[0].Reason
	switch {
	case len(objects) == 1:
		return first
	case slices.ContainsFunc(objects, func(o Object) bool { return o.Reason != first }):
		return fmt.Sprintf("%s: %s; and %d more", objects[0].Name, first, len(objects)-1)
	case first == "":
		return ""
	}
	return fmt.Sprintf("%s, all %d", first, len(objects))
}
