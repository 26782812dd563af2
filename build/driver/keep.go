package driver

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/build/archive"
	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/mirror"
	"github.com/assay-hpc/assay/build/solve"
)

// Keep fetches the packages of distributions' archives that the targets' locked sets name into a
// directory: archives drop what is superseded. It returns the number of packages and the rules for
// --mirror, one for each scheme, with which builds take them from there.
func (w *Workspace) Keep(ctx context.Context, targets []matrix.Target, dir string, limits fetch.Limits) (n int, rules []string, err error) {
	need, err := w.needed(targets)
	if err != nil {
		return 0, nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return 0, nil, err
	}
	p := &solve.Provider{Mirror: w.Mirror, Lock: w.Lock, StateDir: w.StateDir, Limits: limits, Log: w.Log}
	if err := p.Open(); err != nil {
		return 0, nil, err
	}
	defer p.Close()
	store, rules, err := storeIn(dir)
	if err != nil {
		return 0, nil, err
	}
	files, schemes := map[string]bool{}, map[string]bool{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, key := range slices.Sorted(maps.Keys(need)) {
		for _, d := range w.Lock.Debs[key].Packages {
			file, err := store.URL(d.URL)
			if err != nil {
				return 0, nil, errors.Join(err, g.Wait())
			}
			if files[file] || !mirror.IsPath(file) {
				continue // twice, or of a server that no rule is for
			}
			scheme, _, _ := strings.Cut(d.URL, ":")
			files[file], schemes[scheme+":="] = true, true
			g.Go(func() error { return p.Keep(ctx, d, file) })
		}
	}
	rules = slices.DeleteFunc(rules, func(r string) bool { return !schemes[r[:strings.Index(r, "=")+1]] })
	return len(files), rules, g.Wait()
}

// storeIn returns the resolver of a directory of packages, which maps a package's URL to its file,
// and its rules, one for each scheme.
func storeIn(dir string) (*mirror.Resolver, []string, error) {
	var texts []string
	var rules []mirror.Rule
	for _, s := range archive.Schemes() {
		text := s.Name + "=" + filepath.Join(dir, strings.TrimSuffix(s.Name, ":"))
		rule, err := mirror.ParseRule(text)
		if err != nil {
			return nil, nil, err
		}
		texts, rules = append(texts, text), append(rules, rule)
	}
	return mirror.New(rules...), texts, nil
}
