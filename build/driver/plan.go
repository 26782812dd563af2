package driver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/exit"
)

// buildTargets returns the targets to build. What the lock lacks is an error unless it is to be
// resolved first.
func (w *Workspace) buildTargets(o BuildOptions) ([]matrix.Target, error) {
	targets, err := w.Select(o.Names)
	if err != nil || o.Unlocked {
		return targets, err
	}
	need, err := w.Unlocked(targets, o.Platforms)
	if err == nil && len(need) > 0 {
		err = NotLockedError(w.lockName(), need)
	}
	return targets, err
}

// Select returns the targets of the given names and globs. Without any, it returns the matrix's
// first target: a user who names no target should not start a build of everything.
func (w *Workspace) Select(names []string) ([]matrix.Target, error) {
	if len(names) == 0 {
		return w.Targets[:1], nil
	}
	ts, err := matrix.Select(w.Targets, names)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return ts, nil
}

// Unlocked lists the entries that targets need and the lock lacks, by target.
func (w *Workspace) Unlocked(targets []matrix.Target, platforms []recipe.Platform) (map[string][]component.Missing, error) {
	out := map[string][]component.Missing{}
	for _, t := range targets {
		for _, p := range platformsOf(t, platforms) {
			res, err := w.Recipe(t, p, p)
			if err != nil {
				return nil, err
			}
			if len(res.Missing) > 0 {
				out[t.Name] = append(out[t.Name], res.Missing...)
			}
		}
	}
	return out, nil
}

func platformsOf(t matrix.Target, only []recipe.Platform) []recipe.Platform {
	if len(only) == 0 {
		return t.Platforms
	}
	var out []recipe.Platform
	for _, p := range t.Platforms {
		if slices.Contains(only, p) {
			out = append(out, p)
		}
	}
	return out
}

// NotLockedError says what a build lacks and which command resolves it.
func NotLockedError(lockName string, need map[string][]component.Missing) error {
	var b strings.Builder
	var names []string
	for _, target := range slices.Sorted(maps.Keys(need)) {
		names = append(names, target)
		var keys []string
		for _, m := range need[target] {
			if k := string(m.Kind) + " " + m.Key; !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		fmt.Fprintf(&b, "  %s:\n    %s\n", target, strings.Join(keys, "\n    "))
	}
	return exit.Usagef("%s does not pin all that is needed:\n%sresolve it on a machine that reaches these sources:\n  assay lock %s\nor build with --unlocked, which resolves for this build alone",
		lockName, b.String(), strings.Join(names, " "))
}

func (w *Workspace) lockName() string { return cmp.Or(w.LockPath, "matrix.lock (embedded)") }

// Recipe returns the recipe of a target on a platform, for a builder of the given native
// platform.
func (w *Workspace) Recipe(t matrix.Target, p, native recipe.Platform) (component.Result, error) {
	return component.Make(w.input(t, p, native))
}

func (w *Workspace) input(t matrix.Target, p, native recipe.Platform) component.Input {
	return component.Input{Target: t, All: w.Targets, Platform: p, Native: native, Lock: w.Lock, Source: w.source, Repository: w.File.Repository, Definition: w.File.Definition}
}

// A Planned target is a target with its recipes.
type Planned struct {
	matrix.Target
	Hash    string   `json:"recipe,omitempty"` // SHA-256 of the platforms' recipes, which certificates name; "" while unresolved
	FullTag string   `json:"image,omitempty"`  // repository:tag
	Missing []string `json:"unresolved,omitempty"`
}

// Plan returns the targets with tags and recipe hashes. It does no network
// access and starts nothing.
func (w *Workspace) Plan(targets []matrix.Target) ([]Planned, error) {
	plan := make([]Planned, 0, len(targets))
	for _, t := range targets {
		p, err := w.plan(t)
		if err != nil {
			return nil, err
		}
		plan = append(plan, p)
	}
	return plan, nil
}

func (w *Workspace) plan(t matrix.Target) (Planned, error) {
	out := Planned{Target: t}
	sum, missing, err := component.Hash(w.input(t, recipe.Platform{}, recipe.Platform{}))
	if err != nil {
		return out, err
	}
	for _, m := range missing {
		if !slices.Contains(out.Missing, m.Key) {
			out.Missing = append(out.Missing, m.Key)
		}
	}
	if len(out.Missing) > 0 {
		return out, nil
	}
	out.Hash = sum
	out.Tag = strings.ReplaceAll(t.Tag, "{recipe}", out.Hash[:7])
	out.FullTag = w.File.Repository + ":" + out.Tag
	return out, nil
}
