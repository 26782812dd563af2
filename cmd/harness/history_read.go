package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/harness/history"
	ociregistry "github.com/assay-hpc/assay/harness/registry"
	"github.com/assay-hpc/assay/internal/exit"
)

// A historyReader adds certificates from files, layouts and registries to a history.
// Parsing is most of the work, so several goroutines do it.
type historyReader struct {
	opts *historyOptions

	mu      sync.Mutex // guards the fields below
	to      *history.Collector
	seen    int      // documents
	refused int      // of them
	why     []string // reasons of the first refusals
}

// told is how many refusals are reported one by one.
const told = 5

func newHistoryReader(o *historyOptions, to *history.Collector) *historyReader {
	return &historyReader{opts: o, to: to}
}

func (r *historyReader) read(ctx context.Context, where string) error {
	if dir, ok := strings.CutPrefix(where, "oci:"); ok {
		docs, err := ociregistry.Layout(ctx, dir)
		if err != nil {
			return exit.Usagef("%w", err)
		}
		return r.documents(docs)
	}
	if _, err := os.Stat(where); err == nil {
		return r.files(ctx, where)
	} else if strings.HasPrefix(where, ".") || filepath.IsAbs(where) || !strings.Contains(where, "/") {
		return exit.Usagef("%s: no such directory (a registry's repository is HOST/NAME)", where)
	}
	repo, err := openRepository(where, r.opts.insecure)
	if err != nil {
		return exit.Usagef("%s is no directory, and as a registry's repository: %w", where, err)
	}
	f := ociregistry.Filter{Since: r.opts.from}
	if !strings.ContainsAny(r.opts.node, `*?[\`) {
		f.Node = r.opts.node
	}
	docs, err := repo.Documents(ctx, f)
	if err != nil {
		return err
	}
	return r.documents(docs)
}

// files reads *.json in a directory and below it, or one file.
func (r *historyReader) files(ctx context.Context, root string) error {
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
				b, err := readCertificateFile(name)
				if err != nil {
					return err
				}
				r.document(name, b)
			}
			return nil
		})
	}
	return g.Wait()
}

func (r *historyReader) documents(docs []ociregistry.Document) error {
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

// document adds one document to the history, or records why it is refused.
func (r *historyReader) document(name string, b []byte) {
	st, err := r.opts.parse(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	switch {
	case err != nil:
		r.to.Refuse()
		if r.refused++; len(r.why) < told {
			r.why = append(r.why, fmt.Sprintf("%s: %v", name, err))
		}
	case st != nil && r.opts.wants(st):
		r.to.Add(st)
	}
}

// summary prints what was refused.
func (r *historyReader) summary(w io.Writer) {
	for _, why := range r.why {
		fmt.Fprintln(w, "refused:", why)
	}
	if more := r.refused - len(r.why); more > 0 {
		fmt.Fprintf(w, "refused: %d more\n", more)
	}
}
