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
		sources[s.Name] = b.download(s.URL)
		b.made(sourcesOf(sources[s.Name]))
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
	if len(p.Sources) > 0 {
		run.Mounts = append(run.Mounts, recipe.Mount{Target: "/run/assay/source", From: sources[p.Sources[0].Name]})
		start = unpack
	}
	for _, m := range p.Build.Mounts {
		if m == "cuda" {
			run.Mounts = append(run.Mounts, b.toolkit(on))
			run.Add(nvcc)
			continue
		}
		mount := recipe.Mount{Target: "/run/assay/" + m, From: sources[m]}
		if built, ok := b.built[m]; ok {
			mount.From, mount.Path = built, "/out"
		}
		if mount.From.Kind == "" {
			b.fail("%s mounts %s, which this image does not build before it", p.Name, m)
		}
		run.Mounts = append(run.Mounts, mount)
	}
	run.Add(start)
	run.Add(pieces(p.Name, p.Build.Scripts)...)
	run.Env = b.named(matrix.Scripts(p.Build.Scripts).Text(), p)
	return b.stage(recipe.Stage{Name: name + "-" + baseName(on), From: b.buildBase(p, on), Steps: []recipe.Step{run}})
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
	from := b.baseOf(on, b.Platform)
	if p.Build.Tools {
		from = b.tools(on.Release)
	}
	if len(p.Build.Packages) == 0 {
		return from
	}
	s := recipe.Stage{Name: "build-" + p.Name + "-" + baseName(on), From: from}
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
