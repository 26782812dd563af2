package component

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

//go:embed */component.yaml */*.sh
var files embed.FS

// Library returns assay's own components.
var Library = sync.OnceValue(func() *matrix.Library {
	lib, err := matrix.ReadLibrary("build/component", fs.FS(files))
	if err != nil {
		panic(err) // a test reads them all
	}
	return lib
})

// add adds a component, as its definition says, to the image.
func (b *builder) add(p matrix.Part) {
	b.declare(certificate.Component{
		Name: p.Name, Version: p.Version, License: p.License, Homepage: p.Homepage, Origin: p.Origin, Checks: p.Checks,
	})
	sources := map[string]recipe.Source{}
	for _, s := range p.Sources {
		if s.URL != "" {
			sources[s.Name] = b.download(s.URL)
			b.made(sourcesOf(sources[s.Name]))
		}
	}
	set := b.set(p)
	for _, a := range p.Apt {
		set.sources = append(set.sources, b.repository(a)...)
	}
	set.packages = append(set.packages, p.Packages...)
	if p.Build != nil {
		b.built[p.Name] = b.build(p, sources)
		set.after = append(set.after, b.register(p)...)
	}
	for _, r := range p.Run {
		run := recipe.Run{Title: r.Title, Env: b.named(r.Script.Text(), p)}
		run.Add(pieces(p.Name, r.Script)...)
		run.Add(recipe.TidyPiece)
		for _, m := range r.Mounts {
			run.Mounts = append(run.Mounts, recipe.Mount{Target: "/run/assay/" + m, From: sources[m]})
		}
		set.after = append(set.after, run)
	}
	for _, in := range p.Install {
		b.copy(b.built[p.Name], "/out/"+in.From, in.To)
	}
	b.settings(p)
}

// settings adds a part's files, variables and lists.
func (b *builder) settings(p matrix.Part) {
	for _, f := range p.Files {
		if f.Link != "" {
			b.files = append(b.files, recipe.Symlink{Path: f.Path, Target: f.Link})
		} else {
			b.file(f.Path, f.Mode, f.Content)
		}
	}
	for _, l := range p.Lists {
		b.prepend(l.Name, l.Dirs...)
	}
	for _, v := range p.Env {
		b.setenv(v.Name, v.Value)
	}
	for _, l := range p.Labels {
		b.label(l.Name, l.Value)
	}
	if p.WorkDir != "" {
		b.workDir = p.WorkDir
	}
	b.absent = append(b.absent, p.Absent...)
}

// repository returns the steps that set up a package repository. Its key is checked when the lock is
// made.
func (b *builder) repository(a matrix.AptSource) []recipe.Step {
	list, option := "/etc/apt/sources.list.d/"+a.Name+".list", "trusted=yes"
	var steps []recipe.Step
	key := "/usr/share/keyrings/" + a.Name + ".gpg"
	switch {
	case a.KeyURL != "":
		src := b.download(a.KeyURL)
		steps = append(steps, recipe.Copy{From: src, Src: "/" + src.Name(), Dst: key})
		option = "signed-by=" + key
	case a.Key != "":
		key = strings.TrimSuffix(key, "gpg") + "asc" // apt tells armor by the name
		steps = append(steps, recipe.File{Path: key, Mode: 0o644, Content: a.Key})
		option = "signed-by=" + key
	}
	line := strings.Join(append([]string{"deb [" + option + "]", a.URL, a.Suite}, a.Components...), " ")
	return append(steps, recipe.File{Path: list, Mode: 0o644, Content: line + "\n"})
}

// build adds the stage that makes a part's files in /out.
func (b *builder) build(p matrix.Part, sources map[string]recipe.Source) recipe.Source {
	on := b.row(p.Build.Distro, p.Build.CUDA)
	name := p.Name + "-" + p.Version
	run := recipe.Run{Title: "compile " + name}
	start := recipe.Piece{File: recipe.CommonDir + "begin.sh", Text: "mkdir -p /src /out\ncd /src\n"}
	if i := slices.IndexFunc(p.Sources, func(s matrix.Source) bool { return s.URL != "" }); i >= 0 {
		run.Mounts = append(run.Mounts, recipe.Mount{Target: "/run/assay/source", From: sources[p.Sources[i].Name]})
		start = unpack
	}
	for _, m := range p.Build.Mounts {
		if m == "cuda" {
			run.Mounts = append(run.Mounts, b.toolkit(on))
			run.Add(nvcc)
			continue
		}
		mount, is := b.mount(m, sources)
		if !is && b.Target.Version(m) != "" {
			b.fail("%s mounts %s, which compiles nothing, and of which its base has no path", p.Name, m)
		}
		if is {
			run.Mounts = append(run.Mounts, mount)
		}
	}
	run.Add(start)
	run.Add(pieces(p.Name, p.Build.Scripts)...)
	run.Env = b.named(matrix.Scripts(p.Build.Scripts).Text(), p)
	s := recipe.Stage{Name: name + "-" + b.buildName(p, on), From: b.buildBase(p, on)}
	for _, src := range p.Sources {
		if src.Wheels != "" {
			run.Mounts = append(run.Mounts, recipe.Mount{Target: "/run/assay/" + src.Name, From: b.wheels(p, src, s)})
		}
	}
	s.Steps = []recipe.Step{run}
	return b.stage(s)
}

// mount returns a source, what another component has built, or what the base has, for a build.
func (b *builder) mount(name string, sources map[string]recipe.Source) (recipe.Mount, bool) {
	target := "/run/assay/" + name
	if from, is := sources[name]; is {
		return recipe.Mount{Target: target, From: from}, true
	}
	if built, is := b.built[name]; is {
		return recipe.Mount{Target: target, From: built, Path: "/out"}, true
	}
	return b.ofBase(name, target)
}

// wheels returns the stage that gathers the wheels of a source, for the Python of the stage that
// installs them.
func (b *builder) wheels(p matrix.Part, src matrix.Source, in recipe.Stage) recipe.Source {
	name := in.Name + "-" + src.Name
	key := name + "/" + b.Platform.Arch
	request := recipe.WheelsRequest(in, src.Wheels, src.Requirements, b.below(in)...)
	set := b.Lock.Wheels[key]
	if len(set.Wheels) == 0 || set.Request != request {
		b.lacks(Missing{Kind: MissingWheels, Key: key, Platform: b.Platform, Stage: in.Name, Request: request, Source: src})
		set.Wheels = nil
	}
	s := recipe.Stage{Name: name, From: recipe.Source{Kind: recipe.Scratch}}
	for _, w := range set.Wheels {
		from := recipe.Source{Kind: recipe.FromURL, Ref: w.URL, Digest: "sha256:" + w.SHA256}
		s.Steps = append(s.Steps, recipe.Copy{From: from, Src: "/" + from.Name(), Dst: "/" + w.File()})
		b.made(sourcesOf(from))
	}
	return b.stage(s)
}

// buildName names the base of a build in stage names.
func (b *builder) buildName(p matrix.Part, on matrix.Target) string {
	if p.Build.Tools || slices.Contains(p.Build.Mounts, "cuda") {
		return cudaName(on)
	}
	return baseName(on)
}

// pieces returns a component's scripts as pieces of one.
func pieces(component string, scripts []matrix.Script) []recipe.Piece {
	out := make([]recipe.Piece, len(scripts))
	for i, s := range scripts {
		out[i] = recipe.Piece{File: component + "/" + s.File, Text: s.Text}
	}
	return out
}

// buildBase is the system on which a part is compiled.
func (b *builder) buildBase(p matrix.Part, on matrix.Target) recipe.Source {
	from := b.compilersOf(on, b.Platform)
	if p.Build.Tools {
		from = b.tools(on)
	}
	if len(p.Build.Packages) == 0 {
		return from
	}
	s := recipe.Stage{Name: "build-" + p.Name + "-" + b.buildName(p, on), From: from}
	s.Steps = append(s.Steps, b.apt(s, s.Name, false, p.Build.Packages...))
	return b.stage(s)
}

// register returns the step by which dpkg knows packages whose files are copied.
func (b *builder) register(p matrix.Part) []recipe.Step {
	if len(p.Register) == 0 {
		return nil
	}
	dir := "/run/assay/" + p.Name
	var debs, names []string
	for _, deb := range p.Register {
		debs = append(debs, dir+"/"+deb)
		names = append(names, strings.TrimSuffix(deb[strings.LastIndex(deb, "/")+1:], ".deb"))
	}
	return []recipe.Step{recipe.Run{
		Title:  "register the packages of " + p.Name,
		Mounts: []recipe.Mount{{Target: dir, From: b.built[p.Name], Path: "/out"}},
		Script: fmt.Sprintf("dpkg --path-exclude='/*' --force-depends -i %s\napt-mark hold %s >/dev/null\n%s", strings.Join(debs, " "), strings.Join(names, " "), recipe.Tidy),
	}}
}

// shellVariable finds the variables that a script names.
var shellVariable = regexp.MustCompile(`\$\{?([A-Z][A-Z0-9_]*)`)

// named returns the variables that a script names and a component has. A script gets no others:
// what it does not name cannot change what it makes, nor when it runs again.
func (b *builder) named(script string, p matrix.Part) []recipe.Var {
	all := maps.Clone(p.Vars)
	all["CC"] = "gcc"
	if b.Target.CUDA != "" {
		all["CUDA_HOME"], all["GENCODE"], all["CXX"] = cudaHome, gencode(b.Target), b.hostCompiler()
		all["CAPABILITIES"] = strings.Join(b.Target.Capabilities, " ")
	} else {
		all["CXX"] = "g++"
	}
	var vars []recipe.Var
	names := map[string]bool{}
	for _, m := range shellVariable.FindAllStringSubmatch(script, -1) {
		names[m[1]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if v, ok := all[name]; ok {
			vars = append(vars, recipe.Var{Name: name, Value: v})
		}
	}
	return vars
}
