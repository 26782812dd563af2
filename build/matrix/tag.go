package matrix

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// recipeSuffix ends every tag that does not move. {recipe} is replaced by the recipe's own hash,
// which this package does not know.
const recipeSuffix = "-{recipe}"

// certifySuffix is appended by publishing to the tags of the image that certifies itself when it
// is run; no tag of the matrix may collide with those.
const certifySuffix = "-certify"

var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// validTag is OCI's rule, minus the length that certifySuffix needs.
var validTag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}$`)

// fill replaces the placeholders of a template. A placeholder without a value stays, and is
// returned as missing.
func fill(template string, values map[string]string) (filled string, missing []string) {
	filled = placeholder.ReplaceAllStringFunc(template, func(p string) string {
		v, ok := values[p[1:len(p)-1]]
		if !ok {
			missing = append(missing, p)
			return p
		}
		return v
	})
	return filled, missing
}

// checkTemplate reports unknown placeholders and unmatched braces.
func (r *reporter) checkTemplate(field, template string, at Pos, allowed []string) {
	for _, m := range placeholder.FindAllStringSubmatch(template, -1) {
		if !slices.Contains(allowed, m[1]) {
			r.report(at, field, fmt.Sprintf("unknown placeholder %q in %q", m[0], template),
				fmt.Sprintf("the nearest placeholder is %q", "{"+words.Nearest(m[1], allowed)+"}"))
		}
	}
	if strings.ContainsAny(placeholder.ReplaceAllString(template, ""), "{}") {
		r.report(at, field, fmt.Sprintf("%q has a brace without its partner", template), `write placeholders as "{cuda}"`)
	}
}

// checkTag reports a tag that does not end in the recipe's hash. The hash ensures that a tag
// never refers to two images.
func (r *reporter) checkTag(field string, t value[tagTemplate], allowed []string) {
	r.checkTemplate(field, t.Text, t.At, append(slices.Clone(allowed), "recipe"))
	if strings.Count(t.Text, recipeSuffix) != 1 || !strings.HasSuffix(t.Text, recipeSuffix) {
		r.report(t.At, field, fmt.Sprintf("%q does not end in %q", t.Text, recipeSuffix),
			fmt.Sprintf("write %q; a tag without the hash belongs under moving", strings.ReplaceAll(t.Text, recipeSuffix, "")+recipeSuffix))
	}
}

func (r *reporter) checkMoving(field string, moving []value[tagTemplate], allowed []string) {
	for i, t := range moving {
		if strings.Contains(t.Text, "{recipe}") {
			r.report(t.At, item(field, i), fmt.Sprintf("%q has the recipe's hash, so it cannot move", t.Text),
				fmt.Sprintf("write %q", strings.ReplaceAll(t.Text, recipeSuffix, "")))
			continue
		}
		r.checkTemplate(item(field, i), t.Text, t.At, allowed)
	}
}

// tags fills in the tag and the moving tags of a target.
func (e *expansion) tags(r targetRow, f facts, t *Target) {
	values := map[string]string{"name": t.Name, "release": t.Release}
	for k, v := range f {
		if k != "capability" && k != "variant" && !strings.HasPrefix(v[0], "/") {
			values[k] = v[0]
		}
	}
	suffix := ""
	if t.Variant != "" {
		suffix = "-" + t.Variant
	}
	head := strings.TrimSuffix(r.tag.Text, recipeSuffix)
	t.Tag = e.tag(r.tagField, r.tag.At, t.Name, head+suffix, values) + recipeSuffix
	e.claim(r.tagField, r.tag.At, t.Name, t.Tag)
	for i, m := range r.moving {
		field := item(r.movingField, i)
		tag := e.tag(field, m.At, t.Name, m.Text+suffix, values)
		e.claim(field, m.At, t.Name, tag)
		e.claim(field, m.At, t.Name, tag+certifySuffix)
		t.Moving = append(t.Moving, tag)
	}
}

// tag fills in one template and reports a result that is not a valid tag.
func (e *expansion) tag(field string, at Pos, target, template string, values map[string]string) string {
	tag, missing := fill(template, values)
	switch {
	case len(missing) > 0:
		e.once(at, field, fmt.Sprintf("%s has no value in %s, whose components leave it out", missing[0], target),
			"take the placeholder out, or give the component a version there")
	case !validTag.MatchString(strings.Replace(tag, "{recipe}", "0123456", 1)):
		e.once(at, field, fmt.Sprintf("%q, the tag of %s, is not one that registries take", tag, target),
			`use placeholders whose values have only letters, digits, "_", ".", "-", and at most 120 of them`)
	}
	return tag
}

// claim reports a tag that is already taken by another target, or by the same one.
func (e *expansion) claim(field string, at Pos, target, tag string) {
	owner, taken := e.owners[tag]
	if !taken {
		e.owners[tag] = target
		return
	}
	e.once(at, field, fmt.Sprintf("the tag %q of %s is also that of %s", tag, target, owner),
		"put a placeholder into the template that tells them apart, as in {cuda}, {ubuntu} or {nccl}")
}
