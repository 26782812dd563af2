package matrix

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Library holds the components that a matrix may name without saying what they are: assay's own.
type Library struct {
	own map[string]*Definition
}

// harnessName is the component that no matrix may replace.
const harnessName = "harness"

// harnessPath is where the harness is in all images of assay's.
const harnessPath = "/opt/assay/bin/harness"

// ReadLibrary reads all components of a directory, each in a directory of its name. In messages they
// are below dir. The error is an [Errors].
func ReadLibrary(dir string, files fs.FS) (*Library, error) {
	found, err := fs.Glob(files, "*/"+DefinitionFile)
	if err != nil {
		return nil, err
	}
	r := &reporter{builtin: true}
	for _, file := range found {
		r.components = append(r.components, path.Dir(file))
	}
	lib := &Library{own: map[string]*Definition{}}
	for _, name := range r.components {
		sub, err := fs.Sub(files, name)
		if err != nil {
			return nil, err
		}
		lib.own[name] = r.readDefinition(name, path.Join(dir, name), sub)
	}
	return lib, r.err()
}

// Names returns the names of the components, sorted.
func (l *Library) Names() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range l.own {
			if !yield(name) {
				return
			}
		}
	})
}

// Definition returns the component of that name, nil if there is none.
func (l *Library) Definition(name string) *Definition { return l.own[name] }

// A Directory opens the directory of a user's component: the path is as matrix.yaml has it.
type Directory func(dir string) (fs.FS, error)

// ownEntry is a matrix's entry that defines a component.
type ownEntry struct {
	name, field string
	at          Pos
	value       *yaml.Node
}

// ownComponents reads the components that a matrix defines, before anything else of it is decoded:
// conditions anywhere in the file may name them.
func (r *reporter) ownComponents(n *yaml.Node, f *File, open Directory) {
	entries := r.ownEntries(n)
	r.components = f.library.Names()
	for _, e := range entries {
		if !slices.Contains(r.components, e.name) {
			r.components = append(r.components, e.name)
		}
	}
	slices.Sort(r.components)
	first := map[string]ownEntry{}
	for _, e := range entries {
		if old, ok := first[e.name]; ok {
			if !sameNode(old.value, e.value) {
				r.report(e.at, e.field, fmt.Sprintf("%q means two things in this file", e.name), fmt.Sprintf("the first is at %s; give one of them another name", old.at))
			}
			continue
		}
		first[e.name] = e
		if d := r.ownDefinition(e, f, open); d != nil {
			f.own[e.name] = d
		}
	}
}

// ownEntries returns the entries of all lists of components that define one, in the file's order.
func (r *reporter) ownEntries(n *yaml.Node) (out []ownEntry) {
	add := func(field string, n *yaml.Node) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k, v := n.Content[i], n.Content[i+1]; v.Kind == yaml.MappingNode || isPath(v) {
				out = append(out, ownEntry{k.Value, join(field, k.Value), pos(k), v})
			}
		}
	}
	if images := valueOf(n, "images"); images != nil && images.Kind == yaml.SequenceNode {
		for i, image := range images.Content {
			add(item("images", i)+".components", valueOf(image, "components"))
		}
	}
	add("components", valueOf(n, "components"))
	return out
}

// isPath reports whether a node is the path of a component's directory: no version begins so.
func isPath(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (strings.HasPrefix(n.Value, "./") || strings.HasPrefix(n.Value, "../") || strings.HasPrefix(n.Value, "/"))
}

// sameNode reports whether two nodes say the same, wherever they are.
func sameNode(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Value == b.Value && slices.EqualFunc(a.Content, b.Content, sameNode)
}

// ownDefinition reads the component that an entry defines, nil if it cannot.
func (r *reporter) ownDefinition(e ownEntry, f *File, open Directory) *Definition {
	if msg, remedy := nameKind.problem(e.name); msg != "" {
		r.report(e.at, e.field, msg, remedy)
		return nil
	}
	if slices.Contains(slices.Concat(axisKeys, []string{"capability", "debian", "platform", "base", "mpi", "version", "name", "release", "recipe"}), e.name) {
		r.report(e.at, e.field, fmt.Sprintf("%q has a meaning of its own in conditions and tags", e.name), "choose another name")
		return nil
	}
	from, at := e.value, pos(e.value)
	if e.value.Kind == yaml.MappingNode {
		if from = valueOf(e.value, "from"); from != nil {
			at = pos(from)
		}
	}
	switch {
	case e.name == harnessName:
		r.report(e.at, e.field, "the harness certifies the others; a component cannot take its place", `write "harness: source"`)
	case from != nil && !isPath(from):
		r.report(at, join(e.field, "from"), fmt.Sprintf("%s where the path of a directory belongs", describe(from)), `write it relative to this file, as in "./components/tool"`)
	case from != nil && strings.HasPrefix(from.Value, "/"):
		r.report(at, e.field, fmt.Sprintf("%q is a path of this machine", from.Value), `write it relative to this file, as in "./components/tool"`)
	case from != nil:
		return r.openDefinition(e, at, from.Value, f, open)
	case f.library.Definition(e.name) != nil:
		r.report(e.at, e.field, fmt.Sprintf("%s is a component of assay's", e.name), `choose another name; to replace it, write "from:" with the directory of yours`)
	default:
		d := &Definition{Name: e.name, From: fmt.Sprintf("%s:%d", path.Base(f.Name), e.at.Line), file: f.Name}
		text, err := yaml.Marshal(e.value)
		if err == nil {
			d.text = string(text)
		}
		r.definition(e.field, e.value, &d.doc)
		if !r.failed() && d.defaultVersion() == "" {
			r.report(e.at, e.field+".version", "the key is missing, and no package has one", `add one, as in "version: 1.0"`)
		}
		return d
	}
	return nil
}

// openDefinition reads the component of a directory.
func (r *reporter) openDefinition(e ownEntry, at Pos, dir string, f *File, open Directory) *Definition {
	files, err := open(dir)
	if err == nil {
		_, err = fs.Stat(files, DefinitionFile)
	}
	if err != nil {
		r.report(at, e.field, fmt.Sprintf("%s has no %s", dir, DefinitionFile), r.nearestDirectory(dir, open))
		return nil
	}
	d := r.readDefinition(e.name, path.Join(path.Dir(f.Name), dir), files)
	d.From = dir
	return d
}

// nearestDirectory is the remedy for a path that is no component's.
func (r *reporter) nearestDirectory(dir string, open Directory) string {
	parent, err := open(path.Dir(path.Clean(dir)))
	if err != nil {
		return "write the component there, or correct the path"
	}
	found, _ := fs.Glob(parent, "*/"+DefinitionFile)
	var names []string
	for _, file := range found {
		names = append(names, path.Dir(file))
	}
	if len(names) == 0 {
		return `write the component there ("assay component new"), or correct the path`
	}
	return suggest("directory", path.Base(dir), names)
}

// defaultVersion is what a component's version is where a matrix gives none; "" if that cannot be
// said.
func (d *Definition) defaultVersion() string {
	switch {
	case d.doc.Version.Text != "":
		return d.doc.Version.Text
	case len(d.doc.Versions.Words) > 0:
		return d.doc.Versions.Words[0]
	case d.doc.Versions.Form == nil && (d.doc.Version.Package.Text != "" || len(d.doc.Packages) > 0):
		return distroVersion
	}
	return ""
}

// distroVersion is the version of a component that the distribution decides.
const distroVersion = "distro"
