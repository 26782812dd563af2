package base

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// normalise reads a base's file system as the builder exports it, a tar in the order of paths, and
// writes it without traces of the machine and of the time of the run: no time is later than the
// epoch, owners have no names, and there is nothing that a container's runtime provides. It
// returns the file's path.
func (m *Maker) normalise(exported io.Reader) (_ string, err error) {
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
	tr, tw := tar.NewReader(exported), tar.NewWriter(buf)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("what the builder exported: %w", err)
		}
		if !m.normal(h) {
			continue
		}
		if err := tw.WriteHeader(h); err != nil {
			return "", fmt.Errorf("%s: %w", h.Name, err)
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return "", err
		}
	}
	if err := tw.Close(); err != nil {
		return "", err
	}
	return f.Name(), buf.Flush()
}

const fileCapability = "SCHILY.xattr.security.capability"

// normal normalises a header, and reports whether the member is part of the base.
func (m *Maker) normal(h *tar.Header) bool {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeLink, tar.TypeSymlink, tar.TypeDir, tar.TypeFifo:
	default:
		return false // the container runtime provides /dev
	}
	top, below, _ := strings.Cut(h.Name, "/")
	if provided := top == "dev" || top == "proc" || top == "sys"; provided && below != "" || h.Name == "etc/resolv.conf" {
		return false
	}
	kept := map[string]string{}
	if v := h.PAXRecords[fileCapability]; v != "" && h.Typeflag == tar.TypeReg {
		kept[fileCapability] = v
	}
	mtime := h.ModTime.Truncate(time.Second)
	if mtime.After(m.Epoch) {
		mtime = m.Epoch
	}
	*h = tar.Header{Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: mtime}
	if len(kept) > 0 {
		h.PAXRecords = kept
	}
	return true
}
