// Package matrix reads matrix.yaml, the one file that defines which images exist, and expands it
// into targets.
//
// The file is read in three passes. Each reports every problem that it finds: in the form of the
// text ([Parse]: keys, types, spelling), in the references between its parts ([Parse]: names that
// must exist, duplicates), and in the result ([File.Targets]: impossible combinations, tags that
// collide, lines that have no effect). A pass runs only if the previous one found nothing, so
// that one mistake is not reported three times.
//
// The package does no I/O except through the given reader. docs/matrix.md is the reference of the
// format for people, [Schema] the one for editors.
package matrix

import (
	"fmt"
	"io"
)

// A File is a matrix file with a valid form.
type File struct {
	Name       string // as given to [Parse], for messages
	Repository string // where the images are published: "ghcr.io/assay-hpc/assay"

	doc matrixDocument
}

// MaxSize limits what Parse reads, in bytes; the real file is smaller than a hundredth of it.
const MaxSize = 1 << 20

// Parse reads a matrix file; name is for messages only. The error is an
// [Errors] unless reading itself failed.
func Parse(name string, r io.Reader) (*File, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rep := &reporter{file: name}
	f := &File{Name: name}
	rep.decodeDocument(text, &f.doc)
	if rep.failed() {
		return nil, rep.err()
	}
	rep.check(&f.doc)
	f.Repository = f.doc.Repository.Text
	return f, rep.err()
}
