package ldso

import (
	"path"
	"strings"

	"github.com/assay-hpc/assay/internal/elf"
)

// A Missing is a library that the loader would not find.
type Missing struct {
	Library string // as DT_NEEDED names it
	By      string // the object that needs it
	File    string // the file that would fail to start
}

// A link is a library that was found.
type link struct {
	By      string
	Library string
	Path    string
}

// A resolution is the result of starting one file.
type resolution struct {
	Links   []link
	Missing []Missing
}

// An object is a loaded file, with the object that needs it.
type object struct {
	path   string
	file   *elf.File
	loader *object
}

// Resolve finds the libraries that the file at name needs, and those that these need, breadth
// first like the loader. A file that is not dynamic needs nothing.
func (l *Loader) Resolve(name string) resolution {
	f := l.File(name)
	if f == nil || !f.Dynamic {
		return resolution{}
	}
	s := search{l: l, loaded: map[string]string{}}
	if f.Soname != "" {
		s.loaded[f.Soname] = name
	}
	main := &object{path: name, file: f}
	s.queue = []*object{main}
	for len(s.queue) > 0 {
		o := s.queue[0]
		s.queue = s.queue[1:]
		for _, lib := range o.file.Needed {
			s.need(o, lib, main)
		}
	}
	return s.result
}

type search struct {
	l      *Loader
	loaded map[string]string // name or soname → path
	queue  []*object
	result resolution
}

// need loads one DT_NEEDED entry of o.
func (s *search) need(o *object, lib string, main *object) {
	p, ok := s.loaded[lib]
	if !ok {
		if s.l.musl && muslItself(lib) {
			return
		}
		if p, ok = s.l.find(o, lib, main.file.Kind); !ok {
			s.result.Missing = append(s.result.Missing, Missing{lib, o.path, main.path})
			return
		}
		s.load(o, lib, p)
	}
	s.result.Links = append(s.result.Links, link{o.path, lib, p})
}

// load records a library found at p, once per file regardless of its name.
func (s *search) load(by *object, lib, p string) {
	f, real := s.l.File(p), s.l.realPath(p)
	s.loaded[lib] = p
	if _, again := s.loaded[real]; again {
		return
	}
	s.loaded[real] = p
	if f.Soname != "" {
		s.loaded[f.Soname] = p
	}
	s.queue = append(s.queue, &object{p, f, by})
}

// muslItself reports whether a name stands for musl's loader itself (ldso/dynlink.c,
// load_library: the reserved names).
func muslItself(lib string) bool {
	if strings.HasPrefix(lib, "libc.musl-") {
		return true
	}
	name, ok := strings.CutPrefix(lib, "lib")
	base, _, _ := strings.Cut(name, ".")
	switch base {
	case "c", "pthread", "rt", "m", "dl", "util", "xnet":
		return ok
	}
	return false
}

// find searches for a library that o needs (glibc: elf/dl-load.c,
// _dl_map_object; musl: ldso/dynlink.c, load_library).
func (l *Loader) find(o *object, lib string, kind elf.Kind) (string, bool) {
	if strings.Contains(lib, "/") {
		for _, p := range expand(o, []string{lib}) { // one or none
			return p, path.IsAbs(p) && l.fits(p, kind)
		}
		return "", false
	}
	for _, dir := range l.dirs(o) {
		if p, ok := l.in(dir, lib, kind); ok {
			return p, true
		}
	}
	if !o.file.NoDefault {
		for _, p := range l.cache[lib] {
			if l.fits(p, kind) {
				return p, true
			}
		}
		for _, dir := range l.defaults {
			if p, ok := l.in(dir, lib, kind); ok {
				return p, true
			}
		}
	}
	return "", false
}

// Find returns the file of a library for a program that has no RPATH for it.
func (l *Loader) Find(lib string) (string, bool) {
	return l.find(&object{file: &elf.File{Kind: l.kind}}, lib, l.kind)
}

// dirs returns the directories that are searched before the cache and the default directories.
func (l *Loader) dirs(o *object) []string {
	var dirs []string
	if l.musl {
		dirs = append(dirs, l.libraryPath...)
		for p := o; p != nil; p = p.loader {
			dirs = append(dirs, expand(p, p.file.RPath)...)
			dirs = append(dirs, expand(p, p.file.RunPath)...)
		}
		return dirs
	}
	// DT_RPATH is inherited from the objects that led to this one. DT_RUNPATH of the object
	// itself disables all of that.
	if o.file.RunPath == nil {
		for p := o; p != nil; p = p.loader {
			if p.file.RunPath == nil {
				dirs = append(dirs, expand(p, p.file.RPath)...)
			}
		}
	}
	dirs = append(dirs, l.libraryPath...)
	return append(dirs, expand(o, o.file.RunPath)...)
}

// expand replaces the loader's dynamic string tokens. $PLATFORM depends on the processor, so
// entries with it are left out.
func expand(o *object, dirs []string) []string {
	var out []string
	lib := "lib64"
	if m := multiarch[o.file.Machine.String()]; m != "" {
		lib = "lib/" + m // Debian's $LIB
	}
	r := strings.NewReplacer("${ORIGIN}", path.Dir(o.path), "$ORIGIN", path.Dir(o.path), "${LIB}", lib, "$LIB", lib)
	for _, d := range dirs {
		if d = r.Replace(d); d != "" && !strings.Contains(d, "$") {
			out = append(out, d)
		}
	}
	return out
}
