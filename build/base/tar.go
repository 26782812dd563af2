package base

import (
	"archive/tar"
	"bufio"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// tar writes the tree in sorted order with no time later than the epoch, and
// returns the file's path.
func (m *Maker) tar(root string) (_ string, err error) {
	f, err := os.CreateTemp(m.Dir, "base-*.tar")
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
	w := treeWriter{tw: tar.NewWriter(buf), root: root, epoch: m.Epoch, links: map[[2]uint64]string{}}
	if err := filepath.WalkDir(root, w.visit); err != nil {
		return "", err
	}
	if err := w.tw.Close(); err != nil {
		return "", err
	}
	return f.Name(), buf.Flush()
}

type treeWriter struct {
	tw    *tar.Writer
	root  string
	epoch time.Time
	links map[[2]uint64]string // maps device and inode to the first name
}

func (w treeWriter) visit(path string, d fs.DirEntry, err error) error {
	if err != nil || path == w.root {
		return err
	}
	name, err := filepath.Rel(w.root, path)
	if err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeSocket) != 0 {
		return nil // the container runtime provides /dev
	}
	h, st, err := w.header(path, name, info)
	if err != nil {
		return err
	}
	if st.Nlink > 1 && info.Mode().IsRegular() {
		id := [2]uint64{st.Dev, st.Ino}
		if first, ok := w.links[id]; ok {
			h.Typeflag, h.Linkname, h.Size, h.PAXRecords = tar.TypeLink, first, 0, nil
		} else {
			w.links[id] = name
		}
	}
	if err := w.tw.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	return w.content(path)
}

func (w treeWriter) header(path, name string, info fs.FileInfo) (*tar.Header, *unix.Stat_t, error) {
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if link, err = os.Readlink(path); err != nil {
			return nil, nil, err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return nil, nil, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil, nil, err
	}
	h.Name, h.Uname, h.Gname = name, "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	h.ModTime = h.ModTime.Truncate(time.Second)
	if h.ModTime.After(w.epoch) {
		h.ModTime = w.epoch
	}
	if info.Mode().IsRegular() {
		if v, err := xattr(path, "security.capability"); err == nil && len(v) > 0 {
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": string(v)}
		}
	}
	return h, &st, nil
}

func (w treeWriter) content(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w.tw, f)
	return err
}

func xattr(path, name string) ([]byte, error) {
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(path, name, buf)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(buf[:n]), nil
}
