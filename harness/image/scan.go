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

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/elf"
	"github.com/assay-hpc/assay/harness/ldso"
	"github.com/assay-hpc/assay/harness/rootfs"
	"github.com/assay-hpc/assay/harness/suite"
)

// A scan is what the dynamic loader would make of every file in an image.
type scan struct {
	kind    elf.Kind
	files   []string // that this platform's loader handles, sorted
	foreign []string // of another machine
	damaged []string // with the reason
	missing []ldso.Missing
	absent  map[string][]string // allowed to be missing: library → files
	base    *base               // nil: the image keeps no records of one
	aside   []inherited         // missing in the base already
	// interpreters that do not exist: "file: interpreter"
	interpreters []string

	mu     sync.Mutex // guards loader
	loader *ldso.Loader
}

// usualDirs are the patterns of the directories where programs and libraries
// lie, besides those of PATH and LD_LIBRARY_PATH.
var usualDirs = []string{"/usr/lib*", "/lib*", "/usr/local", "/opt", "/bin", "/sbin", "/usr/bin", "/usr/sbin"}

// debugDir holds separate debugging information, which is never loaded.
const debugDir = "/usr/lib/debug"

func scanImage(env *suite.Env, spec *certificate.ImageSpec) (*scan, error) {
	s, err := newScan(env)
	if err != nil {
		return nil, err
	}
	if spec != none { // an image without a declaration could call anything the base's
		if s.base, err = readBase(env.Root); err != nil {
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
	return s, s.resolve(env.Root, spec.Absent)
}

// newScan returns a scan that has looked at nothing yet.
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

// scanDirs returns the directories to walk, with links followed, none of them
// inside another.
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

// findELF reads the loader's part of every ELF file below the directories, as
// many at once as there are processors.
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

// walk hands out the regular files of each directory.
func walk(root rootfs.FS, dirs []string, yield func([]string)) error {
	for len(dirs) > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		entries, err := root.ReadDir(dir)
		if err != nil {
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
				continue // programs run here cannot read them either; or another check tidied up
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

// inspect reports what a file is, if it is an ELF file that can be loaded or
// started: no object file, no core dump.
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

// sort puts each finding where it belongs.
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

// resolve asks the loader about every file.
func (s *scan) resolve(root rootfs.FS, absent []certificate.Absent) error {
	type edge struct{ by, library string }
	resolved := map[edge]bool{} // by some program that loads the object with it
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
			// A library that a program of the image loads with its own RPATH:
			// alone it would not start, but nobody starts it alone.
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

// unresolved returns what would be missing when a library is loaded.
func (s *scan) unresolved(p string) []ldso.Missing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loader.Resolve(p).Missing
}

// mode returns a file's permission bits with set-id bits as stat(2) has them.
func mode(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
