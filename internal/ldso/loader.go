// Package ldso finds the libraries of a program like the dynamic loader at start-up, without
// running anything. For each loaded object, in the loader's order, it evaluates DT_RPATH and
// DT_RUNPATH with $ORIGIN, LD_LIBRARY_PATH, ld.so.cache and the default directories. It
// implements the rules of glibc and of musl.
//
// It is a leaf. [Open] reads an image's loader configuration once; [Loader.Resolve] may then be
// called for every file, from one goroutine.
package ldso

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/assay-hpc/assay/internal/elf"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// A Loader resolves libraries in one image. Its zero value is not usable.
type Loader struct {
	root rootfs.FS
	kind elf.Kind
	musl bool
	// libraryPath is LD_LIBRARY_PATH; defaults is searched last.
	libraryPath, defaults []string
	cache                 map[string][]string // soname → paths, in the cache's order
	conf                  []confDir

	files    map[string]*elf.File       // by real path; nil: not an ELF file
	listings map[string]map[string]bool // by directory
	real     map[string]string
}

const cacheLimit = 64 << 20

// Open reads the loader's configuration in an image with programs of the given kind and with
// libraryPath as LD_LIBRARY_PATH.
func Open(root rootfs.FS, kind elf.Kind, libraryPath string) (*Loader, error) {
	l := &Loader{
		root: root, kind: kind, cache: map[string][]string{},
		files: map[string]*elf.File{}, listings: map[string]map[string]bool{}, real: map[string]string{},
	}
	if libraryPath != "" {
		l.libraryPath = strings.FieldsFunc(libraryPath, func(c rune) bool { return c == ':' || c == ';' })
	}
	if l.musl = l.findMusl(); l.musl {
		return l, nil
	}
	l.defaults = defaultDirs(kind)
	var err error
	if l.conf, err = ReadConf(root); err != nil {
		return nil, err
	}
	return l, l.readCache()
}

func (l *Loader) readCache() error {
	b, err := l.root.ReadFile("/etc/ld.so.cache", cacheLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := ParseCache(b)
	for _, e := range entries {
		if !e.HWCap { // libraries that only some processors load are not relied on
			l.cache[e.Soname] = append(l.cache[e.Soname], e.Path)
		}
	}
	return err
}

// multiarch maps machines to the library directories of Debian and Red Hat.
var multiarch = map[string]string{"EM_X86_64": "x86_64-linux-gnu", "EM_AARCH64": "aarch64-linux-gnu", "EM_386": "i386-linux-gnu"}

func defaultDirs(kind elf.Kind) []string {
	var dirs []string
	if m := multiarch[kind.Machine.String()]; m != "" {
		dirs = append(dirs, "/lib/"+m, "/usr/lib/"+m)
	}
	return append(dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

// findMusl reports whether the image's loader is musl's, and reads its path file.
func (l *Loader) findMusl() bool {
	loaders, _ := l.root.Glob("/lib/ld-musl-*.so.1")
	glibc, _ := l.root.Glob("/lib64/ld-linux*.so*")
	glibcLib, _ := l.root.Glob("/lib/ld-linux*.so*")
	if len(loaders) == 0 || len(glibc)+len(glibcLib) > 0 {
		return false
	}
	l.defaults = []string{"/lib", "/usr/local/lib", "/usr/lib"}
	conf := "/etc/" + strings.TrimSuffix(path.Base(loaders[0]), ".so.1") + ".path"
	if b, err := l.root.ReadFile(conf, confLimit); err == nil {
		l.defaults = strings.FieldsFunc(string(b), func(c rune) bool { return c == ':' || c == '\n' })
	}
	return true
}

// File returns the parsed file at a path of the image; nil if it is not a readable ELF file.
func (l *Loader) File(name string) *elf.File {
	p := l.realPath(name)
	f, ok := l.files[p]
	if !ok {
		f = l.parse(p)
		l.files[p] = f
	}
	return f
}

// Add records a file that the caller has already parsed.
func (l *Loader) Add(realPath string, f *elf.File) { l.files[realPath] = f }

func (l *Loader) parse(p string) *elf.File {
	file, err := l.root.Open(p)
	if err != nil {
		return nil
	}
	defer file.Close()
	f, err := elf.Parse(file)
	if err != nil {
		return nil
	}
	return f
}

// realPath resolves links; a path that cannot be resolved is returned unchanged.
func (l *Loader) realPath(name string) string {
	r, ok := l.real[name]
	if !ok {
		var err error
		if r, err = l.root.Resolve(name); err != nil {
			r = name
		}
		l.real[name] = r
	}
	return r
}

// has reports whether a directory contains a name. Each directory is read once: the same few are
// looked up thousands of times.
func (l *Loader) has(dir, name string) bool {
	names, ok := l.listings[dir]
	if !ok {
		names = map[string]bool{}
		entries, _ := l.root.ReadDir(dir)
		for _, e := range entries {
			names[e.Name()] = true
		}
		l.listings[dir] = names
	}
	return names[name]
}

// Unlisted returns the directories of ld.so.conf that contain the library although ld.so.cache
// does not name it: ldconfig was not run.
func (l *Loader) Unlisted(soname string) []string {
	var dirs []string
	for _, c := range l.conf {
		if len(l.cache[soname]) == 0 && l.has(c.Dir, soname) {
			dirs = append(dirs, c.Dir)
		}
	}
	return dirs
}

// fits reports whether the file at a path can be loaded into a process of kind.
func (l *Loader) fits(p string, kind elf.Kind) bool {
	f := l.File(p)
	return f != nil && f.Kind == kind
}

// in returns the path of a loadable file of that name in a directory.
func (l *Loader) in(dir, name string, kind elf.Kind) (string, bool) {
	if !path.IsAbs(dir) || !l.has(path.Clean(dir), name) {
		return "", false // relative entries depend on the directory in which a program is started
	}
	p := filepath.Join(dir, name)
	return p, l.fits(p, kind)
}
