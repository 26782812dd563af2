package matrix

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

func (b *base) decode(r *reporter, field string, n *yaml.Node) {
	b.At = pos(n)
	if n.Kind == yaml.ScalarNode {
		b.Image.decode(r, field, n)
		return
	}
	r.structure(field, n, reflect.ValueOf(b).Elem())
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (base) JSONSchema() *jsonschema.Schema { return defined("base") }

// baseSchema is text or a mapping that is an image or a debootstrap.
func baseSchema() *jsonschema.Schema {
	type plainBase base // without the method
	mapping := reflectSchema(plainBase{})
	eitherOf(mapping, "image", "debootstrap")
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{value[reference]{}.JSONSchema(), mapping}}
}

// has returns the entry of that name, or nil.
func (b *base) has(name string) *namedValue[value[inTheBase]] {
	i := slices.IndexFunc(b.Has, func(h namedValue[value[inTheBase]]) bool { return h.Name == name })
	if i < 0 {
		return nil
	}
	return &b.Has[i]
}

// versioned returns the names of what the base has in a version, which tags may name.
func (b *base) versioned() (out []string) {
	for _, h := range b.Has {
		if !strings.HasPrefix(h.Value.Text, "/") {
			out = append(out, h.Name)
		}
	}
	return out
}

// filled returns the base with its placeholders replaced.
func (b *base) filled(values map[string]string) (out Base) {
	if d := b.Debootstrap; d.At.set() {
		out.Debootstrap = &Debootstrap{Suite: d.Suite.Text, Variant: d.Variant.Text}
		return out
	}
	out.Image, _ = fill(b.Image.Text, values)
	out.Build, _ = fill(b.Build.Text, values)
	for _, h := range b.Has {
		out.Has = append(out.Has, Has{h.Name, h.Value.Text})
	}
	return out
}

// addFacts adds what a base has to the facts of a target. CUDA is one already, with its version.
func (b Base) addFacts(f facts) {
	for _, h := range b.Has {
		if h.Name != "cuda" {
			f[h.Name] = []string{h.Value}
		}
	}
}

// checkBase reports what is inconsistent in a base, whose references may have the allowed placeholders.
func (r *reporter) checkBase(field string, b base, allowed []string) {
	image := field
	if b.Image.At != b.At {
		image += ".image"
	}
	r.checkTemplate(image, b.Image.Text, b.Image.At, allowed)
	r.checkTemplate(field+".build", b.Build.Text, b.Build.At, allowed)
	if b.Debootstrap.At.set() {
		const why, remedy = "a base made with debootstrap has nothing but packages, which components can compile with", `leave it out, or write "image:" in place of "debootstrap:"`
		if b.Build.At.set() {
			r.report(b.Build.At, field+".build", why, remedy)
		}
		if len(b.Has) > 0 {
			r.report(b.Has[0].At, field+".has", why, remedy)
		}
	}
	if b.Build.At.set() && b.Build.Text == b.Image.Text {
		r.report(b.Build.At, field+".build", "it is the base itself, on which components are compiled anyway", "leave it out")
	}
	names := slices.Concat([]string{"cuda", "mpi"}, r.components)
	for _, h := range b.Has {
		where := field + ".has." + h.Name
		switch path := strings.HasPrefix(h.Value.Text, "/"); {
		case !slices.Contains(names, h.Name):
			r.report(h.At, where, fmt.Sprintf("no component is called %q", h.Name), suggest("name", h.Name, names))
		case h.Name == harnessName && h.Value.Text != harnessPath:
			r.report(h.Value.At, where, "a base brings the harness if it is an image of assay's, which has it in one place", fmt.Sprintf("write %q, or leave it out and add \"harness: source\" to the components", harnessPath))
		case h.Name == "cuda" && !path:
			r.report(h.Value.At, where, fmt.Sprintf("%q is not the path of CUDA, whose version the row has", h.Value.Text), `write where it is, as in "/usr/local/cuda"`)
		case h.Name == "mpi" && !path:
			r.report(h.Value.At, where, fmt.Sprintf("%q is not the path of an MPI", h.Value.Text), `write where its include/ and lib/ are, as in "/usr/local/mpi"`)
		}
	}
}

// hasTwice reports components that the target's base has already.
func (e *expansion) hasTwice(r targetRow, t Target) {
	for _, c := range t.Components {
		h := r.written.has(c.Name)
		if h == nil {
			continue
		}
		at, field := e.place(r, c.Name, c.Version, nil)
		e.once(at, field, fmt.Sprintf("%s has %s already, as line %d says: the base %s brings it", t.Name, c.Name, h.At.Line, t.Base.Image),
			fmt.Sprintf("leave it out here; or, to install it over the base's, take %q out of has", c.Name))
	}
}
