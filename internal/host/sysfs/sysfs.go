// Package sysfs reads what Linux reports about a machine in /sys and /proc: PCI devices and their
// errors, NUMA nodes, processors, InfiniBand devices, network interfaces, modules, limits, mounts,
// processes and the kernel's log. It reads below a root that the caller chooses, so that tests can
// use a captured tree; symbolic links are resolved inside that root. Reading and parsing are
// separate: the Parse functions take text and do no I/O.
//
// The methods that list things have three kinds of result. Present: a list. Absent: an error for
// which errors.Is(err, fs.ErrNotExist) holds, if the kernel has no such class at all. Unknown: any
// other error. One bad attribute does not lose a list: its field has the zero value, which the
// field's comment explains, and the entry's Problems contain an *AttrError. An absent attribute is
// not a problem, since kernels and devices differ in what they have.
//
// The package is a leaf. It has no state: each call reads anew, and calls may run concurrently.
package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/assay-hpc/assay/internal/rootfs"
)

// maxFile limits how much of one file is read. Attributes of sysfs are at most a page;
// /proc/cpuinfo has about 1.5 kB per processor.
const maxFile = 8 << 20

// An FS is the file system of a machine. The zero FS is that of this machine.
type FS struct{ root rootfs.FS }

// Open returns the FS below a directory, which contains sys and proc.
func Open(dir string) (FS, error) {
	root, err := rootfs.Open(dir)
	if err != nil {
		return FS{}, err
	}
	return FS{root}, nil
}

// An AttrError is an existing attribute that could not be read or parsed.
type AttrError struct {
	File string // absolute in the FS
	Err  error
}

func (e *AttrError) Error() string { return e.File + ": " + e.Err.Error() }

func (e *AttrError) Unwrap() error { return e.Err }

// read returns a file's text without surrounding white space.
func (f FS) read(name string) (string, error) {
	b, err := f.bytes(name)
	return strings.TrimSpace(string(b)), err
}

// bytes returns a file's content. The file sizes that sysfs and proc report are meaningless, so it
// reads to the end.
func (f FS) bytes(name string) ([]byte, error) {
	file, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("longer than %d bytes", maxFile)
	}
	return b, nil
}

// names lists a directory's entries, sorted.
func (f FS) names(dir string) ([]string, error) {
	entries, err := f.root.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return out, nil
}

// attrs reads the attributes of one directory and collects the problems.
type attrs struct {
	fs       FS
	dir      string
	problems []error
}

// get reads an attribute; ok is false if it is absent or unreadable. Drivers return EINVAL and
// similar errors for values that do not apply at the moment, such as the speed of an interface that
// is down: that counts as absent too.
func (a *attrs) get(name string) (text string, ok bool) {
	text, err := a.fs.read(a.dir + "/" + name)
	switch {
	case err == nil:
		return text, true
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EINVAL),
		errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENODEV):
	default:
		a.note(name, err)
	}
	return "", false
}

func (a *attrs) note(name string, err error) {
	a.problems = append(a.problems, &AttrError{File: a.dir + "/" + name, Err: err})
}

// text returns an attribute's text; "" if it is absent.
func (a *attrs) text(name string) string {
	s, _ := a.get(name)
	return s
}

// number returns a decimal or 0x number of at most bits bits; 0 if it is absent.
func (a *attrs) number(name string, bits int) uint64 {
	s, ok := a.get(name)
	if !ok {
		return 0
	}
	v, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		a.note(name, err)
		return 0
	}
	return v
}

// integer returns a signed decimal number; without if it is absent.
func (a *attrs) integer(name string, without int) int {
	s, ok := a.get(name)
	if !ok {
		return without
	}
	v, err := strconv.Atoi(s)
	if err != nil {
		a.note(name, err)
		return without
	}
	return v
}

// parsed applies a parser to an attribute's text.
func parsed[T any](a *attrs, name string, parse func(string) (T, error)) (value T) {
	s, ok := a.get(name)
	if !ok {
		return value
	}
	v, err := parse(s)
	if err != nil {
		a.note(name, err)
		return value
	}
	return v
}
