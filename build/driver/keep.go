package driver

import (
	"context"
	"errors"
	"fmt"
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

// Kept is what [Workspace.Keep] has in its directory.
type Kept struct {
	Packages  int      // of distributions' archives and other repositories
	Downloads int      // sources, Go modules, wheels and others
	Rules     []string // for --mirror: with them, builds take the files from the directory
	Images    []string // bases, REFERENCE@sha256:…, which a registry must have
}

// A locked file is one that the lock pins by its checksum.
type lockedFile struct{ url, sha256, of string }

// Keep fetches what the lock pins for the targets into a directory: archives drop what is
// superseded, and some machines that build reach no server. Unresolved entries are left out.
func (w *Workspace) Keep(ctx context.Context, targets []matrix.Target, dir string, limits fetch.Limits) (kept Kept, err error) {
	need, err := w.needed(targets)
	if err != nil {
		return kept, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return kept, err
	}
	p := &solve.Provider{Mirror: w.Mirror, Lock: w.Lock, StateDir: w.StateDir, Limits: limits, Log: w.Log}
	if err := p.Open(); err != nil {
		return kept, err
	}
	defer p.Close()
	store, rules, err := storeIn(dir)
	if err != nil {
		return kept, err
	}
	files, schemes := map[string]lockedFile{}, map[string]bool{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	fetchAll := func(count *int, locked []lockedFile) error {
		for _, f := range locked {
			file, err := store.URL(f.url)
			if err != nil {
				return err
			}
			if other, is := files[file]; is {
				if other.sha256 != f.sha256 {
					return fmt.Errorf("%s and %s would both be %s", other.url, f.url, file)
				}
				continue
			}
			scheme, _, _ := strings.Cut(f.url, ":")
			files[file], schemes[scheme+":="] = f, true
			*count++
			g.Go(func() error { return p.Keep(ctx, f.of, f.url, f.sha256, file) })
		}
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(need)) {
		if e := w.Lock.Images[key]; e.Digest != "" {
			kept.Images = append(kept.Images, key+"@"+e.Digest)
		}
		packages, downloads := w.lockedFiles(key)
		if err := errors.Join(fetchAll(&kept.Packages, packages), fetchAll(&kept.Downloads, downloads)); err != nil {
			return kept, errors.Join(err, g.Wait())
		}
	}
	kept.Rules = slices.DeleteFunc(rules, func(r string) bool { return !schemes[r[:strings.Index(r, "=")+1]] })
	return kept, g.Wait()
}

// lockedFiles returns the packages, and other files, of an entry of the lock.
func (w *Workspace) lockedFiles(key string) (packages, downloads []lockedFile) {
	for _, d := range w.Lock.Debs[key].Packages {
		packages = append(packages, lockedFile{d.URL, d.SHA256, "package " + d.Name + " " + d.Version})
	}
	for _, d := range w.Lock.Wheels[key].Wheels {
		downloads = append(downloads, lockedFile{d.URL, d.SHA256, "wheel " + d.Name + " " + d.Version})
	}
	if e := w.Lock.Downloads[key]; e.Digest != "" {
		downloads = append(downloads, lockedFile{key, strings.TrimPrefix(e.Digest, "sha256:"), "download"})
	}
	return packages, downloads
}

// storeIn returns the resolver of a directory of locked files, which maps a URL to its file, and its
// rules, one for each scheme.
func storeIn(dir string) (*mirror.Resolver, []string, error) {
	names := []string{"goproxy:", "http:", "https:"}
	for _, s := range archive.Schemes() {
		names = append(names, s.Name)
	}
	var texts []string
	var rules []mirror.Rule
	for _, name := range names {
		text := name + "=" + filepath.Join(dir, strings.TrimSuffix(name, ":"))
		rule, err := mirror.ParseRule(text)
		if err != nil {
			return nil, nil, err
		}
		texts, rules = append(texts, text), append(rules, rule)
	}
	return mirror.New(rules...), texts, nil
}
