package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// removed reports whether the file itself removes a row of the product: by an exclude, or by a
// constraint with drop.
func (e *expansion) removed(f facts) bool {
	out := false
	for _, x := range e.doc.Exclude {
		if applies(x.When, f) {
			e.used[x.At] = true
			out = true
		}
	}
	return out || slices.ContainsFunc(e.doc.Constraints, func(c constraint) bool { return c.Drop && c.brokenBy(f) })
}

func (c constraint) brokenBy(f facts) bool {
	return applies(c.When, f) && slices.ContainsFunc(c.Require, func(cond condition) bool {
		_, is := cond.broken(f)
		return is
	})
}

// A violation is one value in the file that breaks one condition of one constraint, with all
// targets in which it does so.
type violation struct {
	constraint constraint
	condition  condition
	value      string
	at         Pos
	field      string
	targets    []string
	explicit   bool // one of the targets was requested by name
}

// hold checks a target's facts against every constraint.
func (e *expansion) hold(r targetRow, f facts, l []value[capability]) {
	for _, c := range e.doc.Constraints {
		if !applies(c.When, f) {
			continue
		}
		for _, cond := range c.Require {
			if v, is := cond.broken(f); is {
				at, field := e.place(r, cond.Key, v, l)
				e.violate(violation{constraint: c, condition: cond, value: v, at: at, field: field, explicit: r.explicit}, r.name)
			}
		}
	}
}

// violate adds a violation, or adds the target to an existing one.
func (e *expansion) violate(v violation, target string) {
	i := slices.IndexFunc(e.violations, func(o *violation) bool { return o.condition.At == v.condition.At && o.at == v.at })
	if i < 0 {
		e.violations = append(e.violations, &v)
		i = len(e.violations) - 1
	}
	e.violations[i].targets = append(e.violations[i].targets, target)
}

// place returns where in the file the value of a row's fact is set.
func (e *expansion) place(r targetRow, key, fact string, l []value[capability]) (Pos, string) {
	switch key {
	case "cuda":
		return r.cudaAt, r.cudaField
	case "base":
		return r.written.At, r.baseField
	case "build":
		return r.written.Build.At, r.baseField + ".build"
	case "components":
		return r.components[0].choices[0].At, r.componentsField
	case "variant":
		if r.variant == "" {
			return r.at, r.field
		}
		return r.variantAt, r.variantField
	case "ubuntu":
		return r.releaseAt, r.releaseField
	case "capability":
		i := slices.IndexFunc(l, func(c value[capability]) bool { return c.Text == fact })
		if len(r.compile) > 0 {
			return l[i].At, r.field + ".compile"
		}
		return l[i].At, "capabilities"
	}
	rule := r.components.rule(key)
	if h := r.written.has(key); rule == nil && h != nil {
		return h.At, r.baseField + ".has." + key
	}
	if rule == nil { // the condition is that it is there
		return e.place(r, "components", fact, l)
	}
	ch := rule.choose(r.facts())
	if ch.Version.At.set() {
		return ch.Version.At, rule.field
	}
	return ch.At, rule.field
}

func (v *violation) report(e *expansion) {
	targets := v.targets[0]
	if n := len(v.targets); n > 1 {
		targets += fmt.Sprintf(" and %d more", n-1)
	}
	value := fmt.Sprintf("%s %q", v.condition.Key, v.value)
	if v.value == "" {
		value = v.condition.Key + " is missing, which"
	}
	e.reporter.report(v.at, v.field,
		fmt.Sprintf("%s is impossible in %s: %s (line %d wants %s %q)", value, targets,
			strings.TrimSuffix(v.constraint.Because.Text, "."), v.condition.At.Line, v.condition.Key, v.condition.Text),
		v.remedy(e))
}

// remedy names the nearest value that the constraint allows.
func (v *violation) remedy(e *expansion) string {
	key := v.condition.Key
	if key == "capability" {
		return "take it out of this list, or change for which CUDA the list is"
	}
	out := fmt.Sprintf("choose a %s version that is %q", key, v.condition.Text)
	if n := v.nearest(e); n != "" {
		out = fmt.Sprintf("the nearest possible %s here is %q", key, n)
	}
	if slices.Contains(axisKeys, key) && !v.explicit {
		out += `; or exclude the combination, or let the constraint "drop: true" it`
	}
	return out
}

func (v *violation) nearest(e *expansion) string {
	var candidates []string
	if rule := e.doc.Components.rule(v.condition.Key); rule != nil {
		candidates = rule.versions()
	} else {
		candidates = e.values(v.condition.Key)
	}
	candidates = slices.DeleteFunc(candidates, func(c string) bool { return !v.condition.holds(c) })
	return nearestVersion(v.value, candidates)
}
