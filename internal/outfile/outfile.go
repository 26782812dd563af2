// Package outfile writes files completely or not at all: whoever reads a regular file sees all of
// the old content or all of the new. What exists stays what it is: a device or a FIFO is written
// to, never replaced, a symbolic link is followed, and a file keeps its mode and its owner.
package outfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/internal/infile"
)

// Write writes a regular file completely or not at all, and to anything else that has the name.
func Write(name string, b []byte) error {
	w, err := prepare(name, b)
	if err != nil {
		return err
	}
	defer w.drop()
	return w.commit()
}

// Check returns the error that Write would end with, and writes nothing: for a command that measures
// for minutes first.
func Check(name string) error {
	w, err := prepare(name, []byte("room?"))
	if err != nil {
		return err
	}
	defer w.drop()
	if w.fd < 0 && w.temp == "" && !w.keeps {
		const wOK = 2 // opening a FIFO or a device may wait, or act
		if err := syscall.Access(w.file, wOK); err != nil {
			return &fs.PathError{Op: "write", Path: name, Err: err}
		}
	}
	return nil
}

// A write is content that is on the disk under a temporary name, or is to be written to what the
// name stands for.
type write struct {
	content []byte
	fd      int    // descriptor of this process to write to, -1 if it is none
	file    string // without links
	temp    string // "" if file is written to rather than replaced
	keeps   bool   // file exists
}

// maxLinks is the kernel's own limit (MAXSYMLINKS).
const maxLinks = 40

// follow returns where a name leads through symbolic links, also if there is no file yet, or the
// descriptor of this process that it stands for. Writing to /dev/stdout by its path would replace
// or truncate the file that a shell has put there, and fails on a socket.
func follow(name string) (file string, fd int, err error) {
	file = name
	for range maxLinks {
		if n, ok := infile.Descriptor(file); ok {
			return file, n, nil
		}
		st, err := os.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) {
			return file, -1, nil
		}
		if err != nil || st.Mode()&fs.ModeSymlink == 0 {
			return file, -1, err
		}
		to, err := os.Readlink(file)
		if err != nil {
			return "", -1, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(file) + "/" + to // not cleaned: the directory may be a link, and .. leads out of its target
		}
		file = to
	}
	return "", -1, &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// prepare does all that can fail before a reader sees a change.
func prepare(name string, b []byte) (*write, error) {
	file, fd, err := follow(name)
	if err != nil {
		return nil, err
	}
	w := &write{content: b, fd: fd, file: file}
	if fd >= 0 {
		return w, nil
	}
	st, err := os.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.temp, err = stage(filepath.Dir(file), b, nil)
		return w, err
	case err != nil:
		return nil, err
	case st.IsDir():
		return nil, &fs.PathError{Op: "write", Path: name, Err: syscall.EISDIR}
	case st.Mode()&fs.ModeSocket != 0:
		return nil, fmt.Errorf("%s is a %s, to which nothing can be written", name, infile.Kind(st.Mode()))
	case !st.Mode().IsRegular():
		return w, nil
	}
	w.keeps = true
	if w.temp, err = stage(filepath.Dir(file), b, st); errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		// The directory is another user's, or the file is, whose owner only he or root may set:
		// the file itself may still be open to us.
		w.temp, err = "", writable(file)
	}
	return w, err
}

// writable reports why a file cannot be written to.
func writable(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// stage writes a file to the disk under a temporary name, with mode and owner of the one that it
// will replace.
func stage(dir string, b []byte, old fs.FileInfo) (name string, err error) {
	mode := fs.FileMode(0o644) // less the umask, as for every new file
	if old != nil {
		mode = 0o600 // nobody reads it before it has its owner
	}
	f, err := createTemp(dir, mode)
	if err != nil {
		return "", err
	}
	if old != nil {
		err = keepOwner(f, old)
	}
	if err == nil {
		_, err = f.Write(b)
	}
	if err == nil && old != nil {
		err = f.Chmod(old.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// createTemp creates a file with a new name. Unlike os.CreateTemp it leaves mode and umask to the
// kernel, which alone knows a directory's default ACL.
func createTemp(dir string, mode fs.FileMode) (*os.File, error) {
	for {
		name := filepath.Join(dir, ".part-"+rand.Text())
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// keepOwner gives a new file the owner and group of the one that it will replace.
func keepOwner(f *os.File, old fs.FileInfo) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	is, ok := st.Sys().(*syscall.Stat_t)
	was, ok2 := old.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || is.Uid == was.Uid && is.Gid == was.Gid {
		return nil
	}
	return f.Chown(int(was.Uid), int(was.Gid))
}

// commit makes the content visible.
func (w *write) commit() error {
	if w.temp == "" {
		return w.through()
	}
	err := os.Rename(w.temp, w.file)
	if err == nil {
		w.temp = ""
		return nil
	}
	if w.keeps && errors.Is(err, syscall.EBUSY) { // a file that is mounted into a container
		return w.through()
	}
	return err
}

func (w *write) drop() {
	if w.temp != "" {
		os.Remove(w.temp)
	}
}

// through writes to what is there.
func (w *write) through() error {
	f, err := w.open()
	if err != nil {
		return err
	}
	_, err = f.Write(w.content)
	if err == nil && w.keeps {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readerWait is how long a FIFO may be without a reader. Opening one for writing would wait for
// ever, and no signal ends it.
var readerWait = time.Minute

func (w *write) open() (*os.File, error) {
	if w.fd >= 0 {
		fd, err := syscall.Dup(w.fd)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: w.file, Err: err}
		}
		syscall.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), w.file), nil
	}
	flags := os.O_WRONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY
	if w.keeps {
		flags |= os.O_TRUNC
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		f, err := os.OpenFile(w.file, flags, 0)
		if !errors.Is(err, syscall.ENXIO) {
			return f, err
		}
		if time.Since(began) > readerWait {
			return nil, fmt.Errorf("%s: nobody has read from it for %v: %w", w.file, readerWait, err)
		}
	}
}

// A Dir is a directory to which either all files are written, or none.
type Dir struct {
	Name string
	made bool // OpenDir created it
}

// OpenDir creates a directory if necessary. It fails if no file can be created there: what would be
// written later would be lost.
func OpenDir(name string) (*Dir, error) {
	d := &Dir{Name: name}
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		d.made = true
	}
	err := os.MkdirAll(name, 0o777)
	if err == nil {
		var temp string
		if temp, err = stage(name, []byte("room?"), nil); err == nil {
			err = os.Remove(temp)
		}
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("nothing was written there: %w", err)
	}
	return d, nil
}

// Write writes files by name. They get their names only after all of them are completely
// on the disk.
func (d *Dir) Write(files map[string][]byte) error {
	var all []*write
	defer func() {
		for _, w := range all {
			w.drop()
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w, err := prepare(filepath.Join(d.Name, name), files[name])
		if err != nil {
			return fmt.Errorf("nothing was written there: %w", err)
		}
		all = append(all, w)
	}
	for _, w := range all {
		if err := w.commit(); err != nil {
			return err
		}
	}
	return nil
}

// Close removes a directory that OpenDir created, if nothing was written to it.
func (d *Dir) Close() {
	if d.made {
		os.Remove(d.Name) // fails, as intended, if the directory contains files
	}
}
