package base

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/build/recipe"
)

// Limits of what the packages of one base may unpack to. Those of bookworm's minbase unpack to 0.2
// GB in 9,000 members.
const (
	maxUnpacked = 2 << 30 // bytes
	maxMembers  = 500_000
)

// debsDir is where the seed has the packages themselves.
const debsDir = "var/cache/apt/archives"

// made are directories that exist before the first package is unpacked, and have the epoch's time.
var made = []string{"dev", "proc", debsDir + "/partial", "var/lib/apt/lists/partial"}

// aliases are the directories at the root that are links to those of the same name in usr. A
// package may still name its files by the alias.
var aliases = []string{"bin", "lib", "lib32", "lib64", "libo32", "libx32", "sbin"}

// seed writes, as a tar, the file system in which the packages' scripts run: the files of all
// packages, and the packages. It executes nothing and unpacks nothing: a package's members are
// checked and become members of the tar. files are the packages' files, in the same order.
func (m *Maker) seed(ctx context.Context, debs []recipe.Deb, files []string) (_ string, err error) {
	f, err := os.CreateTemp(m.Dir, "seed-*.tar")
	if err != nil {
		return "", err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	buf := bufio.NewWriterSize(f, 1<<20)
	s := &seed{tw: tar.NewWriter(buf), epoch: m.Epoch, have: map[string]*tar.Header{}, by: map[string]string{}, aliased: map[string]bool{}}
	for _, dir := range made {
		if err := s.parents(dir, ""); err != nil {
			return "", err
		}
	}
	for i, d := range debs {
		if err := context.Cause(ctx); err != nil {
			return "", err
		}
		s.deb = d.Name
		if err := members(files[i], s.member); err != nil {
			return "", fmt.Errorf("package %s %s: %w", d.Name, d.Version, err)
		}
	}
	s.deb = ""
	for i, d := range debs {
		if err := s.file(debsDir+"/"+d.File(), files[i]); err != nil {
			return "", err
		}
	}
	if err := s.close(); err != nil {
		return "", err
	}
	return f.Name(), buf.Flush()
}

// byAlias ends the name of what created a directory if it named the directory by an alias.
const byAlias = " by an alias"

// seed merges packages into one tar.
type seed struct {
	tw      *tar.Writer
	epoch   time.Time
	have    map[string]*tar.Header // members by their path without slashes at its ends
	by      map[string]string      // for directories: what created it
	aliased map[string]bool        // the aliases that packages have used
	size    int64                  // of all content, in bytes
	deb     string                 // the package that is being read
}

// member adds a member of a package, unless another package has it already: dpkg installs all of
// them again, and reports conflicts. It refuses what could be written elsewhere than to its path,
// although nothing here writes: so no later program has to withstand it.
func (s *seed) member(h *tar.Header, content io.Reader) error {
	if err := s.merge(h, content); err != nil {
		return fmt.Errorf("member %q %w", h.Name, err)
	}
	return nil
}

func (s *seed) merge(h *tar.Header, content io.Reader) error {
	raw, err := cleanName(h.Name)
	if err != nil || raw == "." {
		return err
	}
	isDir := h.Typeflag == tar.TypeDir
	name, by := s.unalias(raw, isDir), s.deb
	if name != raw {
		by += byAlias
	}
	if have := s.have[name]; have != nil {
		if isDir && have.Typeflag != tar.TypeDir {
			return errors.New("is a directory, and another package has a file of that name")
		}
		if isDir && name == raw && strings.HasSuffix(s.by[name], byAlias) {
			have.ModTime, s.by[name] = h.ModTime, by // the directory itself, not an alias of it
		}
		return nil
	}
	if err := s.parents(path.Dir(name), by); err != nil {
		return err
	}
	out := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o7777, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime}
	switch h.Typeflag {
	case tar.TypeDir:
		s.by[name] = by
		return s.add(name, out) // written by close
	case tar.TypeReg:
		out.Size = h.Size
	case tar.TypeSymlink:
		out.Linkname = h.Linkname
	case tar.TypeLink:
		to, err := cleanName(h.Linkname)
		if err != nil {
			return fmt.Errorf("is a link to %q, which %w", h.Linkname, err)
		}
		out.Linkname = s.unalias(to, false)
		if first := s.have[out.Linkname]; first == nil || first.Typeflag == tar.TypeDir {
			return fmt.Errorf("is a link to %q, which is no file before it", h.Linkname)
		}
	default:
		return errors.New("is a device or another special file, which no base needs")
	}
	if out.Size > maxUnpacked-s.size {
		return fmt.Errorf("is too large (%d bytes): the packages of a base may unpack to %d MB together", out.Size, maxUnpacked>>20)
	}
	s.size += out.Size
	if err := s.add(name, out); err != nil {
		return err
	}
	if err := s.tw.WriteHeader(out); err != nil {
		return err
	}
	_, err = io.Copy(s.tw, content)
	return err
}

func (s *seed) add(name string, h *tar.Header) error {
	if len(s.have) >= maxMembers {
		return fmt.Errorf("is one too many: the packages of a base may have %d members together", maxMembers)
	}
	s.have[name] = h
	return nil
}

// parents makes sure that a directory of the tar and those above it are directories: a member
// below a link would be written to where the link leads. An older directory with a new member is
// as new as a directory can be, as if it had been unpacked.
func (s *seed) parents(dir, by string) error {
	if dir == "." {
		return nil
	}
	h := s.have[dir]
	if h == nil {
		if err := s.parents(path.Dir(dir), by); err != nil {
			return err
		}
		h = &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: s.epoch}
		s.by[dir] = by
		return s.add(dir, h)
	}
	if h.Typeflag != tar.TypeDir {
		return fmt.Errorf("is below %q, which is no directory", dir)
	}
	if s.by[dir] != by {
		h.ModTime = s.epoch
	}
	return nil
}

// file adds a file of this machine.
func (s *seed) file(name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := s.parents(path.Dir(name), ""); err != nil {
		return fmt.Errorf("%s %w", name, err)
	}
	if s.have[name] != nil {
		return fmt.Errorf("a package contains /%s, which is where packages are installed from", name)
	}
	if err := s.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), ModTime: s.epoch}); err != nil {
		return err
	}
	_, err = io.Copy(s.tw, f)
	return err
}

// close writes the directories, whose times are known only now, and the aliases.
func (s *seed) close() error {
	for _, dir := range slices.Sorted(maps.Keys(s.aliased)) {
		if s.have[dir] == nil {
			s.have[dir] = &tar.Header{Typeflag: tar.TypeSymlink, Name: dir, Linkname: "usr/" + dir, Mode: 0o777, ModTime: s.epoch}
			if err := s.tw.WriteHeader(s.have[dir]); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.by)) {
		h := s.have[name]
		h.Name += "/"
		if err := s.tw.WriteHeader(h); err != nil {
			return err
		}
	}
	return s.tw.Close()
}

// unalias returns the path in usr of what a package names by an alias.
func (s *seed) unalias(name string, isDir bool) string {
	top, _, below := strings.Cut(name, "/")
	if slices.Contains(aliases, top) && (below || isDir) {
		s.aliased[top] = true
		return "usr/" + name
	}
	return name
}

// cleanName returns a member's path below the root, without the "./" that packages begin it with.
func cleanName(name string) (string, error) {
	trimmed := strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	if trimmed == "" || trimmed == "." {
		return ".", nil
	}
	if !fs.ValidPath(trimmed) {
		return "", errors.New("is not a path below the root")
	}
	return trimmed, nil
}
