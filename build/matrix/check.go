package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// maxRows limits the product of the axes. GitHub accepts 256 jobs in one matrix; a file that asks
// for several times that is a mistake.
const maxRows = 1024

// check reports inconsistencies between the parts of a document. The form of each part is already
// valid.
func (r *reporter) check(doc *matrixDocument) {
	for i, im := range doc.Images {
		r.checkImage(item("images", i), im)
	}
	if doc.hasRows() {
		r.checkRows(doc)
	} else {
		r.checkNoRows(doc)
	}
	r.checkVariants(doc)
	r.checkSelectors(doc)
	for i, c := range doc.Constraints {
		r.checkDrop(item("constraints", i), c)
	}
	for i, l := range doc.Capabilities {
		r.checkAscending(item("capabilities", i)+".compile", l.Compile)
	}
}

// hasRows reports whether the file has rows in addition to the images written out.
func (doc *matrixDocument) hasRows() bool { return doc.Axes.At.set() || len(doc.Include) > 0 }

func (r *reporter) checkImage(field string, im image) {
	if im.Base.Image.At.set() == im.Base.Debootstrap.At.set() {
		r.report(im.Base.At, field+".base", "a base is either an image or a debootstrap", `write exactly one of "image:" and "debootstrap:"`)
	}
	r.checkBase(field+".base", im.Base, []string{"release"})
	allowed := slices.Concat([]string{"name", "release"}, im.Components.names(), im.Base.versioned())
	if im.CUDA.At.set() {
		allowed = append(allowed, "cuda")
	}
	r.checkTag(field+".tag", im.Tag, allowed)
	r.checkMoving(field+".moving", im.Moving, allowed)
	checkUnique(r, field+".platforms", im.Platforms)
	r.checkAscending(field+".compile", im.Compile)
	r.checkCUDA(field, im)
	if len(im.Compile) > 0 && !im.CUDA.At.set() {
		r.report(im.Compile[0].At, field+".compile", "an image without CUDA compiles for no GPU", `remove it, or add "cuda:"`)
	}
}

// checkCUDA reports an image that says which CUDA it has and not where that is from, or the reverse.
func (r *reporter) checkCUDA(field string, im image) {
	toolkit, has := im.Components.rule("cuda-toolkit"), im.Base.has("cuda")
	switch {
	case toolkit != nil && has != nil:
		r.report(has.At, field+".base.has.cuda", "the component cuda-toolkit installs CUDA, too", "leave one of them out")
	case im.CUDA.At.set() == (toolkit != nil || has != nil):
	case toolkit != nil:
		r.report(im.At, field+".cuda", "the key is missing, and the component cuda-toolkit needs it", `say which CUDA the distribution has, as in "cuda: 12.4.1"`)
	case has != nil:
		r.report(has.At, field+".cuda", "the key is missing, and the base has CUDA", `say which one, as in "cuda: 13.0.2"`)
	case im.Base.Image.At.set():
		r.report(im.CUDA.At, field+".cuda", "nothing says that the base has CUDA", `add "has: {cuda: /usr/local/cuda}" under base`)
	default:
		r.report(im.CUDA.At, field+".cuda", "no component brings CUDA", `add "cuda-toolkit: devel" or "cuda-toolkit: runtime" to the components`)
	}
}

func (r *reporter) checkRows(doc *matrixDocument) {
	r.requireForRows(doc)
	a := doc.Axes
	if n := len(a.Ubuntu) * len(a.CUDA) * (1 + len(doc.Variants)); n > maxRows {
		r.report(a.At, "axes", fmt.Sprintf("the axes make %d rows", n), fmt.Sprintf("shorten them to %d at most", maxRows))
	}
	checkUnique(r, "axes.ubuntu", a.Ubuntu)
	checkUnique(r, "axes.cuda", a.CUDA)
	checkUnique(r, "axes.platforms", a.Platforms)
	for i, in := range doc.Include {
		checkUnique(r, item("include", i)+".platforms", in.Platforms)
	}
	allowed := slices.Concat([]string{"cuda", "ubuntu"}, doc.Components.names(), doc.Base.versioned())
	if b := doc.Base; b.At.set() && !b.Image.At.set() {
		r.report(b.At, "base", "the rows of axes and include start from an image", `write "image:"; a base made with debootstrap belongs to one of the images`)
	}
	r.checkBase("base", doc.Base, []string{"cuda", "ubuntu"})
	if doc.Tag.At.set() {
		r.checkTag("tag", doc.Tag, allowed)
	}
	r.checkMoving("moving", doc.Moving, allowed)
}

// requireForRows reports missing top-level keys that rows need.
func (r *reporter) requireForRows(doc *matrixDocument) {
	for _, k := range []struct {
		key string
		set bool
	}{
		{"base", doc.Base.At.set()}, {"tag", doc.Tag.At.set()},
		{"capabilities", len(doc.Capabilities) > 0}, {"components", len(doc.Components) > 0},
	} {
		if !k.set {
			r.report(doc.rowsAt(), k.key, "the key is missing, and the rows of axes and include need it", fmt.Sprintf("add %q at the top level", k.key+":"))
		}
	}
	for i, in := range doc.Include {
		if !doc.Axes.At.set() && len(in.Platforms) == 0 {
			r.report(in.At, item("include", i)+".platforms", "the key is missing, and there are no axes to take platforms from", `add "platforms: [linux/amd64, linux/arm64]"`)
		}
	}
}

func (doc *matrixDocument) rowsAt() Pos {
	if doc.Axes.At.set() {
		return doc.Axes.At
	}
	return doc.Include[0].At
}

func (r *reporter) checkNoRows(doc *matrixDocument) {
	if len(doc.Images) == 0 {
		r.report(Pos{1, 1}, "", "the file has no targets", `add "images:" or "axes:"; docs/matrix.md has the format`)
	}
	lonely := func(key string, at Pos) {
		if at.set() {
			r.report(at, key, "there are no axes that it could belong to", `add "axes:", or remove it`)
		}
	}
	lonely("base", doc.Base.At)
	lonely("tag", doc.Tag.At)
	for i, m := range doc.Moving {
		lonely(item("moving", i), m.At)
	}
}

func (r *reporter) checkVariants(doc *matrixDocument) {
	names := make([]value[name], len(doc.Variants))
	for i, v := range doc.Variants {
		names[i] = v.Name
		if slices.Contains([]string{plain, strings.TrimPrefix(certifySuffix, "-")}, v.Name.Text) {
			r.report(v.Name.At, item("variants", i)+".name", fmt.Sprintf("%q has a meaning of its own", v.Name.Text), "choose another name")
		}
	}
	checkUnique(r, "variants", names)
	for i, in := range doc.Include {
		if in.Variant.At.set() {
			r.checkVariant(item("include", i)+".variant", in.Variant.Text, in.Variant.At, doc.variantNames())
		}
	}
}

func (r *reporter) checkVariant(field, variant string, at Pos, allowed []string) {
	if !slices.Contains(allowed, variant) {
		r.report(at, field, fmt.Sprintf("there is no variant %q", variant), suggest("variant", variant, allowed))
	}
}

func (doc *matrixDocument) variantNames() []string {
	var out []string
	for _, v := range doc.Variants {
		out = append(out, v.Name.Text)
	}
	return out
}

// checkSelectors checks every condition on a variant against the declared variants.
func (r *reporter) checkSelectors(doc *matrixDocument) {
	allowed := append(doc.variantNames(), plain)
	conditions := func(field string, cs []condition) {
		for _, c := range cs {
			if c.Key == "variant" {
				r.checkVariant(field+".variant", c.Text, c.At, allowed)
			}
		}
	}
	for i, x := range doc.Exclude {
		conditions(item("exclude", i)+".when", x.When)
	}
	for i, c := range doc.Constraints {
		conditions(item("constraints", i)+".when", c.When)
		conditions(item("constraints", i)+".require", c.Require)
	}
	for _, c := range doc.rules() {
		for i, ch := range c.choices {
			conditions(item(c.field, i)+".when", ch.When)
		}
	}
}

// rules returns every component rule of the file, of images and rows alike.
func (doc *matrixDocument) rules() []componentRule {
	var out []componentRule
	for _, im := range doc.Images {
		out = append(out, im.Components...)
	}
	return append(out, doc.Components...)
}

// checkDrop reports a constraint that would drop rows because of what they contain. The version
// of a component is a choice, so it can be corrected; a row cannot.
func (r *reporter) checkDrop(field string, c constraint) {
	if !c.Drop {
		return
	}
	for _, cond := range slices.Concat([]condition(c.When), []condition(c.Require)) {
		if !slices.Contains(axisKeys, cond.Key) {
			r.report(cond.At, field+".drop", fmt.Sprintf("rows cannot be dropped for their %q", cond.Key),
				fmt.Sprintf("use only %s in a constraint with drop, or remove drop", strings.Join(axisKeys, ", ")))
		}
	}
}

func (r *reporter) checkAscending(field string, l []value[capability]) {
	for i := 1; i < len(l); i++ {
		if a, b := l[i-1], l[i]; CompareVersions(a.Text, b.Text) >= 0 {
			r.report(b.At, item(field, i), fmt.Sprintf("%q comes after %q", b.Text, a.Text), "write the list ascending and each once")
		}
	}
}

// checkUnique reports values that a list contains twice.
func checkUnique[K ruled](r *reporter, field string, list []value[K]) {
	for i, v := range list {
		first := slices.IndexFunc(list, func(o value[K]) bool { return o.Text == v.Text })
		if first < i {
			r.report(v.At, item(field, i), fmt.Sprintf("%q is here twice", v.Text),
				fmt.Sprintf("the first is at %s; remove one", list[first].At))
		}
	}
}

func (c components) names() []string {
	out := make([]string, len(c))
	for i, r := range c {
		out[i] = r.name
	}
	return out
}
