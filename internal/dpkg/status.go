// Package dpkg reads a Debian package database below a root directory: the installed packages,
// their states and their licences. It does not run dpkg. It is a leaf.
package dpkg

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/rootfs"
)

// A Package is one paragraph of a status file.
type Package struct {
	Name       string
	Version    string
	Arch       string
	Status     string // "install ok installed"
	Source     string // source package; empty if it has the same name
	Maintainer string
	Homepage   string
	// Needs are the package's dependencies, each with its alternatives, without versions and
	// architectures. Provides are the virtual packages that it provides.
	Needs    [][]string
	Provides []string
	// InstalledBytes is the size of its files as estimated by the package itself; 0 if not
	// stated.
	InstalledBytes int64
}

const installed = "install ok installed"

// Installed reports whether a package is completely installed; it may be on hold.
func (p Package) Installed() bool { return strings.HasSuffix(p.Status, " ok installed") }

// StatusPath is dpkg's database; StatusDir contains one file per package in images that were made
// without dpkg (distroless).
const (
	StatusPath = "/var/lib/dpkg/status"
	StatusDir  = "/var/lib/dpkg/status.d"
)

const statusLimit = 256 << 20

// ErrNoDatabase says that an image has no package database at all.
var ErrNoDatabase = errors.New("the image has no dpkg database")

// Read returns all packages of an image, sorted by name and architecture.
func Read(root rootfs.FS) ([]Package, error) {
	var all []Package
	files, err := statusFiles(root)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := root.ReadFile(f, statusLimit)
		if err != nil {
			return nil, err
		}
		pkgs, err := ParseStatus(b)
		if err != nil {
			return nil, fmt.Errorf("%s:%w", f, err)
		}
		for _, p := range pkgs {
			if p.Status == "" && strings.HasPrefix(f, StatusDir) {
				p.Status = installed // distroless images leave it out
			}
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b Package) int {
		return strings.Compare(a.Name+":"+a.Arch, b.Name+":"+b.Arch)
	})
	return all, nil
}

func statusFiles(root rootfs.FS) ([]string, error) {
	var files []string
	if _, err := root.Stat(StatusPath); err == nil {
		files = append(files, StatusPath)
	}
	more, err := root.Glob(StatusDir + "/*")
	if err != nil {
		return nil, err
	}
	for _, f := range more {
		if path.Ext(f) != ".md5sums" { // stored next to the paragraph
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w (%s): %w", ErrNoDatabase, StatusPath, fs.ErrNotExist)
	}
	return files, nil
}

// ParseStatus reads paragraphs in the syntax of deb-control(5). Its errors start with the line
// number.
func ParseStatus(b []byte) ([]Package, error) {
	var pkgs []Package
	for para, err := range paragraphs(b) {
		if err != nil {
			return nil, err
		}
		p := Package{
			Name: para.field["package"], Version: para.field["version"], Arch: para.field["architecture"],
			Status: para.field["status"], Source: para.field["source"],
			Maintainer: para.field["maintainer"], Homepage: para.field["homepage"],
			Needs: slices.Concat(relations(para.field["pre-depends"]), relations(para.field["depends"])),
		}
		for _, names := range relations(para.field["provides"]) {
			p.Provides = append(p.Provides, names...)
		}
		if p.Name == "" {
			return nil, fmt.Errorf("%d: a paragraph has no field Package", para.line)
		}
		if kib, err := strconv.ParseInt(para.field["installed-size"], 10, 48); err == nil && kib > 0 {
			p.InstalledBytes = kib << 10
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// relations reads the names in a field such as "libc6 (>= 2.34), debconf:any | cdebconf".
func relations(field string) (all [][]string) {
	for group := range strings.SplitSeq(field, ",") {
		var names []string
		for one := range strings.SplitSeq(group, "|") {
			one = strings.TrimSpace(one)
			if end := strings.IndexAny(one, " :(["); end >= 0 {
				one = one[:end]
			}
			if one != "" {
				names = append(names, one)
			}
		}
		if names != nil {
			all = append(all, names)
		}
	}
	return all
}

// A paragraph maps field names in lower case to values. Continuation lines are left out: nothing
// here needs them.
type paragraph struct {
	line  int
	field map[string]string
}

// paragraphs yields the paragraphs of a file in RFC 822 style.
func paragraphs(b []byte) func(func(paragraph, error) bool) {
	return func(yield func(paragraph, error) bool) {
		sc := bufio.NewScanner(bytes.NewReader(b))
		sc.Buffer(nil, len(b)+1)
		para, last := paragraph{field: map[string]string{}}, ""
		for n := 1; sc.Scan(); n++ {
			line := sc.Text()
			switch {
			case strings.TrimSpace(line) == "":
				if len(para.field) > 0 && !yield(para, nil) {
					return
				}
				para, last = paragraph{field: map[string]string{}}, ""
			case line[0] == '#':
			case line[0] == ' ' || line[0] == '\t':
				if last == "" {
					yield(para, fmt.Errorf("%d: a line continues a field, and no field precedes it", n))
					return
				}
			default:
				name, value, ok := strings.Cut(line, ":")
				if !ok {
					yield(para, fmt.Errorf("%d: %.40q is neither a field nor its continuation", n, line))
					return
				}
				if len(para.field) == 0 {
					para.line = n
				}
				last = strings.ToLower(strings.TrimSpace(name))
				para.field[last] = strings.TrimSpace(value)
			}
		}
		if len(para.field) > 0 {
			yield(para, nil)
		}
	}
}
