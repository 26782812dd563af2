// Package matrix reads matrix.yaml, the one file that defines which images exist, and expands it
// into targets.
//
// The file is read in three passes. Each reports every problem that it finds: in the form of the
// text ([Parse]: keys, types, spelling), in the references between its parts ([Parse]: names that
// must exist, duplicates), and in the result ([File.Targets]: impossible combinations, tags that
// collide, lines that have no effect). A pass runs only if the previous one found nothing, so
// that one mistake is not reported three times.
//
// What a component is, ours or a user's, is in a [Definition]: component.yaml. On one target and
// platform it is a [Part].
//
// The package does no I/O except through what it is given. docs/matrix.md is the reference of the
// format for people, [Schema] the one for editors.
package matrix

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// A File is a matrix file with a valid form.
type File struct {
	Name       string // as given to [Parse], for messages
	Repository string // where the images are published: "ghcr.io/assay-hpc/assay"

	doc     matrixDocument
	library *Library
	own     map[string]*Definition // that the file itself defines, or replaces
}

// Definition returns what the file means by a component's name, nil if nothing.
func (f *File) Definition(name string) *Definition {
	if d := f.own[name]; d != nil {
		return d
	}
	return f.library.Definition(name)
}

// Own returns the components that the file itself defines, by name.
func (f *File) Own() []*Definition {
	return slices.SortedFunc(maps.Values(f.own), func(a, b *Definition) int { return strings.Compare(a.Name, b.Name) })
}

// MaxSize limits what Parse reads, in bytes; the real file is smaller than a hundredth of it.
const MaxSize = 1 << 20

// Parse reads a matrix file; name is for messages only, open finds the components that it takes from
// directories. The error is an [Errors] unless reading itself failed.
func Parse(name string, r io.Reader, lib *Library, open Directory) (*File, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rep := &reporter{file: name}
	f := &File{Name: name, library: lib, own: map[string]*Definition{}}
	rep.decodeDocument(text, f, open)
	if rep.failed() {
		return nil, rep.err()
	}
	rep.check(&f.doc)
	f.Repository = f.doc.Repository.Text
	return f, rep.err()
}
