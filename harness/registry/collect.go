package registry

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/infile"
)

// A Sink takes the certificates that a [Reader] reads, one at a time, such as those of a history or
// a fleet.
type Sink interface {
	Add(*certificate.Statement)
	Refuse() // counts a document that is no certificate to be trusted
}

// A Reader adds certificates from directories, layouts and registries to a sink. Parsing is most of
// the work, so several goroutines do it.
type Reader struct {
	To Sink
	// Since and Node select certificates: finished since, and of a machine whose name matches a
	// glob; "" matches all, and certificates of images.
	Since time.Time
	Node  string
	// Keys are trusted: if there are some, one of them must have signed each certificate.
	Keys    []crypto.PublicKey
	Options Options // of registries
	Stdin   io.Reader

	mu      sync.Mutex // guards the fields below
	seen    int        // documents
	refused int        // of them
	why     []string   // reasons of the first refusals
}

// told is how many refusals are reported one by one.
const told = 5

// Seen returns the number of documents that were read.
func (r *Reader) Seen() int { return r.seen }

// Read reads a directory and those below it (*.json), a whole repository in a registry, or what
// [Read] reads: all certificates of it.
func (r *Reader) Read(ctx context.Context, where string) error {
	if _, err := os.Stat(where); err == nil {
		return r.files(ctx, where)
	} else if where == "-" || strings.HasPrefix(where, "oci:") || isReference(where) {
		docs, err := documentsAt(ctx, where, r.Stdin, r.Options)
		if err != nil {
			return err
		}
		return r.documents(docs)
	} else if strings.HasPrefix(where, ".") || filepath.IsAbs(where) || !strings.Contains(where, "/") {
		return exit.Usagef("%s: no such directory (a registry's repository is HOST/NAME)", where)
	}
	repo, err := Open(where, r.Options)
	if err != nil {
		return exit.Usagef("no directory has that name, and as a registry's repository: %w", err)
	}
	f := Filter{Since: r.Since}
	if !strings.ContainsAny(r.Node, `*?[\`) {
		f.Node = r.Node
	}
	docs, err := repo.Documents(ctx, f)
	if err != nil {
		return err
	}
	return r.documents(docs)
}

// files reads *.json in a directory and below it, or one file.
func (r *Reader) files(ctx context.Context, root string) error {
	names := make(chan string)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(names)
		return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return exit.Usagef("%w", err)
			}
			if d.IsDir() || name != root && filepath.Ext(name) != ".json" {
				return nil
			}
			select {
			case names <- name:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for name := range names {
				b, err := certificate.ReadFile(name)
				switch kind, size := (*infile.KindError)(nil), (*infile.SizeError)(nil); {
				case name != root && (errors.As(err, &kind) || errors.As(err, &size)):
					r.refuse(name, err) // the directory has others
				case err != nil:
					return exit.Usagef("%w", err)
				default:
					r.document(name, b)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (r *Reader) documents(docs []Document) error {
	g := new(errgroup.Group)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, d := range docs {
		g.Go(func() error {
			r.document(d.Name, d.Data)
			return nil
		})
	}
	return g.Wait()
}

// document adds one document to the sink, or records why it is refused.
func (r *Reader) document(name string, b []byte) {
	st, err := r.parse(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	switch {
	case err != nil:
		r.note(name, err)
	case st != nil && r.wants(st):
		r.To.Add(st)
	}
}

// refuse records why a document is refused that was not read.
func (r *Reader) refuse(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	r.note(name, err)
}

// note is called under the lock.
func (r *Reader) note(name string, err error) {
	r.To.Refuse()
	if r.refused++; len(r.why) < told {
		r.why = append(r.why, fmt.Sprintf("%s: %v", name, err))
	}
}

// Summary prints what was refused.
func (r *Reader) Summary(w io.Writer) {
	for _, why := range r.why {
		fmt.Fprintln(w, "refused:", why)
	}
	if more := r.refused - len(r.why); more > 0 {
		fmt.Fprintf(w, "refused: %d more\n", more)
	}
}

// wants reports whether a certificate is of interest.
func (r *Reader) wants(st *certificate.Statement) bool {
	if st.Predicate.Finished.Before(r.Since) {
		return false
	}
	if r.Node == "" {
		return true
	}
	n := st.Predicate.Node
	if n == nil {
		return false
	}
	ok, _ := path.Match(r.Node, n.Name) // the caller has checked the pattern
	return ok
}

// parse parses a document as a certificate, and verifies it. nil means that it is
// something else.
func (r *Reader) parse(b []byte) (*certificate.Statement, error) {
	if !attest.IsEnvelope(b) && !bytes.Contains(b, []byte(certificate.PredicateType)) {
		return nil, nil
	}
	st, _, err := certificate.Open(b, r.Keys...)
	return st, err
}
