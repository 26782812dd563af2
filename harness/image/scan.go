package image

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/elf"
	"github.com/assay-hpc/assay/internal/ldso"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// A scan is the result of resolving every file of an image as the dynamic loader would.
type scan struct {
	kind    elf.Kind
	files   []string // for this platform's loader, sorted
	foreign []string // for other machines
	damaged []string // with the error
	missing []ldso.Missing
	absent  map[string][]string // allowed to be missing: library → files
	base    *base               // nil: the image has no records of a base
	aside   []inherited         // already missing in the base
	// interpreters that do not exist: "file: interpreter"
	interpreters []string

	mu     sync.Mutex // guards loader
	loader *ldso.Loader
}

// usualDirs are the patterns of the directories with programs and libraries, in addition to those
// in PATH and LD_LIBRARY_PATH.
var usualDirs = []string{"/usr/lib*", "/lib*", "/usr/local", "/opt", "/bin", "/sbin", "/usr/bin", "/usr/sbin"}

// debugDir contains separate debugging information, which is never loaded.
const debugDir = "/usr/lib/debug"

func scanImage(env *suite.Env, cfg Config) (*scan, error) {
	s, err := newScan(env)
	if err != nil {
		return nil, err
	}
	if cfg.Spec != none { // without a declaration, an image could claim that any file is the base's
		if s.base, err = readBase(env.Root, cfg.Records); err != nil {
			return nil, err
		}
	}
	dirs, err := scanDirs(env)
	if err != nil {
		return nil, err
	}
	found, err := findELF(env.Root, dirs)
	if err != nil {
		return nil, err
	}
	s.sort(found)
	return s, s.resolve(env.Root, cfg.Spec.Absent)
}

// newScan returns an empty scan.
func newScan(env *suite.Env) (*scan, error) {
	kind, ok := elf.KindOf(strings.TrimPrefix(env.Platform, "linux/"))
	if !ok {
		return nil, fmt.Errorf("platform %s is unknown", env.Platform)
	}
	loader, err := ldso.Open(env.Root, kind, env.Getenv("LD_LIBRARY_PATH"))
	if err != nil {
		return nil, err
	}
	return &scan{kind: kind, loader: loader, absent: map[string][]string{}}, nil
}

// scanDirs returns the directories to walk, with links resolved. None of them contains another.
func scanDirs(env *suite.Env) ([]string, error) {
	var dirs []string
	for _, p := range usualDirs {
		names, err := env.Root.Glob(p)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, names...)
	}
	dirs = append(dirs, filepath.SplitList(env.Getenv("PATH"))...)
	dirs = append(dirs, filepath.SplitList(env.Getenv("LD_LIBRARY_PATH"))...)
	var real []string
	for _, d := range dirs {
		if r, err := env.Root.Resolve(d); err == nil && r != "/" && path.IsAbs(d) && env.Root.IsDir(r) {
			real = append(real, r)
		}
	}
	slices.Sort(real)
	var out []string
	for _, d := range slices.Compact(real) {
		if !slices.ContainsFunc(out, func(o string) bool { return strings.HasPrefix(d, o+"/") }) {
			out = append(out, d)
		}
	}
	return out, nil
}

// A finding is one file with ELF's magic number.
type finding struct {
	path string
	file *elf.File
	err  error
}

// findELF reads the loader-relevant part of every ELF file below the directories, with one worker
// per processor.
func findELF(root rootfs.FS, dirs []string) ([]finding, error) {
	var mu sync.Mutex
	var found []finding
	paths := make(chan []string, 64)
	var g errgroup.Group
	g.Go(func() error {
		defer close(paths)
		return walk(root, dirs, func(batch []string) { paths <- batch })
	})
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for batch := range paths {
				for _, p := range batch {
					if f, ok := inspect(root, p); ok {
						mu.Lock()
						found = append(found, f)
						mu.Unlock()
					}
				}
			}
			return nil
		})
	}
	err := g.Wait()
	slices.SortFunc(found, func(a, b finding) int { return cmp.Compare(a.path, b.path) })
	return found, err
}

// walk passes the regular files of each directory to yield.
func walk(root rootfs.FS, dirs []string, yield func([]string)) error {
	for len(dirs) > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		entries, err := root.ReadDir(dir)
		if err != nil {
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
				continue // programs run here cannot read it either; or another check removed it
			}
			return err
		}
		var files []string
		for _, e := range entries {
			p := path.Join(dir, e.Name())
			switch {
			case e.IsDir() && p != debugDir:
				dirs = append(dirs, p)
			case e.Type().IsRegular():
				files = append(files, p)
			}
		}
		yield(files)
	}
	return nil
}

// inspect parses a file and reports whether it is a damaged or a loadable ELF file (a program or
// library, but no object file or core dump).
func inspect(root rootfs.FS, p string) (finding, bool) {
	file, err := root.OpenResolved(p)
	if err != nil {
		return finding{}, false
	}
	defer file.Close()
	f, err := elf.Parse(file)
	switch {
	case err == elf.ErrNotELF:
		return finding{}, false
	case err != nil:
		return finding{p, nil, err}, true
	}
	return finding{p, f, nil}, isLoadable(f)
}

// sort distributes the findings to the lists of the scan.
func (s *scan) sort(found []finding) {
	for _, f := range found {
		switch {
		case f.err != nil:
			s.damaged = append(s.damaged, fmt.Sprintf("%s: %v", f.path, f.err))
		case f.file.Kind != s.kind:
			s.foreign = append(s.foreign, f.path)
		default:
			s.loader.Add(f.path, f.file)
			s.files = append(s.files, f.path)
		}
	}
}

// resolve resolves the libraries of every file.
func (s *scan) resolve(root rootfs.FS, absent []certificate.Absent) error {
	type edge struct{ by, library string }
	resolved := map[edge]bool{} // by some program that loads the object
	var missing []ldso.Missing
	for _, p := range s.files {
		f := s.loader.File(p)
		r := s.loader.Resolve(p)
		missing = append(missing, r.Missing...)
		if f.Interp == "" {
			continue
		}
		if _, err := root.Stat(f.Interp); err != nil {
			s.interpreters = append(s.interpreters, p+": its loader "+f.Interp+" does not exist")
		}
		for _, l := range r.Links {
			resolved[edge{l.By, l.Library}] = true
		}
	}
	allowed := map[string]bool{}
	for _, a := range absent {
		allowed[a.Library] = true
	}
	for _, m := range missing {
		switch {
		case allowed[m.Library]:
			s.absent[m.Library] = append(s.absent[m.Library], m.File)
		case s.loader.File(m.File).Interp == "" && resolved[edge{m.By, m.Library}]:
			// A program of the image loads this library with the program's own RPATH. The library
			// cannot be loaded alone, but it never is.
		default:
			s.missing = append(s.missing, m)
		}
	}
	if s.base == nil {
		return nil
	}
	var err error
	s.aside, s.missing, err = s.base.sort(root, s.missing)
	return err
}

// unresolved returns what is missing when a file is loaded.
func (s *scan) unresolved(p string) []ldso.Missing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loader.Resolve(p).Missing
}

// mode returns a file's permission and set-id bits as in stat(2).
func mode(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
