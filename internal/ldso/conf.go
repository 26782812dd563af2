package ldso

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/assay-hpc/assay/internal/rootfs"
)

// A confDir is a directory that ld.so.conf, or a file that it includes, names.
type confDir struct {
	Dir  string
	File string // the file that names it
}

const (
	confPath  = "/etc/ld.so.conf"
	confLimit = 1 << 20
	maxConfs  = 1000
)

// ReadConf returns the directories that ldconfig would search because of /etc/ld.so.conf, in
// order. It returns none for an image without that file.
func ReadConf(root rootfs.FS) ([]confDir, error) {
	r := confReader{root: root, seen: map[string]bool{}}
	err := r.read(confPath)
	if errors.Is(err, fs.ErrNotExist) && len(r.seen) == 1 {
		return nil, nil
	}
	return r.dirs, err
}

type confReader struct {
	root rootfs.FS
	seen map[string]bool
	dirs []confDir
}

func (r *confReader) read(file string) error {
	if r.seen[file] || len(r.seen) > maxConfs {
		return nil // a file that includes itself adds nothing
	}
	r.seen[file] = true
	b, err := r.root.ReadFile(file, confLimit)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" \t\r\n:,", c) })
		if len(words) == 0 || words[0] == "hwcap" {
			continue
		}
		if words[0] == "include" {
			if err := r.include(file, words[1:]); err != nil {
				return err
			}
			continue
		}
		for _, w := range words {
			dir, _, _ := strings.Cut(w, "=") // "dir=TYPE" is an old syntax
			r.dirs = append(r.dirs, confDir{path.Clean(dir), file})
		}
	}
	return nil
}

func (r *confReader) include(from string, patterns []string) error {
	for _, p := range patterns {
		if !path.IsAbs(p) {
			p = path.Join(path.Dir(from), p)
		}
		files, err := r.root.Glob(p)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := r.read(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// systemDirs are the loader's default directories, of all architectures.
var systemDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// Dirs returns the directories in which the loader searches for a library, in order.
func Dirs(root rootfs.FS, libraryPath string) []string {
	dirs := strings.FieldsFunc(libraryPath, func(r rune) bool { return r == ':' || r == ';' })
	conf, _ := ReadConf(root) // on error the other directories remain
	for _, c := range conf {
		dirs = append(dirs, c.Dir)
	}
	return append(dirs, systemDirs...)
}
