package standin

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// An archiveEntry is one file of an archive. Everything except name, kind, content and permissions is
// the same for all entries: owner 0, time epoch.
type archiveEntry struct {
	name    string // no leading slash
	mode    fs.FileMode
	content []byte
	link    string // a symbolic link's target
}

// writeTar writes entries sorted by name, with the directories they are in.
func writeTar(w io.Writer, entries []archiveEntry) error {
	tw := tar.NewWriter(w)
	slices.SortFunc(entries, func(a, b archiveEntry) int { return strings.Compare(a.name, b.name) })
	made := map[string]bool{".": true}
	for _, e := range entries {
		if err := writeParents(tw, path.Dir(e.name), made); err != nil {
			return err
		}
		h := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.content)), ModTime: epoch, Typeflag: tar.TypeReg}
		if e.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(e.content); err != nil {
			return err
		}
	}
	return tw.Close()
}

func writeParents(tw *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := writeParents(tw, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	return tw.WriteHeader(&tar.Header{Name: dir + "/", Mode: 0o755, ModTime: epoch, Typeflag: tar.TypeDir})
}

// readTree returns the files under dir as entries with prefix in front of their names.
func readTree(dir, prefix string) ([]archiveEntry, error) {
	var entries []archiveEntry
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := archiveEntry{name: path.Join(prefix, rel), mode: info.Mode()}
		if info.Mode()&fs.ModeSymlink != 0 {
			e.link, err = os.Readlink(p)
		} else {
			e.content, err = os.ReadFile(p)
		}
		entries = append(entries, e)
		return err
	})
	return entries, err
}

// substitute replaces @NAME@ in the text files among entries.
func substitute(entries []archiveEntry, vars map[string]string) {
	var pairs []string
	for name, value := range vars {
		pairs = append(pairs, "@"+name+"@", value)
	}
	r := strings.NewReplacer(pairs...)
	for i, e := range entries {
		if !bytes.ContainsRune(e.content, 0) {
			entries[i].content = []byte(r.Replace(string(e.content)))
		}
	}
}

// writeLayer writes a root file system, or the upper directory of an overlay, as an image layer.
// It keeps owners and hard links, but not times, and writes what the overlay has removed as
// whiteouts.
func writeLayer(w io.Writer, root string) error {
	tw := tar.NewWriter(w)
	inodes := map[uint64]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		name, _ := filepath.Rel(root, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		h, err := layerHeader(p, name, info, inodes)
		if err != nil {
			return err
		}
		if err := tw.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg || h.Size == 0 {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(tw, f)
		return err
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

func layerHeader(file, name string, info fs.FileInfo, inodes map[uint64]string) (*tar.Header, error) {
	st := info.Sys().(*syscall.Stat_t)
	if info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0 { // overlayfs: removed
		return &tar.Header{Name: path.Join(path.Dir(name), ".wh."+path.Base(name)), Mode: 0o600, ModTime: epoch, Typeflag: tar.TypeReg}, nil
	}
	h, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return nil, err
	}
	h.Name, h.ModTime, h.Uname, h.Gname = name, epoch, "", ""
	switch {
	case info.IsDir():
		h.Name += "/"
	case h.Typeflag == tar.TypeSymlink:
		h.Linkname, err = os.Readlink(file)
	case h.Typeflag == tar.TypeReg && st.Nlink > 1:
		if first, ok := inodes[st.Ino]; ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		}
		inodes[st.Ino] = name
	case h.Typeflag != tar.TypeReg:
		return nil, fmt.Errorf("%s is of a kind that no image should have", file)
	}
	return h, err
}
