package matrix

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// A Part is a component on one target and platform: its definition with all conditions decided and
// all variables filled in.
type Part struct {
	Name     string `json:"name"`
	Version  string `json:"version"` // "" while the package that has it is not locked
	About    string `json:"about,omitempty"`
	License  string `json:"license,omitempty"`
	Homepage string `json:"homepage,omitempty"`
	From     string `json:"from,omitempty"` // see [Definition]

	Origin *certificate.Download `json:"-"`

	Apt      []AptSource          `json:"apt,omitempty"`
	Packages []string             `json:"packages,omitempty"`
	Sources  []Source             `json:"sources,omitempty"`
	Build    *Build               `json:"build,omitempty"`
	Install  []Install            `json:"install,omitempty"`
	Register []string             `json:"register,omitempty"`
	Run      []Run                `json:"run,omitempty"`
	Files    []PartFile           `json:"files,omitempty"`
	Env      []Pair               `json:"env,omitempty"`
	Labels   []Pair               `json:"labels,omitempty"`
	Lists    []List               `json:"lists,omitempty"` // PATH and LD_LIBRARY_PATH among them
	WorkDir  string               `json:"workdir,omitempty"`
	Absent   []certificate.Absent `json:"absent,omitempty"`
	Checks   []certificate.Check  `json:"checks,omitempty"`

	Vars map[string]string `json:"-"` // what its scripts may name, in capitals
}

// An AptSource is a repository of packages.
type AptSource struct {
	Name        string   `json:"name"`
	URL         string   `json:"url"`
	Suite       string   `json:"suite"`
	Components  []string `json:"components,omitempty"`
	KeyURL      string   `json:"keyURL,omitempty"`
	Key         string   `json:"key,omitempty"` // a keyring in ASCII armor
	Fingerprint string   `json:"fingerprint,omitempty"`
}

// A Source is a download with its name, or wheels of an index.
type Source struct {
	Name         string `json:"name"`
	URL          string `json:"url,omitempty"`
	Wheels       string `json:"wheels,omitempty"`       // root of the index
	Requirements string `json:"requirements,omitempty"` // as pip reads them
}

// A Build makes files in /out.
type Build struct {
	Scripts  []Script `json:"scripts"`
	Tools    bool     `json:"tools,omitempty"`
	Packages []string `json:"packages,omitempty"`
	Mounts   []string `json:"mounts,omitempty"`
	Distro   string   `json:"distro,omitempty"` // of the row: "", own, oldest
	CUDA     string   `json:"cuda,omitempty"`   // of the row: "", own, lowest-of-major, highest-of-major
}

// A Script is a file beside component.yaml. JSON has its text alone.
type Script struct{ File, Text string }

// MarshalText implements encoding.TextMarshaler.
func (s Script) MarshalText() ([]byte, error) { return []byte(s.Text), nil }

// Scripts run one after the other, as one.
type Scripts []Script

// Text is the text of all.
func (s Scripts) Text() string {
	var b strings.Builder
	for _, f := range s {
		b.WriteString(f.Text)
	}
	return b.String()
}

// MarshalText implements encoding.TextMarshaler.
func (s Scripts) MarshalText() ([]byte, error) { return []byte(s.Text()), nil }

// Install is a part of a build's /out, and where it goes.
type Install struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Run is a script for the image.
type Run struct {
	Title  string   `json:"title"`
	Script Scripts  `json:"script"`
	Mounts []string `json:"mounts,omitempty"`
}

// PartFile is a file of the image, or a symbolic link.
type PartFile struct {
	Path    string `json:"path"`
	Content string `json:"content,omitempty"`
	Link    string `json:"link,omitempty"`
	Mode    uint32 `json:"mode,omitempty"`
}

// A Pair is a variable or label.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A List is a variable that contains directories.
type List struct {
	Name string   `json:"name"`
	Dirs []string `json:"dirs"`
}

// About says what a component is.
func (d *Definition) About() string { return d.doc.About.Text }

// License is the component's, as an SPDX expression, "" if it says none.
func (d *Definition) License() string { return d.doc.License.Text }

// Homepage is where people read about the component.
func (d *Definition) Homepage() string { return d.doc.Homepage.Text }

// CompiledWith reports whether the component is compiled for a target with what another one has, or
// with "cuda".
func (d *Definition) CompiledWith(t Target, name string) bool {
	return d.Compiled(t) && slices.Contains(textsOf(d.doc.Build.Mounts), name)
}

// Builtin says why part of a component is made by code, "" if it is not.
func (d *Definition) Builtin() string { return d.doc.Builtin.Text }

// Compiled reports whether the component is compiled for a target.
func (d *Definition) Compiled(t Target) bool {
	return d.Name == harnessName || d.doc.Build.At.set() && d.scope(t).holds(d.doc.Build.When, d.doc.Build.Unless)
}

// scope is what the component's conditions know of a target on any platform.
func (d *Definition) scope(t Target) *scope {
	return &scope{Definition: d, facts: t.facts(recipe.Platform{}, t.Version(d.Name))}
}

// Origin is where a user's component is, with a digest of all that defines it; nil for assay's own.
func (d *Definition) Origin() *certificate.Download {
	if d.From == "" {
		return nil
	}
	h := sha256.New()
	all := d.Source()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(h, "%q %q\n", name, all[name])
	}
	where := d.From
	if d.Files == nil { // an entry's line is no part of what it is
		where = where[:strings.LastIndex(where, ":")]
	}
	return &certificate.Download{URL: where, Digest: "sha256:" + hex.EncodeToString(h.Sum(nil))}
}

// Source returns the component's files, component.yaml among them.
func (d *Definition) Source() map[string]string {
	all := map[string]string{DefinitionFile: d.text}
	maps.Copy(all, d.Files)
	return all
}

// Versions returns a version of each form that the component has.
func (d *Definition) Versions() []string {
	all := append(slices.Clone(d.doc.Versions.Words), d.doc.Versions.Example, d.defaultVersion())
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(v string) bool { return v == "" })
}

// Needs returns the names of what the component needs or requires on a target, and of the components
// whose output its build mounts there.
func (d *Definition) Needs(t Target) []string {
	s := d.scope(t)
	var out []string
	for _, c := range d.doc.Needs {
		out = append(out, c.Key)
	}
	for _, q := range d.doc.Requires {
		if applies(q.When, s.facts) {
			for _, c := range q.Require {
				out = append(out, c.Key)
			}
		}
	}
	if s.holds(d.doc.Build.When, d.doc.Build.Unless) {
		out = append(out, textsOf(d.doc.Build.Mounts)...)
	}
	return out
}

// facts are what a component's conditions know of a target on a platform, "" for any.
func (t Target) facts(p recipe.Platform, version string) facts {
	f := facts{t.Distro: {t.Release}, "variant": {cmp.Or(t.Variant, plain)}, "base": {t.Base.kind()}, "version": {version}}
	if p.Arch != "" {
		f["platform"] = []string{p.String()}
	}
	if t.CUDA != "" {
		f["cuda"] = []string{t.CUDA}
	}
	t.Base.addFacts(f)
	for _, c := range t.Components {
		f[c.Name] = []string{c.Version}
	}
	return f
}

// kind is a base's word in conditions.
func (b Base) kind() string {
	if b.Debootstrap != nil {
		return "debootstrap"
	}
	return "image"
}

// scope is a definition on one target and platform.
type scope struct {
	*Definition
	facts  facts
	values map[string]string
	lacks  []string // variables that have no value there
}

// holds reports whether what stands under the conditions is taken.
func (s *scope) holds(when, unless partTest) bool {
	return applies(when, s.facts) && (len(unless) == 0 || !applies(unless, s.facts))
}

func (s *scope) value(name string) string {
	if of, is := strings.CutPrefix(name, versionOf); is {
		if v := s.facts[of]; len(v) > 0 && !strings.HasPrefix(v[0], "/") {
			return v[0]
		}
	} else if v, ok := s.values[name]; ok {
		return v
	}
	if !slices.Contains(s.lacks, name) {
		s.lacks = append(s.lacks, name)
	}
	return ""
}

func (s *scope) text(t template) string { return fillText(t.Text, s.value) }

func (s *scope) texts(ts []template) (out []string) {
	for _, t := range ts {
		out = append(out, s.text(t))
	}
	return out
}

func (s *scope) pairs(m []namedValue[choices]) (out []Pair) {
	for _, c := range m {
		if v, ok := s.choose(c.Value); ok {
			out = append(out, Pair{c.Name, v})
		}
	}
	return out
}

// choose returns the first value whose conditions hold.
func (s *scope) choose(c choices) (string, bool) {
	for _, v := range c {
		if s.holds(v.When, v.Unless) {
			return s.text(v.Value.template), true
		}
	}
	return "", false
}

func (s *scope) packages(entries []packageEntry) (out []string) {
	for _, p := range entries {
		if s.holds(p.When, p.Unless) {
			out = append(out, s.texts(p.Install)...)
		}
	}
	return out
}

func (s *scope) dirs(entries []dirEntry) (out []string) {
	for _, d := range entries {
		if s.holds(d.When, d.Unless) {
			out = append(out, s.text(d.Dir))
		}
	}
	return out
}

func textsOf[K ruled](values []value[K]) (out []string) {
	for _, v := range values {
		out = append(out, v.Text)
	}
	return out
}

func (s *scope) scripts(names scripts) (out []Script) {
	for _, f := range names {
		out = append(out, Script{f.Text, s.Files[f.Text]})
	}
	return out
}

// Part returns the component on a target and platform. The function locked returns the version of a
// locked package, "" while it is not. The error says which variables have no value there.
func (d *Definition) Part(t Target, p recipe.Platform, locked func(pkg string) string) (Part, error) {
	word := t.Version(d.Name)
	s := &scope{Definition: d, facts: t.facts(p, word), values: baseValues(t, p)}
	part := Part{Name: d.Name, Version: word, About: d.doc.About.Text, License: d.doc.License.Text, Homepage: d.doc.Homepage.Text, From: d.From, Origin: d.Origin()}
	s.setVersion(word)
	s.setVars()
	part.Packages = s.packages(d.doc.Packages)
	switch of := d.doc.Version.Package.Text; {
	case of != "":
		part.Version = locked(of)
	case word == distroVersion && len(part.Packages) > 0:
		first, _, _ := strings.Cut(part.Packages[0], "=")
		part.Version = locked(first)
	}
	s.setVersion(part.Version)
	s.setVars()
	part.Packages = s.packages(d.doc.Packages) // again: they may name the version
	s.image(&part)
	s.making(&part)
	part.Vars = map[string]string{}
	for name, v := range s.values {
		part.Vars[strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))] = v
	}
	if len(s.lacks) > 0 {
		return part, noValueError{d.file, s.lacks[0], t.Name, p}
	}
	return part, nil
}

// noValueError is a variable that has no value on a target and platform.
type noValueError struct {
	file, variable, target string
	platform               recipe.Platform
}

func (e noValueError) Error() string {
	return fmt.Sprintf("%s: {%s} has no value in %s on %s", e.file, e.variable, e.target, e.platform)
}

// baseValues are the variables that do not depend on the component.
func baseValues(t Target, p recipe.Platform) map[string]string {
	v := map[string]string{
		"distro": t.Distro, "release": t.Release, "variant": t.Variant,
		"arch": p.Arch, "machine": p.Machine(), "multiarch": p.Multiarch(), "lib": "/usr/lib/" + p.Multiarch(),
	}
	if t.CUDA != "" {
		v["cuda"], v["cuda.major"], v["cuda.minor"] = t.CUDA, t.CUDAMajor(), MajorMinor(t.CUDA)
	}
	return v
}

// MajorMinor returns "12.9" of "12.9.1".
func MajorMinor(version string) string {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

func (s *scope) setVars() {
	for _, v := range s.doc.Vars {
		if text, ok := s.choose(v.Value); ok {
			s.values[v.Name] = text
		}
	}
}

func (s *scope) setVersion(v string) {
	s.values["version"], s.values["version.upstream"] = v, UpstreamVersion(v)
	s.values["version.short"], _, _ = strings.Cut(v, "-")
	s.values["version.minor"] = MajorMinor(UpstreamVersion(v))
}

// UpstreamVersion returns the part of a Debian version that the program itself reports: no epoch, no
// revision, no repacking suffix. "6.0+really5.0.9-3" is 5.0.9: the archive went back to that version.
func UpstreamVersion(v string) string {
	if _, rest, ok := strings.Cut(v, ":"); ok {
		v = rest
	}
	if _, really, ok := strings.Cut(v, "+really"); ok {
		v = really
	}
	if i := strings.LastIndex(v, "-"); i >= 0 {
		v = v[:i]
	}
	v, _, _ = strings.Cut(v, "+")
	return v
}

// image fills in what goes into the image besides what is built.
func (s *scope) image(part *Part) {
	doc := &s.doc
	for _, a := range doc.Apt {
		if s.holds(a.When, a.Unless) {
			part.Apt = append(part.Apt, AptSource{
				Name: a.Name.Text, URL: s.text(a.URL), Suite: s.text(a.Suite), Components: s.texts(a.Components),
				KeyURL: s.text(a.Key.URL), Key: s.Files[a.Key.File.Text], Fingerprint: strings.ReplaceAll(a.Key.Fingerprint.Text, " ", ""),
			})
		}
	}
	for _, f := range doc.Files {
		if s.holds(f.When, f.Unless) {
			mode, _ := strconv.ParseUint(cmp.Or(f.Mode.Text, "0644"), 8, 32)
			part.Files = append(part.Files, PartFile{Path: s.text(f.Path), Content: s.text(f.Content) + s.Files[f.From.Text], Link: s.text(f.Link), Mode: uint32(mode)})
		}
	}
	part.Env, part.Labels = s.pairs(doc.Env), s.pairs(doc.Labels)
	list := func(name string, entries []dirEntry) {
		if dirs := s.dirs(entries); len(dirs) > 0 {
			part.Lists = append(part.Lists, List{name, dirs})
		}
	}
	list("PATH", doc.Path)
	list("LD_LIBRARY_PATH", doc.Libs)
	for _, l := range doc.Lists {
		list(l.Name, l.Value)
	}
	part.WorkDir = s.text(doc.WorkDir)
	for _, a := range doc.Absent {
		if s.holds(a.When, a.Unless) {
			part.Absent = append(part.Absent, certificate.Absent{Library: s.text(a.Library), Because: a.Because.Text})
		}
	}
	for _, c := range doc.Checks {
		if s.holds(c.When, c.Unless) {
			part.Checks = append(part.Checks, s.check(c))
		}
	}
}

func (s *scope) check(c checkEntry) certificate.Check {
	out := certificate.Check{Name: c.Name.Text, Kind: certificate.CheckCommand, Match: fillPattern(c.Prints.Text, s.value)}
	file := func(kind certificate.CheckKind, name string, t template, mode uint32) certificate.Check {
		path := s.text(t)
		if name == "loads " {
			name += path[strings.LastIndex(path, "/")+1:]
		} else {
			name += path
		}
		return certificate.Check{Name: cmp.Or(c.Name.Text, name), Kind: kind, Path: path, Mode: mode}
	}
	switch {
	case c.Run != nil:
		out.Command = s.texts(c.Run)
	case c.Sh.At.set():
		out.Command = []string{"/bin/sh", "-c", s.text(c.Sh)}
	case c.Exec.At.set():
		return file(certificate.CheckFile, "has ", c.Exec, 0o111)
	case c.Has.At.set():
		return file(certificate.CheckFile, "has ", c.Has, 0)
	default:
		return file(certificate.CheckLoad, "loads ", c.Load, 0)
	}
	return out
}

// making fills in what is downloaded, built and run.
func (s *scope) making(part *Part) {
	doc := &s.doc
	built := doc.Build.At.set() && s.holds(doc.Build.When, doc.Build.Unless)
	if built {
		b := doc.Build
		part.Build = &Build{
			Scripts: s.scripts(b.Script), Tools: b.In.Text == "tools", Packages: s.packages(b.Packages), Mounts: textsOf(b.Mounts),
			Distro: b.Row.Distro.Text, CUDA: b.Row.CUDA.Text,
		}
		for _, in := range doc.Install {
			if s.holds(in.When, in.Unless) {
				part.Install = append(part.Install, Install{s.text(in.From), s.text(in.To)})
			}
		}
		part.Register = s.texts(doc.Register)
	}
	for _, r := range doc.Run {
		if s.holds(r.When, r.Unless) {
			part.Run = append(part.Run, Run{r.Title.Text, s.scripts(r.Script), textsOf(r.Mounts)})
		}
	}
	used := func(name string) bool {
		return slices.ContainsFunc(part.Run, func(r Run) bool { return slices.Contains(r.Mounts, name) })
	}
	unpacked := slices.IndexFunc(doc.Sources, func(src namedValue[sourceEntry]) bool { return src.Value.URL.At.set() })
	for i, src := range doc.Sources {
		if built && (i == unpacked || src.Value.Wheels.At.set() || slices.Contains(part.Build.Mounts, src.Name)) || used(src.Name) {
			part.Sources = append(part.Sources, Source{src.Name, s.text(src.Value.URL), s.text(src.Value.Wheels), fillText(s.Files[src.Value.Requirements.Text], s.value)})
		}
	}
}
