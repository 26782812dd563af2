// Package rootfs reads an image's file system below a directory of this machine. Names are
// absolute paths in the image. Symbolic links, including absolute ones, are resolved inside the
// image, as a process with that directory as its root would see them. It is a leaf.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/assay-hpc/assay/internal/infile"
)

// An FS is an image's file system. The zero FS is the machine's own root.
type FS struct{ dir string }

// Open returns the file system with the root dir.
func Open(dir string) (FS, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return FS{}, err
	}
	st, err := os.Stat(abs)
	if err != nil {
		return FS{}, err
	}
	if !st.IsDir() {
		return FS{}, &fs.PathError{Op: "open root", Path: dir, Err: syscall.ENOTDIR}
	}
	if abs == "/" {
		abs = ""
	}
	return FS{abs}, nil
}

// Native reports whether f is the root of this process, so that its programs can be run.
func (f FS) Native() bool { return f.dir == "" }

// maxLinks is the kernel's own limit (MAXSYMLINKS).
const maxLinks = 40

// Resolve returns name with all symbolic links resolved inside the root.
func (f FS) Resolve(name string) (string, error) {
	rest, done, links := split(name), "/", 0
	for len(rest) > 0 {
		elem := rest[0]
		rest = rest[1:]
		if elem == ".." {
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, elem)
		st, err := os.Lstat(f.dir + next)
		if err != nil {
			return "", f.error("resolve", name, err)
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", f.error("resolve", name, syscall.ELOOP)
		}
		target, err := os.Readlink(f.dir + next)
		if err != nil {
			return "", f.error("resolve", name, err)
		}
		if path.IsAbs(target) {
			done = "/"
		}
		rest = append(split(target), rest...)
	}
	return done, nil
}

func split(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

// error replaces the path in an error with the image's path, without the root's own directory.
func (f FS) error(op, name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Path returns the file's path on this machine, with links resolved.
func (f FS) Path(name string) (string, error) {
	r, err := f.Resolve(name)
	return f.dir + r, err
}

// Open opens a regular file for reading.
func (f FS) Open(name string) (*os.File, error) {
	p, err := f.Path(name)
	if err != nil {
		return nil, err
	}
	return infile.OpenAs(p, name)
}

// OpenResolved opens a name that Resolve returned, or a directory entry below such a name that is
// not a link. It saves resolving links again.
func (f FS) OpenResolved(name string) (*os.File, error) { return infile.OpenAs(f.dir+name, name) }

// Stat describes the file that name resolves to.
func (f FS) Stat(name string) (fs.FileInfo, error) {
	p, err := f.Path(name)
	if err != nil {
		return nil, err
	}
	return os.Stat(p)
}

// IsDir reports whether name resolves to a directory.
func (f FS) IsDir(name string) bool {
	st, err := f.Stat(name)
	return err == nil && st.IsDir()
}

// ReadFile returns a file's content, and an error if it is longer than limit.
func (f FS) ReadFile(name string, limit int64) ([]byte, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return infile.ReadOpen(file, name, limit)
}

// ReadDir lists a directory, sorted by name.
func (f FS) ReadDir(name string) ([]fs.DirEntry, error) {
	p, err := f.Path(name)
	if err != nil {
		return nil, err
	}
	return os.ReadDir(p)
}

// Glob returns the names that match an absolute pattern, sorted. Only the pattern's last element
// may contain wildcards.
func (f FS) Glob(pattern string) ([]string, error) {
	dir, last := path.Split(pattern)
	if _, err := path.Match(last, ""); err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if ok, _ := path.Match(last, e.Name()); ok {
			names = append(names, path.Join(dir, e.Name()))
		}
	}
	return names, err
}

// LookPath finds a program in the directories of a PATH variable, like execvp.
func (f FS) LookPath(program, pathVar string) (string, error) {
	if strings.Contains(program, "/") {
		return program, f.executable(program)
	}
	for _, dir := range filepath.SplitList(pathVar) {
		if p := path.Join(dir, program); path.IsAbs(dir) && f.executable(p) == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not in PATH (%s): %w", program, pathVar, fs.ErrNotExist)
}

func (f FS) executable(name string) error {
	st, err := f.Stat(name)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0 {
		return f.error("run", name, fs.ErrPermission)
	}
	return nil
}
