package driver

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// Components returns the components that the matrix may name, sorted: assay's, and its own.
func (w *Workspace) Components() []*matrix.Definition {
	var all []*matrix.Definition
	for _, name := range component.Library().Names() {
		all = append(all, w.File.Definition(name))
	}
	for _, d := range w.File.Own() {
		if !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *matrix.Definition) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Component returns the component of that name; a usage error if there is none.
func (w *Workspace) Component(name string) (*matrix.Definition, error) {
	if d := w.File.Definition(name); d != nil {
		return d, nil
	}
	var names []string
	for _, d := range w.Components() {
		names = append(names, d.Name)
	}
	return nil, exit.Usagef("there is no component %q; the nearest is %q", name, words.Nearest(name, names))
}

// users returns the targets that contain a component: of the named ones, else the first of all.
func (w *Workspace) users(name string, targets []string) ([]matrix.Target, error) {
	from := w.Targets
	if len(targets) > 0 {
		var err error
		if from, err = w.Select(targets); err != nil {
			return nil, err
		}
	}
	var out []matrix.Target
	for _, t := range from {
		if t.Version(name) != "" {
			out = append(out, t)
		}
	}
	switch {
	case len(out) == 0:
		return nil, exit.Usagef("no target has the component %s; name it under the components of one", name)
	case len(targets) == 0:
		out = out[:1]
	}
	return out, nil
}

// Part returns a component on a target (the first that has it, if target is "") and platform.
func (w *Workspace) Part(name, target string, p recipe.Platform) (matrix.Part, error) {
	d, err := w.Component(name)
	if err != nil {
		return matrix.Part{}, err
	}
	var names []string
	if target != "" {
		names = []string{target}
	}
	ts, err := w.users(name, names)
	if err != nil {
		return matrix.Part{}, err
	}
	if p.Arch == "" {
		p = ts[0].Platforms[0]
	}
	part, err := d.Part(ts[0], p, func(string) string { return "" })
	if err != nil {
		return part, exit.With(exit.Usage, err)
	}
	return part, nil
}

// Copy writes a component's files to a directory, to be changed there.
func (w *Workspace) Copy(name, dir string) error {
	d, err := w.Component(name)
	if err != nil {
		return err
	}
	if d.Builtin() != "" {
		return exit.Usagef("%s is not made of files alone, because %s", name, d.Builtin())
	}
	return writeNew(dir, maps.All(d.Source()))
}

// New writes a component to a directory, to be filled in: one of packages, or one that is built from a
// source.
func New(dir, name, source, license string) error {
	files := map[string]string{matrix.DefinitionFile: "about: what it is, in one line\npackages: [" + name + "]\nchecks:\n  - {name: version, run: [" + name + ", --version], prints: '{version.upstream:exact}'}\n"}
	if source != "" {
		files[matrix.DefinitionFile] = fmt.Sprintf(`version: 1.0.0
about: what it is, in one line
license: %s
homepage: %s
sources: {%s: "%s"}
build:
  packages: [gcc, libc6-dev, make]
  script: build.sh
install: [{from: usr/, to: /usr/}]
checks:
  - {name: version, run: [%[3]s, --version], prints: '{version:exact}'}
`, license, homeOf(source), name, source)
		files["build.sh"] = "# In /src, the unpacked source, without network. What it leaves in /out can be installed.\nmake -j\"$(nproc)\"\nmake install DESTDIR=/out PREFIX=/usr\n"
	}
	return writeNew(dir, maps.All(files))
}

// homeOf returns the address of the project that a source is of.
func homeOf(source string) string {
	for _, mark := range []string{"/archive/", "/-/archive/", "/releases/"} {
		if home, _, ok := strings.Cut(source, mark); ok {
			return home
		}
	}
	return source[:strings.LastIndex(source, "/")]
}

// writeNew writes files to a directory that there is not yet.
func writeNew(dir string, files func(yield func(name, text string) bool)) error {
	if _, err := os.Stat(dir); err == nil {
		return exit.Usagef("%s is there already; remove it, or choose another name", dir)
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A ComponentTest is a component's checks in the image of one target.
type ComponentTest struct {
	Target   string          `json:"target"`
	Platform string          `json:"platform"`
	Image    string          `json:"digest,omitempty"`
	Checks   []result.Result `json:"checks,omitempty"`
	Error    string          `json:"error,omitempty"`

	err error
}

// TestComponent builds a component with what it needs on the bases of targets, and runs its checks
// there. Whatever else is compiled for the targets is left out, the harness too: it is mounted. What
// the lock lacks of it is resolved and written, as LockTargets does.
func (w *Workspace) TestComponent(ctx context.Context, name string, names []string, o BuildOptions) ([]ComponentTest, error) {
	if _, err := w.Component(name); err != nil {
		return nil, err
	}
	targets, err := w.users(name, names)
	if err != nil {
		return nil, err
	}
	for i, t := range targets {
		targets[i] = w.alone(t, name)
	}
	if o.OutDir, err = os.MkdirTemp("", "assay-component-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(o.OutDir)
	b := &build{Workspace: w, o: o, targets: targets}
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	defer b.close()
	keep := w.WriteLock
	if w.LockPath == "" {
		keep = nil
	}
	if err := b.lock(ctx, keep); err != nil {
		return nil, err
	}
	var out []ComponentTest
	for _, t := range targets {
		for _, p := range platformsOf(t, o.Platforms) {
			test := ComponentTest{Target: t.Name, Platform: p.String()}
			if test.err = b.testComponent(ctx, t, p, name, &test); test.err != nil {
				test.Error = test.err.Error()
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			out = append(out, test)
		}
	}
	return out, nil
}

// alone returns a target without the components that are compiled, but for one and what it needs.
func (w *Workspace) alone(t matrix.Target, name string) matrix.Target {
	needed := map[string]bool{}
	var need func(name string)
	need = func(name string) {
		if d := w.File.Definition(name); d != nil && !needed[name] {
			needed[name] = true
			for _, other := range d.Needs(t) {
				need(other)
			}
		}
	}
	need(name)
	left := map[string]bool{}
	parts := slices.DeleteFunc(slices.Clone(t.Components), func(c matrix.Component) bool {
		d := w.File.Definition(c.Name)
		left[c.Name] = !needed[c.Name] && (d.Compiled(t) || slices.ContainsFunc(d.Needs(t), func(other string) bool { return left[other] }))
		return left[c.Name]
	})
	t.Components = parts
	return t
}

func (b *build) testComponent(ctx context.Context, t matrix.Target, p recipe.Platform, name string, out *ComponentTest) error {
	builder, err := daemon.For(b.solver.Builders, p)
	if err != nil {
		return err
	}
	mk, err := b.Recipe(t, p, builder.Native)
	if err != nil {
		return err
	}
	digest, err := b.solver.Build(ctx, mk.Recipe)
	if err != nil {
		return exit.With(exit.Fail, err)
	}
	out.Image = digest.String()
	gate, err := b.gate(ctx, mk.Recipe, digest, nil)
	if err != nil {
		return err
	}
	st, err := certificate.Parse(gate.Certificate)
	if err != nil {
		return err
	}
	failed := 0
	for _, r := range st.Predicate.Results {
		if strings.HasPrefix(r.ID, "component/"+name+"/") {
			out.Checks = append(out.Checks, r)
			if r.Verdict == result.Fail || r.Verdict == result.Error {
				failed++
			}
		}
	}
	if failed > 0 {
		return exit.With(exit.Fail, fmt.Errorf("%s of %s failed in %s %s", words.Count(failed, "check"), name, t.Name, p.Arch))
	}
	return nil
}

// Status returns the exit status of a test.
func (t ComponentTest) Status() int {
	if t.err == nil {
		return exit.Pass
	}
	return exit.Of(t.err)
}
