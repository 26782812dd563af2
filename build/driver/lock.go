package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/inspect"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/solve"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/outfile"
)

// LockReport gives the outcome for each requested entry.
type LockReport struct {
	Resolved   []string          `json:"resolved"`
	Unresolved map[string]string `json:"unresolved"` // maps key to reason
	// Mirrors are rules for --mirror with which builds take what is locked from the directory of --keep.
	Mirrors []string `json:"mirrors,omitempty"`
	// Images are the bases that such builds pull from a registry.
	Images []string `json:"images,omitempty"`
}

// Resolve fills in what the lock lacks for the targets. Package sets are resolved inside the
// stage that installs them, which may itself lack something, so Resolve works in rounds for as
// long as there is progress. An entry that cannot be resolved is reported and left out, and so is
// one that depends on such an entry. After each resolved entry it calls keep, if not nil, so that
// an interrupted run loses nothing.
func (w *Workspace) Resolve(ctx context.Context, s *solve.Solver, targets []matrix.Target, platforms []recipe.Platform, keep func() error) (LockReport, error) {
	rep := LockReport{Unresolved: map[string]string{}}
	if w.Lock.Epoch == 0 {
		w.setEpoch(time.Now())
	}
	s.Epoch, s.Provider.Epoch = w.Epoch(), w.Epoch()
	for {
		todo, waiting, err := w.round(s, targets, platforms, rep)
		if err != nil {
			return rep, err
		}
		if len(todo) == 0 {
			maps.Copy(rep.Unresolved, waiting)
			return rep, nil
		}
		for _, t := range todo {
			w.Log("lock: resolving %s", t.Key)
			if err := w.resolve(ctx, s, t); err != nil {
				if ctx.Err() != nil {
					return rep, context.Cause(ctx)
				}
				rep.Unresolved[t.Key] = err.Error()
				continue
			}
			rep.Resolved = append(rep.Resolved, t.Key)
			if keep != nil {
				if err := keep(); err != nil {
					return rep, err
				}
			}
		}
	}
}

// setEpoch sets the lock's date to the day: a finer resolution carries no information.
func (w *Workspace) setEpoch(t time.Time) {
	w.Lock.Epoch = t.UTC().Truncate(24 * time.Hour).Unix()
}

type request struct {
	component.Missing
	recipe *recipe.Recipe
}

// round returns the entries that can be resolved now, because nothing that they depend on is
// missing in the recipe. For the others it returns what they wait for.
func (w *Workspace) round(s *solve.Solver, targets []matrix.Target, platforms []recipe.Platform, rep LockReport) ([]request, map[string]string, error) {
	var todo []request
	waiting := map[string]string{}
	seen := map[string]bool{}
	for _, t := range targets {
		for _, p := range platformsOf(t, platforms) {
			for _, native := range []recipe.Platform{p, s.Builders[0].Native} {
				res, err := w.Recipe(t, p, native)
				if err != nil {
					return nil, nil, err
				}
				for _, m := range res.Missing {
					if m.Kind == component.MissingDebs || m.Kind == component.MissingWheels {
						if open := firstOpen(res.Recipe, m.Stage, m.Step); open != "" {
							waiting[m.Key] = "it waits for " + open + ", which is unresolved"
							continue
						}
					}
					if !seen[m.Key] && rep.Unresolved[m.Key] == "" {
						todo = append(todo, request{m, res.Recipe})
					}
					seen[m.Key] = true
				}
			}
		}
	}
	return todo, waiting, nil
}

// firstOpen names the first item without a digest among a stage's first n steps and all that they
// need; "" if all have one.
func firstOpen(r *recipe.Recipe, stage string, n int) string {
	for _, s := range r.Below(stage, n).Stages {
		for _, src := range s.Sources() {
			switch src.Kind {
			case recipe.FromImage, recipe.FromURL, recipe.FromLayout:
				if src.Digest == "" {
					return src.Ref
				}
			}
		}
		for _, st := range s.Steps {
			if a, ok := st.(recipe.Apt); ok && a.Debs == nil {
				return a.Set
			}
		}
	}
	return ""
}

func (w *Workspace) resolve(ctx context.Context, s *solve.Solver, t request) error {
	switch t.Kind {
	case component.MissingImage:
		d, err := w.imageDigest(ctx, t.Key)
		from := "resolved"
		if err == nil && slices.ContainsFunc(w.Targets, func(of matrix.Target) bool { return of.Base.Image == t.Key && of.Base.OfAssay() }) {
			from, err = lock.Certified, w.verifyBase(ctx, t.Key, d)
		}
		if err == nil {
			w.Lock.Images[t.Key] = lock.Entry{Digest: d, From: from}
		}
		return err
	case component.MissingDownload:
		sum, size, err := s.Provider.Sum(ctx, t.Key)
		if err == nil {
			w.Lock.Downloads[t.Key] = lock.Entry{Digest: "sha256:" + sum, Size: size, From: "resolved"}
		}
		return err
	case component.MissingBase:
		m, err := s.Provider.Maker(t.Base.Suite, t.Platform.Arch)
		if err != nil {
			return err
		}
		debs, err := m.Resolve(ctx, t.Base, t.Platform.Arch)
		if err == nil {
			w.Lock.Debs[t.Key] = lock.PackageSet{Request: t.Request, Packages: debs}
		}
		return err
	case component.MissingWheels:
		wheels, err := s.ResolveWheels(ctx, t.recipe, t.Missing)
		if err == nil {
			w.Lock.Wheels[t.Key] = lock.WheelSet{Request: t.Request, Wheels: wheels}
		}
		return err
	}
	set, err := s.ResolveDebs(ctx, t.recipe, t.Missing)
	if err == nil && !set.Resolved() {
		err = errors.New("apt has nothing to install for this set")
	}
	if err == nil {
		w.Lock.Debs[t.Key] = set
	}
	return err
}

func (w *Workspace) imageDigest(ctx context.Context, ref string) (string, error) {
	h, err := oci.Digest(ctx, w.Mirror.Image(ref), oci.Options{})
	if err != nil {
		return "", err
	}
	return h.String(), nil
}

// verifyBase verifies the certificates of a base that is an image of assay's.
func (w *Workspace) verifyBase(ctx context.Context, ref, digest string) error {
	at, err := name.ParseReference(w.Mirror.Image(ref))
	if err != nil {
		return err
	}
	src, err := oci.OpenSource(at.Context().Name()+"@"+digest, oci.Options{})
	if err != nil {
		return err
	}
	if _, err = inspect.Inspect(ctx, src, attest.Policy{Keys: w.BaseKeys, Required: []string{certificate.Kind.Name}}); err != nil {
		return fmt.Errorf("the matrix takes %s for an image of assay's: %w", ref, err)
	}
	return nil
}

// Forget drops the entries of the targets and the lock's date, so that Resolve resolves them
// again. In the file each old entry stays until there is a new one.
func (w *Workspace) Forget(targets []matrix.Target) error {
	need, err := w.needed(targets)
	w.forgotten = w.Lock.Clone()
	w.Lock.Delete(func(key string) bool { _, is := need[key]; return is })
	w.Lock.Epoch = 0
	return err
}

// neededBy returns every entry that the targets need, locked or not, by target.
func (w *Workspace) neededBy(targets []matrix.Target) (map[string][]component.Missing, error) {
	saved := w.Lock
	defer func() { w.Lock = saved }()
	w.Lock = lock.New()
	return w.Unlocked(targets, nil)
}

// needed returns every entry that the targets need, locked or not, by key.
func (w *Workspace) needed(targets []matrix.Target) (map[string]component.Missing, error) {
	need, err := w.neededBy(targets)
	all := map[string]component.Missing{}
	for _, list := range need {
		for _, m := range list {
			all[m.Key] = m
		}
	}
	return all, err
}

// Prune drops entries that no target needs. It adds entries for what targets need but is not
// resolved yet, marked as unresolved, so that the file shows them.
func (w *Workspace) Prune() error {
	keep, err := w.needed(w.Targets)
	if err != nil {
		return err
	}
	w.Lock.Delete(func(key string) bool { _, is := keep[key]; return !is })
	for k, m := range keep {
		w.mark(k, m)
	}
	return nil
}

func (w *Workspace) mark(key string, m component.Missing) {
	l := w.Lock
	switch m.Kind {
	case component.MissingImage:
		if _, ok := l.Images[key]; !ok {
			l.Images[key] = lock.Entry{From: "unresolved"}
		}
	case component.MissingDownload:
		if _, ok := l.Downloads[key]; !ok {
			l.Downloads[key] = published(key)
		}
	case component.MissingWheels:
		if _, ok := l.Wheels[key]; !ok {
			l.Wheels[key] = lock.WheelSet{Request: m.Request}
		}
	default:
		if _, ok := l.Debs[key]; !ok {
			l.Debs[key] = lock.PackageSet{Request: m.Request}
		}
	}
}

// published returns the checksum that a publisher has announced for a URL, or an unresolved
// entry.
func published(url string) lock.Entry {
	if p, ok := component.Published()[url]; ok {
		return lock.Entry{Digest: "sha256:" + p.SHA256, From: p.From}
	}
	return lock.Entry{From: "unresolved"}
}

// LockTargets resolves what the targets need and writes matrix.lock, even if some of it could not
// be resolved.
func (w *Workspace) LockTargets(ctx context.Context, targets []matrix.Target, o BuildOptions) (LockReport, error) {
	var rep LockReport
	if w.LockPath == "" {
		return rep, errEmbeddedLock
	}
	if err := w.Prune(); err != nil {
		return rep, err
	}
	need, err := w.Unlocked(targets, nil)
	if err != nil || len(need) == 0 {
		return rep, errors.Join(err, w.WriteLock())
	}
	s, stop, err := w.NewSolver(ctx, o)
	if err != nil {
		return rep, err
	}
	defer stop()
	return w.lockWith(ctx, s, targets)
}

func (w *Workspace) lockWith(ctx context.Context, s *solve.Solver, targets []matrix.Target) (LockReport, error) {
	rep, err := w.Resolve(ctx, s, targets, nil, w.WriteLock)
	if err != nil {
		return rep, err
	}
	if old := w.forgotten; old != nil {
		for key, why := range rep.Unresolved {
			if old.Has(key) {
				rep.Unresolved[key] = why + "; what was locked stays"
			}
		}
		if len(rep.Resolved) == 0 {
			w.Lock.Epoch = old.Epoch
		}
	}
	return rep, errors.Join(w.Prune(), w.WriteLock())
}

// Stale lists the lock's entries that no target needs.
func (w *Workspace) Stale() ([]string, error) {
	have := w.Lock.Keys()
	saved := w.Lock
	defer func() { w.Lock = saved }()
	w.Lock = saved.Clone()
	if err := w.Prune(); err != nil {
		return nil, err
	}
	kept := w.Lock.Keys()
	return slices.DeleteFunc(have, func(k string) bool { return slices.Contains(kept, k) }), nil
}

// A LockDiff is what differs between an earlier lock and the matrix's.
type LockDiff struct {
	SchemaVersion int          `json:"schemaVersion"`
	Changes       []LockChange `json:"changes"`
}

// A LockChange is one entry that differs, with the targets that need it: none if only the earlier
// lock has the entry.
type LockChange struct {
	lock.Change
	Targets []string `json:"targets"`
}

// DiffLock compares the lock file old with the matrix's lock. Given targets, it leaves out entries
// that none of them needs.
func (w *Workspace) DiffLock(old string, targets []matrix.Target) (LockDiff, error) {
	out := LockDiff{SchemaVersion: 1, Changes: []LockChange{}}
	f, err := infile.OpenArgument(old)
	if err != nil {
		return out, exit.With(exit.Usage, err)
	}
	defer f.Close()
	was, err := lock.Read(old, f)
	if err != nil {
		return out, exit.With(exit.Usage, err)
	}
	all := len(targets) == 0
	if all {
		targets = w.Targets
	}
	need, err := w.neededBy(targets)
	if err != nil {
		return out, err
	}
	users := map[string][]string{}
	for name, list := range need {
		for _, m := range list {
			users[m.Key] = append(users[m.Key], name)
		}
	}
	for _, c := range lock.Diff(was, w.Lock) {
		names := slices.Sorted(slices.Values(users[c.Key]))
		names = slices.Compact(names)
		if len(names) > 0 || all {
			out.Changes = append(out.Changes, LockChange{Change: c, Targets: append([]string{}, names...)})
		}
	}
	return out, nil
}

var errEmbeddedLock = exit.Usagef("the embedded matrix has an embedded lock, which cannot be written; give --matrix FILE")

// WriteLock atomically replaces matrix.lock.
func (w *Workspace) WriteLock() error {
	if w.LockPath == "" {
		return errEmbeddedLock
	}
	l := w.Lock
	if w.forgotten != nil {
		l = l.Clone()
		l.Keep(w.forgotten)
	}
	return outfile.Write(w.LockPath, l.Marshal())
}
