// Package infile reads files that somebody else wrote or named: only regular files, never more than
// a limit. A FIFO that nobody writes to, a device or a socket is an error that names the kind; it
// is not opened, because opening one can block for ever, or act on a machine. It is a leaf.
package infile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// A KindError says that a file is of a kind that is not read.
type KindError struct {
	Name string
	Mode fs.FileMode
}

func (e *KindError) Error() string {
	return fmt.Sprintf("%s is a %s; only a regular file is read", e.Name, Kind(e.Mode))
}

// Unwrap tells a directory apart: the file system's own error for it.
func (e *KindError) Unwrap() error {
	if e.Mode.IsDir() {
		return syscall.EISDIR
	}
	return nil
}

// A SizeError says that a file is longer than is read.
type SizeError struct {
	Name        string
	Size, Limit int64 // in bytes; Size is 0 if the end was not reached
}

func (e *SizeError) Error() string {
	if e.Size == 0 {
		return fmt.Sprintf("%s is longer than %d bytes, which is all that is read", e.Name, e.Limit)
	}
	return fmt.Sprintf("%s is %d bytes long; at most %d are read", e.Name, e.Size, e.Limit)
}

// Kind names a kind of file as a person calls it.
func Kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "regular file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeNamedPipe != 0:
		return "FIFO (named pipe)"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeCharDevice != 0:
		return "character device"
	case m&fs.ModeDevice != 0:
		return "block device"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	}
	return "file of an unknown kind"
}

// Open opens a regular file for reading. Links are followed.
func Open(name string) (*os.File, error) { return OpenAs(name, name) }

// OpenAs opens a regular file for reading; errors call it shown.
func OpenAs(name, shown string) (*os.File, error) {
	renamed := func(err error) error {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = &fs.PathError{Op: "open", Path: shown, Err: pe.Err}
		}
		return err
	}
	st, err := os.Stat(name)
	if err != nil {
		return nil, renamed(err)
	}
	if !readable(st) {
		return nil, &KindError{shown, st.Mode()}
	}
	// Another file may have taken the name since: O_NONBLOCK does not wait for a FIFO's writer.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, renamed(err)
	}
	if st, err = f.Stat(); err == nil && !readable(st) {
		err = &KindError{shown, st.Mode()}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readable reports whether a file is a regular one, or the null device, which stands for an empty
// one: many who want no configuration name it.
func readable(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return st.Mode().IsRegular() || ok && st.Mode()&fs.ModeCharDevice != 0 && sys.Rdev == 1<<8|3
}

// Read returns the content of a regular file, or a [SizeError] if that is longer than limit bytes.
func Read(name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadOpen(f, name, limit)
}

// ReadOpen returns the content of an open file, or a [SizeError] if that is longer than limit bytes;
// a length that the file system states spares reading it. Errors call it name.
func ReadOpen(f *os.File, name string, limit int64) ([]byte, error) {
	size := int64(0)
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		if size = st.Size(); size > limit {
			return nil, &SizeError{name, size, limit}
		}
	}
	return readAll(f, name, limit, size)
}

// ReadAll returns all that r has, or a [SizeError] if that is more than limit bytes; errors call
// it name.
func ReadAll(r io.Reader, name string, limit int64) ([]byte, error) {
	return readAll(r, name, limit, 0)
}

// readAll is ReadAll of something that has about size bytes.
func readAll(r io.Reader, name string, limit, size int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(size) + bytes.MinRead)
	_, err := b.ReadFrom(io.LimitReader(r, limit+1))
	if int64(b.Len()) > limit {
		return nil, &SizeError{Name: name, Limit: limit}
	}
	return b.Bytes(), err
}

// OpenArgument opens a file that a user named on the command line: a regular file, or what this
// process already has open: "-" and /dev/stdin are its standard input, /dev/fd/N is the pipe of a
// shell's <(COMMAND).
func OpenArgument(name string) (*os.File, error) {
	n, ok := Descriptor(name)
	if name == "-" {
		n, ok = 0, true
	}
	if !ok {
		return Open(name)
	}
	// A duplicate, so that closing it leaves the caller's own alone.
	fd, err := syscall.Dup(n)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}

// ReadArgument returns the content of a file that a user named, as [OpenArgument] opens it, or a
// [SizeError] if that is longer than limit bytes.
func ReadArgument(name string, limit int64) ([]byte, error) {
	f, err := OpenArgument(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := ReadOpen(f, name, limit)
	if errors.Is(err, syscall.EISDIR) {
		err = &KindError{name, fs.ModeDir}
	}
	return b, err
}

// Descriptor returns the descriptor of this process that a name stands for: of /dev/stdin,
// /dev/stdout, /dev/stderr, /dev/fd/N and /proc/self/fd/N.
func Descriptor(name string) (int, bool) {
	name = path.Clean(name)
	for n, std := range []string{"/dev/stdin", "/dev/stdout", "/dev/stderr"} {
		if name == std {
			return n, true
		}
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if digits, ok := strings.CutPrefix(name, dir); ok {
			n, err := strconv.ParseUint(digits, 10, 31)
			return int(n), err == nil
		}
	}
	return 0, false
}
