package matrix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/words"
)

// A targetRow is one target before its components' versions are known.
type targetRow struct {
	name     string
	explicit bool // written out, not a product of the axes
	distro   string
	release  string
	cuda     string
	variant  string
	base     Base

	platforms   []value[platform]
	compile     []value[capability] // its own, instead of the list for its CUDA
	components  components
	tag         value[tagTemplate]
	moving      []value[tagTemplate]
	tagField    string
	movingField string

	at, releaseAt, variantAt          Pos // of the row's origin, of its Ubuntu, of its variant
	field, releaseField, variantField string

	cudaAt                                Pos
	cudaField, baseField, componentsField string
	written                               *base // base as written
}

func (r targetRow) facts() facts {
	f := facts{"variant": {plain}}
	if r.variant != "" {
		f["variant"] = []string{r.variant}
	}
	if r.cuda != "" {
		f["cuda"] = []string{r.cuda}
	}
	if r.distro == "ubuntu" && r.base.Debootstrap == nil { // what conditions say of an Ubuntu is of what NVIDIA has for it
		f["ubuntu"] = []string{r.release}
	}
	r.base.addFacts(f)
	return f
}

// Targets expands the file, in its order: the images written out one by one, then the product of
// the axes (for each Ubuntu every CUDA, its variants right after the plain row), then the
// included rows. The error is an [Errors].
func (f *File) Targets() ([]Target, error) {
	e := newExpansion(f)
	for _, r := range e.rows {
		e.add(r)
	}
	e.finish()
	if e.failed() {
		return nil, e.err()
	}
	return e.targets, f.Refuse(f.refused(e.targets))
}

// An expansion turns a document's rows into targets and records which parts of the document had
// an effect.
type expansion struct {
	reporter
	matrix *File
	doc    *matrixDocument

	rows       []targetRow // all rows of the file, in its order, before any is removed
	targets    []Target
	names      map[string]Pos    // of targets
	owners     map[string]string // maps a tag to its target
	used       map[Pos]bool      // choices, excludes and capability lists, by their At
	variants   map[string]bool   // those that some row uses
	told       map[Pos]bool      // where once has already reported
	violations []*violation
}

func newExpansion(f *File) *expansion {
	e := &expansion{
		reporter: reporter{file: f.Name}, matrix: f, doc: &f.doc,
		names: map[string]Pos{}, owners: map[string]string{},
		used: map[Pos]bool{}, variants: map[string]bool{}, told: map[Pos]bool{},
	}
	e.rows = f.doc.rows()
	return e
}

// once reports only the first problem at a position: a template that is wrong for one target is
// usually wrong for all.
func (e *expansion) once(at Pos, field, msg, remedy string) {
	if !e.told[at] {
		e.told[at] = true
		e.report(at, field, msg, remedy)
	}
}

func (doc *matrixDocument) rows() []targetRow {
	var out []targetRow
	for i, im := range doc.Images {
		out = append(out, imageRow(item("images", i), im))
	}
	out = append(out, doc.product()...)
	for i, in := range doc.Include {
		out = append(out, doc.includeRow(item("include", i), in))
	}
	return out
}

func imageRow(field string, im image) targetRow {
	base := im.Base.filled(map[string]string{"release": im.Release.Text})
	base.Own = base.Debootstrap == nil
	return targetRow{
		name: im.Name.Text, explicit: true, distro: im.Distro.Text, release: im.Release.Text, base: base,
		cuda: im.CUDA.Text, compile: im.Compile,
		platforms: im.Platforms, components: im.Components,
		tag: im.Tag, moving: im.Moving, tagField: field + ".tag", movingField: field + ".moving",
		at: im.Name.At, field: field, releaseAt: im.Release.At, releaseField: field + ".release",
		cudaAt: im.CUDA.At, cudaField: field + ".cuda", written: &im.Base, baseField: field + ".base", componentsField: field + ".components",
	}
}

// product returns every combination of Ubuntu and CUDA, each followed by its variants.
func (doc *matrixDocument) product() []targetRow {
	a := doc.Axes
	var out []targetRow
	for i, u := range a.Ubuntu {
		for j, c := range a.CUDA {
			r := doc.cudaRow(u.Text, c.Text, "", a.Platforms)
			r.at, r.field, r.releaseAt, r.releaseField = c.At, item("axes.cuda", j), u.At, item("axes.ubuntu", i)
			r.cudaAt, r.cudaField = r.at, r.field
			out = append(out, r)
			for k, v := range doc.Variants {
				if applies(v.When, r.facts()) {
					w := r
					w.variant, w.name = v.Name.Text, rowName(u.Text, c.Text, v.Name.Text)
					w.variantAt, w.variantField = v.Name.At, item("variants", k)
					out = append(out, w)
				}
			}
		}
	}
	return out
}

func (doc *matrixDocument) includeRow(field string, in include) targetRow {
	platforms := in.Platforms
	if len(platforms) == 0 {
		platforms = doc.Axes.Platforms
	}
	r := doc.cudaRow(in.Ubuntu.Text, in.CUDA.Text, in.Variant.Text, platforms)
	r.explicit = true
	r.at, r.field, r.releaseAt, r.releaseField = in.At, field, in.Ubuntu.At, field+".ubuntu"
	r.variantAt, r.variantField = in.Variant.At, field+".variant"
	r.cudaAt, r.cudaField = in.CUDA.At, field+".cuda"
	return r
}

func (doc *matrixDocument) cudaRow(ubuntu, cuda, variant string, platforms []value[platform]) targetRow {
	return targetRow{
		name: rowName(ubuntu, cuda, variant), distro: "ubuntu", release: ubuntu, cuda: cuda, variant: variant,
		base: doc.Base.filled(map[string]string{"cuda": cuda, "ubuntu": ubuntu}), platforms: platforms, components: doc.Components,
		tag: doc.Tag, moving: doc.Moving, tagField: "tag", movingField: "moving",
		written: &doc.Base, baseField: "base", componentsField: "components",
	}
}

func rowName(ubuntu, cuda, variant string) string {
	name := "cuda" + cuda + "-ubuntu" + ubuntu
	if variant != "" {
		name += "-" + variant
	}
	return name
}

// add turns a row into a target unless the file removes it.
func (e *expansion) add(r targetRow) {
	f := r.facts()
	if !r.explicit && e.removed(f) {
		return
	}
	if first, taken := e.names[r.name]; taken {
		e.report(r.at, r.field, fmt.Sprintf("the target %q is here twice", r.name), fmt.Sprintf("line %d asks for it already; remove one", first.Line))
		e.decide(r, f) // so that its components are not also reported as unused
		return
	}
	e.names[r.name], e.variants[r.variant] = r.at, true
	t := Target{Name: r.name, Distro: r.distro, Release: r.release, CUDA: r.cuda, Variant: r.variant, Base: r.base}
	t.Platforms = platformsOf(r.platforms)
	capabilities := e.capabilities(r, f)
	t.Capabilities = f["capability"]
	var ok bool
	if t.Components, ok = e.decide(r, f); !ok {
		return
	}
	e.hasTwice(r, t)
	e.hold(r, f, capabilities)
	e.tags(r, f, &t)
	e.targets = append(e.targets, t)
}

func platformsOf(list []value[platform]) []recipe.Platform {
	out := make([]recipe.Platform, 0, len(list))
	for _, v := range list {
		p, err := recipe.ParsePlatform(v.Text)
		if err != nil {
			panic("matrix: " + err.Error()) // the parser accepts only known platforms
		}
		out = append(out, p)
	}
	return out
}

// capabilities finds the row's list and adds it to the facts.
func (e *expansion) capabilities(r targetRow, f facts) []value[capability] {
	list := r.compile
	if r.cuda != "" && len(list) == 0 {
		list = e.capabilitiesOf(r)
	}
	for _, c := range list {
		f["capability"] = append(f["capability"], c.Text)
	}
	return list
}

// capabilitiesOf returns the first list of the file that fits the row's CUDA.
func (e *expansion) capabilitiesOf(r targetRow) []value[capability] {
	i := slices.IndexFunc(e.doc.Capabilities, func(l capabilityList) bool { return l.CUDA.holds(r.cuda) })
	if i < 0 {
		e.once(r.at, r.field, fmt.Sprintf("no entry of capabilities is for CUDA %q", r.cuda), "add one, or widen the condition of one")
		return nil
	}
	l := &e.doc.Capabilities[i]
	e.used[l.At] = true
	return l.Compile
}

// finish reports problems that show only after all rows have been processed.
func (e *expansion) finish() {
	for _, v := range e.violations {
		v.report(e)
	}
	if len(e.targets) == 0 && !e.failed() {
		e.report(Pos{1, 1}, "", "every row is taken out; no target is left", "take back an exclude, or add a row")
		return
	}
	e.unused()
}

// unused reports parts without effect: they are mistakes or leftovers, and either way they
// mislead the reader of the file.
func (e *expansion) unused() {
	for i, x := range e.doc.Exclude {
		if !e.used[x.At] {
			e.report(x.At, item("exclude", i), "it takes no row out", e.unmatched(x.When))
		}
	}
	for i, v := range e.doc.Variants {
		if !e.variants[v.Name.Text] {
			e.report(v.Name.At, item("variants", i), fmt.Sprintf("no row has the variant %q", v.Name.Text), e.unmatched(v.When))
		}
	}
	for i, l := range e.doc.Capabilities {
		if cuda := l.CUDA; !e.used[l.At] {
			cuda.Key = "cuda"
			e.report(cuda.At, item("capabilities", i), fmt.Sprintf("no row takes the list for CUDA %q", cuda.Text), e.unmatched([]condition{cuda}))
		}
	}
	for _, rule := range e.doc.rules() {
		e.unusedChoices(rule)
	}
	e.unusedAlternatives()
}

// unusedAlternatives reports alternatives of a condition (separated by bars) that match no row.
func (e *expansion) unusedAlternatives() {
	look := func(field string, conditions []condition) {
		for _, c := range conditions {
			if len(c.alternatives) < 2 || !slices.Contains(axisKeys, c.Key) {
				continue
			}
			values := e.values(c.Key)
			for text := range strings.SplitSeq(c.Text, " | ") {
				one := condition{Key: c.Key, Text: text, alternatives: parseAlternatives(text)}
				if !slices.ContainsFunc(values, one.holds) {
					e.report(c.At, join(field, c.Key), fmt.Sprintf("no row has the alternative %q", text), e.unmatched([]condition{one}))
				}
			}
		}
	}
	for i, x := range e.doc.Exclude {
		look(item("exclude", i)+".when", x.When)
	}
	for i, v := range e.doc.Variants {
		look(item("variants", i)+".when", v.When)
	}
	for i, c := range e.doc.Constraints {
		look(item("constraints", i)+".when", c.When)
	}
	for _, rule := range e.doc.rules() {
		for i, ch := range rule.choices {
			look(item(rule.field, i)+".when", ch.When)
		}
	}
}

func (e *expansion) unusedChoices(rule componentRule) {
	for i, ch := range rule.choices {
		if e.used[ch.At] {
			continue
		}
		remedy := e.unmatched(ch.When)
		if i > 0 && len(rule.choices[i-1].When) == 0 {
			remedy = `the choice before it has no "when" and takes every row; put this one first`
		}
		e.report(ch.At, item(rule.field, i), "no target takes this choice", remedy)
	}
}

// unmatched returns the remedy for conditions that no row satisfies. A condition that fits no
// value at all is probably misspelled.
func (e *expansion) unmatched(when []condition) string {
	for _, c := range when {
		values := e.values(c.Key)
		if len(values) > 0 && !slices.ContainsFunc(values, c.holds) {
			return fmt.Sprintf("no %s here is %q, the nearest is %q; correct it or remove the entry", c.Key, c.Text, words.Nearest(strings.TrimLeft(c.Text, "<>="), values))
		}
	}
	return "nothing before it leaves it a row; remove it"
}

// values returns the values that the file's rows have for a key.
func (e *expansion) values(key string) []string {
	var out []string
	for _, r := range e.rows {
		out = append(out, r.facts()[key]...)
	}
	if key == "variant" {
		return append(e.doc.variantNames(), plain)
	}
	slices.SortFunc(out, CompareVersions)
	return slices.Compact(out)
}
