package matrix

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/words"
)

// DefinitionFile is the file that makes a directory a component.
const DefinitionFile = "component.yaml"

// A Definition says how a component becomes part of an image: a directory with a component.yaml and
// the scripts and files that it names, or an entry of matrix.yaml with the same keys. assay's own
// components and a user's are read by the same code. docs/components.md is the reference.
type Definition struct {
	Name  string
	From  string            // where a user's is, as matrix.yaml says: "./components/tool", "matrix.yaml:14"; "" for assay's own
	Files map[string]string // what lies in the directory beside component.yaml, by relative path

	file string // for messages
	text string // of component.yaml
	doc  componentDocument
}

// A componentDocument is component.yaml as written; see [matrixDocument].
type componentDocument struct {
	Version   versionSource                `json:"version,omitempty" jsonschema_description:"Version where the matrix gives none; {package: NAME} is that of a locked package."`
	Versions  versionForms                 `json:"versions,omitempty" jsonschema_description:"The versions that there are: a list of words, or the form of the publisher's with an example."`
	About     value[sentence]              `json:"about,omitempty" jsonschema_description:"What it is, in one line."`
	License   value[license]               `json:"license,omitempty" jsonschema_description:"SPDX expression, or LicenseRef-…; required as soon as anything is built or copied."`
	Homepage  value[homepage]              `json:"homepage,omitempty" jsonschema_description:"Where people read about it."`
	Builtin   value[sentence]              `json:"builtin,omitempty" jsonschema_description:"Of assay's own: why part of it is made by code and not here."`
	Needs     partTest                     `json:"needs,omitempty" jsonschema_description:"What the image must have beside it."`
	Conflicts named[name, value[sentence]] `json:"conflicts,omitempty" jsonschema_description:"Components that cannot be beside it, each with the reason."`
	Requires  []requirement                `json:"requires,omitempty" jsonschema_description:"Facts about this component, true in every matrix, each with its reason."`
	Vars      named[varName, choices]      `json:"vars,omitempty" jsonschema_description:"Variables of its own."`
	Apt       []aptEntry                   `json:"apt,omitempty" jsonschema_description:"Package repositories that the image is set up for."`
	Packages  []packageEntry               `json:"packages,omitempty" jsonschema_description:"Packages of the distribution, as apt-get install takes them: name, or name=version."`
	Sources   named[fileName, sourceEntry] `json:"sources,omitempty" jsonschema_description:"Downloads by name: URLs, or Python packages. The lock pins each; the first URL is what a build unpacks in /src."`
	Build     buildEntry                   `json:"build,omitempty" jsonschema_description:"Script that makes files in /out, in a stage of its own without network."`
	Install   []installEntry               `json:"install,omitempty" jsonschema_description:"What of the build's /out goes into the image."`
	Register  []template                   `json:"register,omitempty" jsonschema_description:"Debian packages in the build's /out that dpkg shall know, without unpacking them again."`
	Run       []runEntry                   `json:"run,omitempty" jsonschema_description:"Scripts that run in the image after its packages are installed, without network."`
	Files     []fileEntry                  `json:"files,omitempty" jsonschema_description:"Files and links of the image."`
	Env       named[envName, choices]      `json:"env,omitempty" jsonschema_description:"Environment variables of the image."`
	Labels    named[labelName, choices]    `json:"labels,omitempty" jsonschema_description:"Labels of the image."`
	Path      []dirEntry                   `json:"path,omitempty" jsonschema_description:"Directories put before PATH."`
	Libs      []dirEntry                   `json:"libs,omitempty" jsonschema_description:"Directories that the loader searches: put before LD_LIBRARY_PATH and into ld.so.conf.d."`
	Lists     named[envName, []dirEntry]   `json:"lists,omitempty" jsonschema_description:"Directories put before any other variable that is a list."`
	WorkDir   template                     `json:"workdir,omitempty" jsonschema_description:"The image's working directory."`
	Absent    []absentEntry                `json:"absent,omitempty" jsonschema_description:"Libraries that programs need and the image lacks on purpose."`
	Checks    []checkEntry                 `json:"checks,omitempty" jsonschema_description:"What the gate runs in the image before it is published."`
}

type requirement struct {
	At      Pos             `json:"-"`
	When    partTest        `json:"when,omitempty" jsonschema_description:"Where it applies; without it, everywhere."`
	Require partTest        `json:"require" jsonschema_description:"What must hold there."`
	Because value[sentence] `json:"because" jsonschema_description:"Why; the message quotes it."`
}

type aptEntry struct {
	At         Pos         `json:"-"`
	When       partTest    `json:"when,omitempty" jsonschema_description:"Where it applies."`
	Unless     partTest    `json:"unless,omitempty" jsonschema_description:"Where it does not apply."`
	Name       value[name] `json:"name" jsonschema_description:"Name of its file in sources.list.d."`
	URL        template    `json:"url" jsonschema_description:"Root of the repository."`
	Suite      template    `json:"suite" jsonschema_description:"Its suite; \"./\" for a repository without."`
	Components []template  `json:"components,omitempty" jsonschema_description:"Its components, as in main."`
	Key        aptKey      `json:"key,omitempty" jsonschema_description:"The key that signs it."`
	Unsigned   bool        `json:"unsigned,omitempty" jsonschema_description:"Take the repository without a signature."`
}

type aptKey struct {
	At          Pos                `json:"-"`
	URL         template           `json:"url,omitempty" jsonschema_description:"Where the keyring is; the lock pins it. Or"`
	File        value[relative]    `json:"file,omitempty" jsonschema_description:"a file beside component.yaml, in ASCII armor."`
	Fingerprint value[fingerprint] `json:"fingerprint" jsonschema_description:"Fingerprint of the key; \"gpg --show-keys FILE\" prints it."`
}

// A packageEntry is packages under a condition, or one package written bare.
type packageEntry struct {
	At      Pos        `json:"-"`
	When    partTest   `json:"when,omitempty" jsonschema_description:"Where they are installed."`
	Unless  partTest   `json:"unless,omitempty" jsonschema_description:"Where they are not."`
	Install []template `json:"install" jsonschema_description:"The packages."`
}

// A sourceEntry is the URL of a file, or what pip installs from an index of Python packages.
type sourceEntry struct {
	At           Pos             `json:"-"`
	URL          template        `json:"url,omitempty" jsonschema_description:"URL of a file; or"`
	Wheels       template        `json:"wheels,omitempty" jsonschema_description:"root of an index of Python packages (https://…/simple), with"`
	Requirements value[relative] `json:"requirements,omitempty" jsonschema_description:"a file beside component.yaml that says which, as pip reads it; variables are filled in. The build finds their wheels at /run/assay/NAME."`
}

type buildEntry struct {
	At       Pos               `json:"-"`
	When     partTest          `json:"when,omitempty" jsonschema_description:"Where it is built."`
	Unless   partTest          `json:"unless,omitempty" jsonschema_description:"Where it is not."`
	Script   scripts           `json:"script" jsonschema_description:"Script or scripts (sh -eu) beside component.yaml."`
	In       value[builder]    `json:"in,omitempty" jsonschema_description:"tools: with the packages that assay's own components are compiled with. Without it, the base alone."`
	Row      rowEntry          `json:"row,omitempty" jsonschema_description:"The row whose base it is compiled on: rows for which this gives the same share the build."`
	Packages []packageEntry    `json:"packages,omitempty" jsonschema_description:"Packages that the build needs and the image does not."`
	Mounts   []value[mounting] `json:"mounts,omitempty" jsonschema_description:"cuda: the toolkit; another source, or another component's output or what the base has, where the image has it: at /run/assay/NAME."`
}

type rowEntry struct {
	At     Pos                `json:"-"`
	Distro value[distroOfRow] `json:"distro,omitempty" jsonschema_description:"own, or oldest: what it makes runs on every later release."`
	CUDA   value[cudaOfRow]   `json:"cuda,omitempty" jsonschema_description:"own, or the lowest or highest of its major version."`
}

type installEntry struct {
	At     Pos      `json:"-"`
	When   partTest `json:"when,omitempty" jsonschema_description:"Where it is installed."`
	Unless partTest `json:"unless,omitempty" jsonschema_description:"Where it is not."`
	From   template `json:"from" jsonschema_description:"Path in /out; a slash at the end means the contents of a directory."`
	To     template `json:"to" jsonschema_description:"Path in the image."`
}

type runEntry struct {
	At     Pos               `json:"-"`
	When   partTest          `json:"when,omitempty" jsonschema_description:"Where it runs."`
	Unless partTest          `json:"unless,omitempty" jsonschema_description:"Where it does not."`
	Title  value[sentence]   `json:"title" jsonschema_description:"What it does, for the progress display."`
	Script scripts           `json:"script" jsonschema_description:"Script (sh -eu) beside component.yaml."`
	Mounts []value[mounting] `json:"mounts,omitempty" jsonschema_description:"Sources, each at /run/assay/NAME."`
}

type fileEntry struct {
	At      Pos             `json:"-"`
	When    partTest        `json:"when,omitempty" jsonschema_description:"Where it is written."`
	Unless  partTest        `json:"unless,omitempty" jsonschema_description:"Where it is not."`
	Path    template        `json:"path" jsonschema_description:"Path in the image."`
	Content template        `json:"content,omitempty" jsonschema_description:"Its text, in which variables are filled in; or"`
	From    value[relative] `json:"from,omitempty" jsonschema_description:"a file beside component.yaml, taken as it is; or"`
	Link    template        `json:"link,omitempty" jsonschema_description:"what a symbolic link names."`
	Mode    value[fileMode] `json:"mode,omitempty" jsonschema_description:"Its permissions in quotes; 0644 without."`
}

// A dirEntry is a directory under a condition, or written bare.
type dirEntry struct {
	At     Pos      `json:"-"`
	When   partTest `json:"when,omitempty" jsonschema_description:"Where it is in the list."`
	Unless partTest `json:"unless,omitempty" jsonschema_description:"Where it is not."`
	Dir    template `json:"dir" jsonschema_description:"The directory."`
}

type absentEntry struct {
	At      Pos             `json:"-"`
	When    partTest        `json:"when,omitempty" jsonschema_description:"Where it is absent."`
	Unless  partTest        `json:"unless,omitempty" jsonschema_description:"Where it is not."`
	Library template        `json:"library" jsonschema_description:"Name of the library, as in libcuda.so.1."`
	Because value[sentence] `json:"because" jsonschema_description:"Why it is absent."`
}

type checkEntry struct {
	At     Pos             `json:"-"`
	When   partTest        `json:"when,omitempty" jsonschema_description:"Where it is checked."`
	Unless partTest        `json:"unless,omitempty" jsonschema_description:"Where it is not."`
	Name   value[sentence] `json:"name,omitempty" jsonschema_description:"What is checked; required with run and sh."`
	Run    []template      `json:"run,omitempty" jsonschema_description:"A program and its arguments, which must exit 0; or"`
	Sh     template        `json:"sh,omitempty" jsonschema_description:"a line for /bin/sh, which must; or"`
	Exec   template        `json:"exec,omitempty" jsonschema_description:"a file that must be executable; or"`
	Has    template        `json:"has,omitempty" jsonschema_description:"a file that must be there; or"`
	Load   template        `json:"load,omitempty" jsonschema_description:"a library that must load."`
	Prints pattern         `json:"prints,omitempty" jsonschema_description:"RE2 that must match what run or sh prints. Variables are inserted as literal text, {version:exact} so that it is no part of a longer version."`
}

// MaxDefinition limits a component.yaml and each file beside it, in bytes: they are part of the
// recipe. What is larger is a source.
const MaxDefinition = 64 << 10

// readDefinition reads the component of a directory. In messages its files are below dir.
func (r *reporter) readDefinition(name, dir string, files fs.FS) *Definition {
	d := &Definition{Name: name, file: path.Join(dir, DefinitionFile), Files: map[string]string{}}
	own := &reporter{file: d.file, components: r.components, files: d.Files, builtin: r.builtin}
	text := own.readFiles(files)
	d.text = string(text)
	if !own.failed() {
		own.parse(text, `write what the component is made of; docs/components.md has the format`, func(n *yaml.Node) { own.definition("", n, &d.doc) })
	}
	r.errs = append(r.errs, own.errs...)
	return d
}

// readFiles reads all files of a component's directory, and returns component.yaml.
func (r *reporter) readFiles(files fs.FS) (text []byte) {
	err := fs.WalkDir(files, ".", func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, file)
		switch {
		case err != nil:
			return err
		case len(data) > MaxDefinition:
			r.report(Pos{1, 1}, "", fmt.Sprintf("the file %s beside it has %d bytes", file, len(data)), fmt.Sprintf("a component's files are text of at most %d bytes; make it a source", MaxDefinition))
		case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
			r.report(Pos{1, 1}, "", fmt.Sprintf("the file %s beside it is not text in UTF-8", file), "a component's files are text; make it a source")
		case file == DefinitionFile:
			text = data
		default:
			r.files[file] = string(data)
		}
		return nil
	})
	if err != nil {
		r.report(Pos{1, 1}, "", err.Error(), "a component is a directory with a "+DefinitionFile+", whose links stay inside it")
	}
	return text
}

// definition decodes a component's keys from a mapping, and checks what belongs together.
func (r *reporter) definition(field string, n *yaml.Node, doc *componentDocument) {
	r.vars = nil
	if vars := valueOf(n, "vars"); vars != nil && vars.Kind == yaml.MappingNode {
		for i := 0; i < len(vars.Content); i += 2 {
			r.vars = append(r.vars, vars.Content[i].Value)
		}
	}
	before := len(r.errs)
	r.decodeInto(field, n, doc)
	if len(r.errs) == before {
		r.checkDefinition(field, pos(n), doc)
	}
}

// valueOf returns the value of a mapping's key, or nil.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// checkDefinition reports what is inconsistent in a component of valid form.
func (r *reporter) checkDefinition(field string, at Pos, doc *componentDocument) {
	if doc.License.Text == "" && (doc.Build.At.set() || len(doc.Files) > 0 || len(doc.Sources) > 0) {
		r.report(at, join(field, "license"), "the key is missing, and the component builds or copies something", `add an SPDX expression, as in "license: MIT", or LicenseRef-NAME`)
	}
	if doc.Build.At.set() && len(doc.Install) == 0 && len(doc.Register) == 0 {
		r.report(doc.Build.At, join(field, "build"), "nothing of what it builds is installed", `add "install: [{from: usr/, to: /usr/}]"`)
	}
	if !doc.Build.At.set() && len(doc.Install)+len(doc.Register) > 0 {
		r.report(at, join(field, "install"), "there is no build whose output it could install", `add "build:", or write files under "files:"`)
	}
	if doc.Builtin.At.set() && !r.builtin {
		r.report(doc.Builtin.At, join(field, "builtin"), "only a component of assay's has code", "remove it, and say here what the component is made of")
	}
	if doc.empty() {
		r.report(at, field, "the component puts nothing into an image", `add one of "packages:", "build:", "files:", "run:", "env:"`)
	}
	var known []string
	for _, s := range doc.Sources {
		known = append(known, s.Name)
	}
	for i, run := range doc.Run {
		r.checkMounts(join(field, item("run", i)), run.Mounts, known)
	}
	r.checkMounts(join(field, "build"), doc.Build.Mounts, slices.Concat(known, []string{"cuda", "mpi"}, r.components))
	for _, s := range doc.Sources {
		r.checkSource(join(field, "sources."+s.Name), s.Value)
	}
	for i, f := range doc.Files {
		r.checkOne(join(field, item("files", i)), f.At, map[string]bool{"content": f.Content.At.set(), "from": f.From.At.set(), "link": f.Link.At.set()})
		r.checkPath(join(field, item("files", i)+".path"), f.Path)
	}
	for i, f := range doc.Files {
		if f.From.Text != "" {
			r.checkFile(join(field, item("files", i)+".from"), f.From.At, f.From.Text)
		}
	}
	for i, in := range doc.Install {
		r.checkPath(join(field, item("install", i)+".to"), in.To)
	}
	for i, c := range doc.Checks {
		where := join(field, item("checks", i))
		r.checkOne(where, c.At, map[string]bool{"run": c.Run != nil, "sh": c.Sh.At.set(), "exec": c.Exec.At.set(), "has": c.Has.At.set(), "load": c.Load.At.set()})
		if command := c.Run != nil || c.Sh.At.set(); command && !c.Name.At.set() {
			r.report(c.At, where+".name", "the key is missing", `say what is checked, as in "name: version"`)
		} else if !command && c.Prints.At.set() {
			r.report(c.Prints.At, where+".prints", "nothing prints here", `it belongs to "run" and "sh"`)
		}
	}
	for i, a := range doc.Apt {
		r.checkApt(join(field, item("apt", i)), a)
	}
}

// empty reports whether a component leaves no trace in an image.
func (doc *componentDocument) empty() bool {
	return !doc.Builtin.At.set() && !doc.Build.At.set() && len(doc.Packages)+len(doc.Apt)+len(doc.Files)+len(doc.Run)+len(doc.Env)+len(doc.Labels)+len(doc.Path)+len(doc.Libs)+len(doc.Lists) == 0 && !doc.WorkDir.At.set()
}

// checkOne reports a mapping that has not exactly one of some keys.
func (r *reporter) checkOne(field string, at Pos, set map[string]bool) {
	var all []string
	n := 0
	for key, is := range set {
		all = append(all, key)
		if is {
			n++
		}
	}
	if n != 1 && at.set() {
		slices.Sort(all)
		r.report(at, field, fmt.Sprintf("it has %d of the keys %s", n, strings.Join(all, ", ")), "write exactly one of them")
	}
}

// reserved are the places that no component may write to: assay's own, and what packages keep.
var reserved = []string{"/opt/assay", "/var/lib/dpkg", "/etc/passwd", "/etc/shadow", "/etc/group", "/proc", "/sys", "/dev", "/run/assay"}

func (r *reporter) checkPath(field string, t template) {
	if !t.At.set() || strings.HasPrefix(t.Text, "{") {
		return
	}
	if !strings.HasPrefix(t.Text, "/") || slices.Contains(strings.Split(t.Text, "/"), "..") {
		r.report(t.At, field, fmt.Sprintf("%q is not a path in the image", t.Text), `begin it with "/", without ".."`)
	}
	for _, p := range reserved {
		if t.Text == p || strings.HasPrefix(t.Text, p+"/") {
			r.report(t.At, field, fmt.Sprintf("%s is not a component's to write", p), "choose another path")
		}
	}
}

func (r *reporter) checkMounts(field string, mounts []value[mounting], known []string) {
	for i, m := range mounts {
		if m.At.set() && !slices.Contains(known, m.Text) {
			r.report(m.At, item(field+".mounts", i), fmt.Sprintf("there is no %q to mount", m.Text), suggest("name", m.Text, known))
		}
	}
}

func (r *reporter) checkSource(field string, s sourceEntry) {
	r.checkOne(field, s.At, map[string]bool{"url": s.URL.At.set(), "wheels": s.Wheels.At.set()})
	switch file := s.Requirements; {
	case s.Wheels.At.set() && !file.At.set():
		r.report(s.At, field+".requirements", "the key is missing", `write the packages into a file beside component.yaml, and its name here, as in "requirements.txt"`)
	case !s.Wheels.At.set() && file.At.set():
		r.report(file.At, field+".requirements", "it belongs to wheels", `add "wheels:" with the root of an index`)
	case strings.Contains(s.Wheels.Text, "@"):
		r.report(s.Wheels.At, field+".wheels", "the address may have no user", "credentials belong to --mirror FROM=TO")
	case file.At.set():
		r.checkFile(field+".requirements", file.At, file.Text)
		if text, is := r.files[file.Text]; is {
			r.checkVariables(field+".requirements", template{Text: text, At: file.At}, false)
		}
	}
}

func (r *reporter) checkApt(field string, a aptEntry) {
	switch {
	case !a.At.set():
	case a.Unsigned == a.Key.At.set():
		r.report(a.At, field+".key", "a repository is signed with a key, or it is not", `write "key:" with its fingerprint, or "unsigned: true"`)
	case a.Key.At.set():
		r.checkOne(field+".key", a.Key.At, map[string]bool{"url": a.Key.URL.At.set(), "file": a.Key.File.At.set()})
		if a.Key.File.Text != "" {
			r.checkFile(field+".key.file", a.Key.File.At, a.Key.File.Text)
		}
	}
}

// checkFile reports a name that is no file beside component.yaml.
func (r *reporter) checkFile(field string, at Pos, name string) {
	if _, ok := r.files[name]; ok {
		return
	}
	switch near := slices.Sorted(maps.Keys(r.files)); {
	case r.files == nil:
		r.report(at, field, fmt.Sprintf("an entry of the matrix has no files, so no %q", name), `put the component into a directory with a `+DefinitionFile+`, and write its path here, as in "./components/tool"`)
	case len(near) == 0:
		r.report(at, field, fmt.Sprintf("there is no file %q beside it, and no other", name), "write it")
	default:
		r.report(at, field, fmt.Sprintf("there is no file %q beside it", name), fmt.Sprintf("the nearest is %q", words.Nearest(name, near)))
	}
}
