package driver

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/solve"
	"github.com/assay-hpc/assay/internal/oci"
)

// A DryRun describes what a build would do.
type DryRun struct {
	SchemaVersion int         `json:"schemaVersion"`
	Builder       string      `json:"builderPlatform"` // assumed: this machine's
	Output        string      `json:"output"`
	Push          string      `json:"push,omitempty"`
	Targets       []dryTarget `json:"targets"`
	Bases         []drySource `json:"bases"`
	Downloads     []drySource `json:"downloads"`
	Packages      []drySet    `json:"packageSets"`
	Estimate      Estimate    `json:"estimate"`
}

// A dryTarget is one target, with the tags that it would get.
type dryTarget struct {
	Target     string     `json:"target"`
	Tags       []string   `json:"tags,omitempty"`
	Unresolved []string   `json:"unresolved,omitempty"` // what the lock lacks, which --unlocked resolves first
	Images     []dryImage `json:"images"`
}

// A dryImage is one platform of a target.
type dryImage struct {
	Platform string     `json:"platform"`
	Recipe   string     `json:"recipe,omitempty"` // "" while something is unresolved
	UpToDate string     `json:"upToDate,omitempty"`
	Stages   []dryStage `json:"stages,omitempty"`
	After    []dryStep  `json:"after,omitempty"` // what follows the last step
}

// A dryStage is one stage. Stages are listed in the order in which they refer to each other.
type dryStage struct {
	recipe.Stage
	On    string    `json:"platform"` // the builder's, if the stage cross-compiles
	Steps []dryStep `json:"steps"`
}

// A dryStep is one step of the builder: one of the recipe's, or consecutive files of it. Steps
// with the same number are identical and run once: all except the first have only number and title.
type dryStep struct {
	Number  int           `json:"step,omitempty"`
	Shared  bool          `json:"shared,omitempty"`
	Title   string        `json:"title"`
	Does    []recipe.Step `json:"does,omitempty"`
	Seconds *float64      `json:"seconds,omitempty"` // median of earlier builds on this machine; absent: never built here
}

// A drySource is a base, other content that the builder receives, or a download.
type drySource struct {
	recipe.Source          // as in the lock
	Platform      string   `json:"platform,omitempty"`
	From          string   `json:"from,omitempty"`     // where it is fetched from, if from a mirror
	Packages      string   `json:"packages,omitempty"` // the package set from which it is made
	Size          int64    `json:"size,omitempty"`     // in bytes, if known
	Seconds       *float64 `json:"seconds,omitempty"`
}

// A drySet is one package set of the lock. The lock does not contain installed sizes.
type drySet struct {
	Name     string       `json:"name"`
	Asked    []string     `json:"asked,omitempty"` // the others are their dependencies
	Packages []recipe.Deb `json:"packages"`        // with the URLs that are fetched
	Download int64        `json:"downloadSize"`    // in bytes, of all packages
}

// An Estimate is the time that a build would take, according to earlier builds on this machine.
// Steps that the builder still has in its cache take none.
type Estimate struct {
	Steps   int     `json:"steps"`   // distinct ones, including what follows an image's last
	Known   int     `json:"known"`   // those that were built here before
	Sum     float64 `json:"sum"`     // seconds that the known ones take if run one after another
	Longest float64 `json:"longest"` // seconds of the longest chain of steps that wait for each other
}

// DryRun returns what Build would do with the same options. It starts nothing, does no network
// access and writes nothing.
func (w *Workspace) DryRun(o BuildOptions) (*DryRun, error) {
	targets, err := w.buildTargets(o)
	if err != nil {
		return nil, err
	}
	known, err := readTimes(w.StateDir)
	if err != nil {
		w.Log("no estimates: %v", err)
	}
	b := &build{Workspace: w, o: o, targets: targets}
	b.layout, _ = oci.Open(o.OutDir) // without one, nothing is up to date
	d := &dry{build: b, times: known, native: recipe.Platform{OS: "linux", Arch: runtime.GOARCH}, numbers: map[string]int{}, ends: map[string]float64{}}
	d.run = DryRun{SchemaVersion: 1, Builder: d.native.String(), Output: o.OutDir, Push: o.Push, Targets: []dryTarget{}, Bases: []drySource{}, Downloads: []drySource{}, Packages: []drySet{}}
	for _, t := range targets {
		if err := d.target(t); err != nil {
			return nil, err
		}
	}
	return &d.run, nil
}

// dry collects a DryRun.
type dry struct {
	*build
	run     DryRun
	times   times
	native  recipe.Platform
	fetch   float64            // seconds of the longest download that the current step is the first to need
	numbers map[string]int     // of steps, by hash
	ends    map[string]float64 // when a step, stage or source is finished, if each waits only for what it needs
}

func (d *dry) target(t matrix.Target) error {
	plan, err := d.plan(t)
	if err != nil {
		return err
	}
	out := dryTarget{Target: t.Name, Unresolved: plan.Missing, Images: []dryImage{}}
	ps := platformsOf(t, d.o.Platforms)
	if len(ps) == len(t.Platforms) && plan.Hash != "" {
		out.Tags = append([]string{plan.Tag}, t.Moving...)
	}
	for _, p := range ps {
		img, err := d.image(t, p)
		if err != nil {
			return err
		}
		out.Images = append(out.Images, img)
	}
	d.run.Targets = append(d.run.Targets, out)
	return nil
}

func (d *dry) image(t matrix.Target, p recipe.Platform) (dryImage, error) {
	out := dryImage{Platform: p.String()}
	if d.layout != nil && !d.o.Force && !d.o.Unlocked {
		if done, ok := d.upToDate(t, p); ok {
			out.UpToDate = done.Digest
			return out, nil
		}
	}
	mk, err := d.Recipe(t, p, d.native)
	if err != nil {
		return out, err
	}
	if len(mk.Missing) == 0 {
		out.Recipe = mk.Recipe.Declared()
	}
	hashes := mk.Recipe.Hashes(d.native)
	var end float64
	for _, s := range mk.Recipe.Stages {
		out.Stages = append(out.Stages, d.stage(mk.Recipe, s, hashes))
		end = d.ends[hashes[s.Name].Stage]
	}
	out.After = d.after(t, p)
	for _, a := range out.After {
		end += d.count(a.Seconds)
	}
	d.run.Estimate.Longest = max(d.run.Estimate.Longest, end)
	return out, nil
}

// count counts one step and returns how long it takes, 0 if unknown.
func (d *dry) count(seconds *float64) float64 {
	e := &d.run.Estimate
	e.Steps++
	if seconds == nil {
		return 0
	}
	e.Known++
	e.Sum += *seconds
	return *seconds
}

func (d *dry) after(t matrix.Target, p recipe.Platform) []dryStep {
	export, finish := solve.AfterNames(t.Name, p)
	return []dryStep{
		{Title: "export the image", Seconds: d.times.median(export)},
		{Title: "compress its layers", Seconds: d.times.median(finish)},
		{Title: "certify it, by the suite image", Seconds: d.times.together(solve.GateName(t.Name, p), solve.LoadName(p))},
	}
}

func (d *dry) stage(r *recipe.Recipe, s recipe.Stage, hashes map[string]recipe.Hashes) dryStage {
	on := r.Platform
	if s.Native {
		on = d.native
	}
	out := dryStage{Stage: s, On: on.String(), Steps: []dryStep{}}
	// ready returns when a source is available.
	ready := func(src recipe.Source) float64 {
		if src.Kind == recipe.FromStage {
			return d.ends[hashes[src.Ref].Stage]
		}
		return d.source(src, on)
	}
	name := func(title string) string { return llb.VertexName(s.Name, on, title) }
	end := ready(s.From)
	for i := 0; i < len(s.Steps); i++ {
		var with []string
		begin := end
		st := dryStep{Does: s.Steps[i : i+1]}
		switch step := s.Steps[i].(type) {
		case recipe.Run:
			st.Title = step.Title
			for _, m := range step.Mounts {
				begin = max(begin, ready(m.From))
			}
		case recipe.Copy:
			st.Title = step.Title()
			begin = ready(step.From) // independent of the steps below it
			if i+1 == len(s.Steps) || !isCopy(s.Steps[i+1]) {
				with = append(with, name(llb.MergeTitle))
			}
		case recipe.Apt:
			st.Title = step.Title
			begin = max(begin, d.set(step.Set, step.Packages, step.Debs))
			with = append(with, name(llb.GatherTitle(step)))
		default:
			paths := filePaths(s.Steps[i:])
			st.Does, st.Title = s.Steps[i:i+len(paths)], llb.FilesTitle(paths)
			i += len(paths) - 1
		}
		d.fetched()
		hash := hashes[s.Name].Steps[i]
		if n, ok := d.numbers[hash]; ok {
			out.Steps = append(out.Steps, dryStep{Number: n, Shared: true, Title: st.Title})
			end = max(end, d.ends[hash])
			continue
		}
		st.Number = len(d.numbers) + 1
		d.numbers[hash] = st.Number
		st.Seconds = d.times.together(name(st.Title), with...)
		d.ends[hash] = begin + d.count(st.Seconds)
		end = max(end, d.ends[hash])
		out.Steps = append(out.Steps, st)
	}
	d.ends[hashes[s.Name].Stage] = end
	return out
}

func isCopy(s recipe.Step) bool {
	_, ok := s.(recipe.Copy)
	return ok
}

// filePaths returns the paths of the files and links at the beginning of the steps.
func filePaths(steps []recipe.Step) []string {
	var out []string
	for _, step := range steps {
		switch s := step.(type) {
		case recipe.File:
			out = append(out, s.Path)
		case recipe.Symlink:
			out = append(out, s.Path)
		default:
			return out
		}
	}
	return out
}

// source records what a stage starts from, copies or mounts, and returns when it is available.
func (d *dry) source(src recipe.Source, on recipe.Platform) float64 {
	key := src.Ref
	if src.Kind != recipe.FromURL {
		key = llb.BaseName(src, on)
	}
	if end, ok := d.ends[key]; ok {
		return end
	}
	end := 0.0
	var seconds *float64
	base := drySource{Source: src, Platform: on.String()}
	switch {
	case src.Kind == recipe.FromURL:
		seconds = d.times.median(llb.DownloadPrefix + src.Name())
		d.fetch = max(d.fetch, value(seconds))
		d.run.Downloads = append(d.run.Downloads, drySource{Source: src, From: d.from(src.Ref), Size: d.Lock.Downloads[src.Ref].Size, Seconds: seconds})
	case src.Kind == recipe.FromImage:
		seconds = d.times.median(llb.BaseName(src, on))
		if at := d.Mirror.Image(src.Ref); at != src.Ref {
			base.From = at
		}
	case src.Kind != recipe.FromLayout:
		return 0 // nothing, or a cache
	case src.Ref == component.HarnessSource:
		seconds, base.Size = d.times.together(solve.MakeName(src, on), llb.BaseName(src, on)), int64(len(d.sourceTar))
	default:
		seconds, base.Packages = d.times.together(solve.MakeName(src, on), llb.BaseName(src, on)), src.Ref+"/"+on.Arch
		end = d.set(base.Packages, nil, d.Lock.Debs[base.Packages].Packages)
	}
	if src.Kind != recipe.FromURL {
		base.Seconds = seconds
		d.run.Bases = append(d.run.Bases, base)
		d.run.Estimate.Sum += value(seconds)
	}
	d.ends[key] = end + value(seconds)
	return d.ends[key]
}

// set records a package set and returns when all its packages are available. They are fetched at
// the same time.
func (d *dry) set(name string, asked []string, debs []recipe.Deb) float64 {
	out := drySet{Name: name, Asked: asked, Packages: []recipe.Deb{}}
	end := 0.0
	for _, p := range debs {
		end = max(end, value(d.times.median(llb.DownloadPrefix+p.File())))
		p.URL = cmp.Or(d.from(p.URL), p.URL)
		out.Packages = append(out.Packages, p)
		out.Download += p.Size
	}
	if !slices.ContainsFunc(d.run.Packages, func(have drySet) bool { return have.Name == name }) {
		d.run.Packages = append(d.run.Packages, out)
		d.fetch = max(d.fetch, end)
	}
	return end
}

// fetched counts the downloads of one step, which run at the same time.
func (d *dry) fetched() {
	d.run.Estimate.Sum += d.fetch
	d.fetch = 0
}

// from returns where a URL is fetched from, or "" if from the URL itself or if this machine does
// not know.
func (d *dry) from(url string) string {
	at, err := d.Mirror.URL(url)
	if err != nil || at == url {
		return ""
	}
	return at
}

func value(seconds *float64) float64 {
	if seconds == nil {
		return 0
	}
	return *seconds
}
