// Package component knows how to build each part of an image. Each component is one file with a
// function that adds its stages, packages, files, variables and checks to the recipe of one
// target. The package is pure: what must be looked up comes from matrix.lock, and what the lock
// lacks is reported, not guessed.
package component

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// Input is what a recipe is made from.
type Input struct {
	Target   matrix.Target
	All      []matrix.Target // the whole matrix: shared parts are built on its oldest members
	Platform recipe.Platform
	Native   recipe.Platform // the builder's own; equal to Platform for hashing
	Lock     *lock.Lock
	Source   Source
	// Repository is where the images are published: "ghcr.io/assay-hpc/assay".
	Repository string
	// Definition returns what the matrix means by a component's name; nil: as [Library] does.
	Definition func(name string) *matrix.Definition
}

func (in Input) definition(name string) *matrix.Definition {
	if in.Definition == nil {
		return Library().Definition(name)
	}
	return in.Definition(name)
}

// Source is the harness's own source, which assay embeds.
type Source struct {
	Digest      string           // "sha256:…" of the source tree
	Version     string           // assay's version
	Go          string           // toolchain to compile with: "1.26.8"
	Modules     []module.Version // modules that the harness is compiled from
	CUDAModules []module.Version // the same with the code for GPUs
}

// Kind is the kind of a Missing entry.
type Kind string

const (
	MissingImage    Kind = "image"
	MissingDownload Kind = "download"
	MissingDebs     Kind = "debs"
	MissingBase     Kind = "base"
	MissingWheels   Kind = "wheels"
)

// Missing is one thing that the recipe needs and matrix.lock does not pin.
type Missing struct {
	Kind     Kind
	Key      string // in matrix.lock
	Platform recipe.Platform

	// For debs and wheels: where in the recipe the set is installed.
	Stage   string
	Step    int
	Request string
	// For wheels:
	Source matrix.Source
	// For a base:
	Base matrix.Debootstrap
}

// Result is a recipe and what it lacks. A recipe that lacks something can be
// resolved and shown, but not built.
type Result struct {
	Recipe  *recipe.Recipe
	Missing []Missing
}

// makers are the components of which a part is made here: what no file can say.
var makers = map[string]func(b *builder, version string){}

// Make returns the recipe of a target on a platform.
func Make(in Input) (Result, error) {
	b, err := assemble(in)
	if err != nil {
		return Result{}, err
	}
	// What the image declares about itself must not depend on where it was built.
	canonical := b
	if in.Native != in.Platform {
		in.Native = in.Platform
		if canonical, err = assemble(in); err != nil {
			return Result{}, err
		}
	}
	r := b.recipe
	if r.Whole, _, err = Hash(in); err != nil {
		return Result{}, err
	}
	canonical.recipe.Whole = r.Whole
	img := r.Image()
	img.Steps = append(img.Steps, recipe.File{Path: certificate.SpecPath, Mode: 0o644, Content: specText(canonical.recipe.Spec())})
	if err := r.Validate(); err != nil {
		return Result{}, err
	}
	return Result{Recipe: r, Missing: b.missing}, b.err
}

// Hash returns the SHA-256, in hex, of the recipes of a target for all of its platforms, and what
// they lack. The builder's own platform does not change it.
func Hash(in Input) (sum string, missing []Missing, err error) {
	platforms := in.Target.Platforms
	if len(platforms) == 0 {
		platforms = []recipe.Platform{in.Platform}
	}
	h := sha256.New()
	if in.Lock != nil {
		fmt.Fprintln(h, in.Lock.Epoch)
	}
	for _, p := range platforms {
		in.Platform, in.Native = p, p
		b, err := assemble(in)
		if err == nil {
			err = b.err
		}
		if err != nil {
			return "", nil, err
		}
		missing = append(missing, b.missing...)
		fmt.Fprintln(h, b.recipe.Hash())
	}
	return hex.EncodeToString(h.Sum(nil)), missing, nil
}

// assemble builds the recipe without the image's declaration of itself.
func assemble(in Input) (*builder, error) {
	b := &builder{Input: in, env: map[string]string{}, ownLabels: map[string]string{}, built: map[string]recipe.Source{}}
	if in.Target.Base.Debootstrap == nil {
		b.keepBase()
		b.declareBase()
	}
	if in.Target.CUDA != "" {
		b.cudaImage()
	}
	parts, err := b.parts()
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		set, copies := b.set(p), len(b.copies)
		packages := len(set.packages)
		b.add(p)
		if make := makers[p.Name]; make != nil && p.From == "" {
			make(b, in.Target.Version(p.Name))
		}
		b.owns(set.packages[packages:], b.copies[copies:])
	}
	b.recipe = b.finish()
	return b, nil
}

// parts returns the parts of the target in the order of the matrix, but for those that others need:
// these come before them.
func (b *builder) parts() ([]matrix.Part, error) {
	var out []matrix.Part
	added := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if added[name] || b.Target.Version(name) == "" {
			return nil
		}
		added[name] = true
		d := b.definition(name)
		if d == nil {
			return fmt.Errorf("target %s: no component is called %q; there are %s", b.Target.Name, name, strings.Join(Library().Names(), ", "))
		}
		for _, other := range d.Needs(b.Target) {
			if err := add(other); err != nil {
				return err
			}
		}
		p, err := d.Part(b.Target, b.Platform, b.locked)
		out = append(out, p)
		return err
	}
	for _, c := range b.Target.Components {
		if err := add(c.Name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// builder collects the recipe of one target.
type builder struct {
	Input
	missing []Missing
	err     error
	recipe  *recipe.Recipe

	stages     []recipe.Stage
	components []certificate.Component
	absent     []certificate.Absent

	// The image's own steps, grouped in the order in which they run.
	packageSet            // assay's components
	own        packageSet // the matrix's, on top: a change of one leaves the other as it is
	files      []recipe.Step
	copies     []recipe.Step // rarely changed ones first, so that images share layers

	built map[string]recipe.Source // the stage of each component that is compiled

	lists    []pathVariable // directory lists, prepended to the base's own
	env      map[string]string
	envOrder []string
	workDir  string

	ownLabels map[string]string // set by components
}

// A packageSet is packages that are installed together.
type packageSet struct {
	sources  []recipe.Step // keys and lists of package repositories
	packages []string
	after    []recipe.Step // what must follow the packages
}

// set returns the set that a part's packages belong to.
func (b *builder) set(p matrix.Part) *packageSet {
	if p.From != "" {
		return &b.own
	}
	return &b.packageSet
}

func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("target %s: "+format, append([]any{b.Target.Name}, args...)...)
	}
}

func (b *builder) lacks(m Missing) {
	same := func(have Missing) bool { return have.Kind == m.Kind && have.Key == m.Key }
	if !slices.ContainsFunc(b.missing, same) {
		b.missing = append(b.missing, m)
	}
}

// BaseKey is the key in matrix.lock of a debootstrap base's packages.
func BaseKey(d matrix.Debootstrap, p recipe.Platform) string {
	return fmt.Sprintf("base-%s-%s/%s", d.Suite, d.Variant, p.Arch)
}

func (b *builder) debootstrap(d matrix.Debootstrap, p recipe.Platform) recipe.Source {
	key := BaseKey(d, p)
	set := b.Lock.Debs[key]
	if len(set.Packages) == 0 {
		b.lacks(Missing{Kind: MissingBase, Key: key, Platform: p, Base: d, Request: d.Suite + " " + d.Variant})
	}
	return recipe.Source{Kind: recipe.FromLayout, Ref: fmt.Sprintf("base-%s-%s", d.Suite, d.Variant), Digest: set.Digest()}
}

// platform returns the platform that a stage runs on.
func (b *builder) platform(native bool) recipe.Platform {
	if native {
		return b.Native
	}
	return b.Platform
}

// download returns a pinned download.
func (b *builder) download(url string) recipe.Source {
	e := b.Lock.Downloads[url]
	if e.Digest == "" {
		b.lacks(Missing{Kind: MissingDownload, Key: url})
	}
	return recipe.Source{Kind: recipe.FromURL, Ref: url, Digest: e.Digest}
}

// apt returns the step that installs packages at the end of the stage in its current state, from
// the set named after the stage and its architecture.
func (b *builder) apt(s recipe.Stage, name string, upgrade bool, packages ...string) recipe.Apt {
	p := b.platform(s.Native)
	key := name + "/" + p.Arch
	slices.Sort(packages)
	a := recipe.Apt{Title: "install " + name + " packages", Set: key, Packages: slices.Compact(packages), Upgrade: upgrade}
	request := a.RequestHash(s, b.below(s)...)
	set := b.Lock.Debs[key]
	if !set.Resolved() || set.Request != request {
		b.lacks(Missing{Kind: MissingDebs, Key: key, Platform: p, Stage: s.Name, Step: len(s.Steps), Request: request})
		return a
	}
	a.Debs = append([]recipe.Deb{}, set.Packages...) // none, if the stage has them all
	return a
}

// below returns the stages that a stage starts from, nearest first.
func (b *builder) below(s recipe.Stage) []recipe.Stage {
	var out []recipe.Stage
	for s.From.Kind == recipe.FromStage {
		i := slices.IndexFunc(b.stages, func(have recipe.Stage) bool { return have.Name == s.From.Ref })
		s = b.stages[i]
		out = append(out, s)
	}
	return out
}

// stage adds a stage unless it already exists, and returns a source that refers to it.
func (b *builder) stage(s recipe.Stage) recipe.Source {
	if !slices.ContainsFunc(b.stages, func(have recipe.Stage) bool { return have.Name == s.Name }) {
		b.stages = append(b.stages, s)
	}
	return recipe.Source{Kind: recipe.FromStage, Ref: s.Name}
}

func (b *builder) declare(c certificate.Component) { b.components = append(b.components, c) }

// made adds what a component was made from and how the gate checks it.
func (b *builder) made(sources []certificate.Download, checks ...certificate.Check) {
	c := b.component()
	c.Sources, c.Checks = append(c.Sources, sources...), append(c.Checks, checks...)
}

// component returns the last declared component.
func (b *builder) component() *certificate.Component { return &b.components[len(b.components)-1] }

// owns records which packages and layers the last declared component put into the image.
func (b *builder) owns(packages []string, copies []recipe.Step) {
	c := b.component()
	for _, p := range packages {
		name, _, _ := strings.Cut(p, "=")
		c.Packages = append(c.Packages, name)
	}
	for _, s := range copies {
		c.Layers = append(c.Layers, s.(recipe.Copy).Title())
	}
}

func (b *builder) install(packages ...string) { b.packages = append(b.packages, packages...) }

func (b *builder) file(path string, mode uint32, content string) {
	b.files = append(b.files, recipe.File{Path: path, Mode: mode, Content: content})
}

func (b *builder) copy(from recipe.Source, src, dst string) {
	b.copies = append(b.copies, recipe.Copy{From: from, Src: src, Dst: dst})
}

// A pathVariable is an environment variable that contains a list of directories.
type pathVariable struct {
	name string
	dirs []string
}

// prepend puts directories in front of a variable's value, after those already added.
// LD_LIBRARY_PATH is also written to ld.so.conf.d, for programs that sshd starts without an
// environment.
func (b *builder) prepend(name string, dirs ...string) {
	for i := range b.lists {
		if b.lists[i].name == name {
			b.lists[i].dirs = append(b.lists[i].dirs, dirs...)
			return
		}
	}
	b.lists = append(b.lists, pathVariable{name, dirs})
}

func (b *builder) libs() []string {
	for _, l := range b.lists {
		if l.name == "LD_LIBRARY_PATH" {
			return l.dirs
		}
	}
	return nil
}

func (b *builder) label(name, value string) { b.ownLabels[name] = value }

func (b *builder) setenv(name, value string) {
	if _, ok := b.env[name]; !ok {
		b.envOrder = append(b.envOrder, name)
	}
	b.env[name] = value
}
