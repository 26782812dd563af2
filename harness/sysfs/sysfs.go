// Package sysfs reads what Linux tells about a machine in /sys and /proc: PCI
// devices and their errors, NUMA nodes, processors, InfiniBand devices, network
// interfaces, modules, limits, mounts, processes and the kernel's log.
// It reads below a root of the caller's choice, so that a captured tree tests
// what the machine itself would say; symbolic links are followed inside that
// root. Reading and parsing are apart: the Parse functions take text and do no
// I/O.
//
// The methods that list things have three kinds of answer. There: a list. Not
// there: an error for which errors.Is(err, fs.ErrNotExist) holds, when the
// kernel has no such class at all. Could not tell: any other error. One bad
// attribute does not lose a list: it leaves its field at the zero value, which
// each field's comment explains, and is noted in the entry's Problems as an
// *AttrError. An attribute that is absent is no problem, since kernels and
// devices differ in what they have.
//
// The package is a leaf. It keeps no state: each call reads anew, and calls
// may run at the same time.
package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/assay-hpc/assay/harness/rootfs"
)

// maxFile bounds what is read of one file. Attributes of sysfs end at a page;
// /proc/cpuinfo has about 1.5 kB a processor.
const maxFile = 8 << 20

// An FS is the file system of a machine. The zero FS is this machine's.
type FS struct{ root rootfs.FS }

// Open returns the FS below a directory, which holds sys and proc.
func Open(dir string) (FS, error) {
	root, err := rootfs.Open(dir)
	if err != nil {
		return FS{}, err
	}
	return FS{root}, nil
}

// An AttrError is an attribute that is there and could not be read or parsed.
type AttrError struct {
	File string // absolute in the FS
	Err  error
}

func (e *AttrError) Error() string { return e.File + ": " + e.Err.Error() }

func (e *AttrError) Unwrap() error { return e.Err }

// read returns a file's text without white space around it.
func (f FS) read(name string) (string, error) {
	b, err := f.bytes(name)
	return strings.TrimSpace(string(b)), err
}

// bytes returns a file's content. Sizes that sysfs and proc give for their
// files mean nothing, so it reads to the end.
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

// attrs reads the attributes of one directory and gathers the problems.
type attrs struct {
	fs       FS
	dir      string
	problems []error
}

// get reads an attribute; ok is false when it is absent or unreadable. Drivers
// answer EINVAL and its like for what does not apply just now, such as the
// speed of an interface that is down: that too is absence.
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

// text is an attribute's text, "" when it is absent.
func (a *attrs) text(name string) string {
	s, _ := a.get(name)
	return s
}

// number is a decimal or 0x number of at most bits bits, 0 when it is absent.
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

// integer is a decimal number with a sign, or without.
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

// parsed runs an attribute's text through a parser.
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
