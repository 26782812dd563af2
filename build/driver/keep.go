package driver

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/build/archive"
	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/matrix"
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
	files, schemes := map[string]bool{}, map[string]bool{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, key := range slices.Sorted(maps.Keys(need)) {
		for _, d := range w.Lock.Debs[key].Packages {
			scheme, path, _ := strings.Cut(d.URL, ":")
			if files[d.URL] || !slices.ContainsFunc(archive.Schemes(), func(s archive.Scheme) bool { return s.Name == scheme+":" }) {
				continue
			}
			files[d.URL], schemes[scheme] = true, true
			g.Go(func() error { return p.Keep(ctx, d, filepath.Join(dir, scheme, filepath.FromSlash(path))) })
		}
	}
	for _, s := range slices.Sorted(maps.Keys(schemes)) {
		rules = append(rules, fmt.Sprintf("%s:=%s", s, filepath.Join(dir, s)))
	}
	return len(files), rules, g.Wait()
}
