package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
)

// Where says how certificates are named, for usage texts.
const Where = "a file, - for stdin, REPO@sha256:… or REPO:TAG in a registry, or oci:DIR[:NAME|@sha256:…]"

// Read returns the certificate at a place: a file, "-" (stdin), "REPO@sha256:…" or "REPO:TAG" in a
// registry, "oci:DIR", "oci:DIR:NAME" or "oci:DIR@sha256:…". A reference names a certificate's own
// artifact, as a push prints it, or an image or an index of images that has a single certificate.
func Read(ctx context.Context, where string, stdin io.Reader, opts Options) (Document, error) {
	docs, err := documentsAt(ctx, where, stdin, opts)
	if err != nil {
		return Document{}, err
	}
	switch len(docs) {
	case 0:
		return Document{}, exit.Usagef("%s: there is no certificate", where)
	case 1:
		return docs[0], nil
	}
	var names []string
	for _, d := range docs {
		names = append(names, d.Name)
	}
	return Document{}, exit.Usagef("%s: there are %d certificates; name one of %s", where, len(docs), strings.Join(names, ", "))
}

// documentsAt returns all certificates at a place that is no directory of files, and no whole repository.
func documentsAt(ctx context.Context, where string, stdin io.Reader, opts Options) ([]Document, error) {
	if where == "-" {
		b, err := io.ReadAll(io.LimitReader(stdin, 2*certificate.MaxSize+1))
		if err != nil {
			return nil, exit.With(exit.NotDone, fmt.Errorf("stdin: %w", err))
		}
		return []Document{{"stdin", b}}, nil
	}
	if rest, ok := strings.CutPrefix(where, "oci:"); ok {
		docs, err := inLayout(ctx, rest)
		if err != nil {
			return nil, exit.Usagef("%w", err)
		}
		return docs, nil
	}
	if isReference(where) {
		repo, ref, err := openReference(where, opts)
		if err != nil {
			return nil, exit.Usagef("%w", err)
		}
		return repo.at(ctx, ref)
	}
	b, err := certificate.ReadFile(where)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Usagef("%w (a reference begins with its registry, HOST/NAME@sha256:… or HOST/NAME:TAG)", err)
	}
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return []Document{{where, b}}, nil
}

// isReference reports whether a name is a registry's reference and no file's: its first part is a
// host with a dot or a port, and it ends in a tag or a digest. With a user in it, it is refused later.
func isReference(where string) bool {
	if _, err := os.Lstat(where); err == nil || strings.HasPrefix(where, ".") || filepath.IsAbs(where) {
		return false
	}
	host, rest, ok := strings.Cut(where, "/")
	return ok && (strings.ContainsAny(host, ".:") || host == "localhost") && (strings.ContainsAny(rest, ":@") || strings.Contains(host, "@"))
}

// Several reports whether a place may have certificates of several machines: a directory, a whole
// repository of a registry, or an OCI layout.
func Several(where string) bool {
	if st, err := os.Stat(where); err == nil {
		return st.IsDir()
	}
	if layout, ok := strings.CutPrefix(where, "oci:"); ok {
		st, err := os.Stat(layout)
		return err == nil && st.IsDir()
	}
	host, _, ok := strings.Cut(where, "/")
	return ok && (strings.ContainsAny(host, ".:") && !strings.HasPrefix(host, ".") || host == "localhost") && !isReference(where)
}

// openReference opens the repository of "REPO@sha256:…" or "REPO:TAG", and returns the digest or
// tag. With both the digest counts.
func openReference(where string, opts Options) (r *Repository, ref string, err error) {
	if err := oci.CheckUser(where); err != nil {
		return nil, "", err
	}
	name, ref, byDigest := strings.Cut(where, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		if !byDigest {
			ref = name[i+1:]
		}
		name = name[:i]
	}
	if byDigest {
		if _, err := v1.NewHash(ref); err != nil {
			return nil, "", fmt.Errorf("%q is not REPO@sha256:…: %w", where, err)
		}
	}
	repo, err := oci.OpenRepository(name, opts)
	if err != nil {
		return nil, "", err
	}
	return &Repository{repo: repo}, ref, nil
}

// at returns the certificate whose artifact has the tag or the digest, or else those that are
// attached to the image or the index with it.
func (r *Repository) at(ctx context.Context, ref string) ([]Document, error) {
	d, raw, err := r.repo.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if _, ok := certificateBlob(raw); ok {
		doc, err := r.document(ctx, ref)
		return []Document{doc}, err
	}
	list, err := subjects(d, raw)
	if err != nil {
		return nil, err
	}
	var docs []Document
	for _, h := range list {
		image := &Repository{repo: r.repo, subject: &h}
		found, err := image.Documents(ctx, Filter{})
		if err != nil {
			return nil, err
		}
		docs = append(docs, found...)
	}
	return docs, nil
}

// subjects returns the manifests that certificates about a manifest are attached to: itself and, if
// it is an index, the images that it lists.
func subjects(d v1.Descriptor, raw []byte) ([]v1.Hash, error) {
	list := []v1.Hash{d.Digest}
	if !d.MediaType.IsIndex() {
		return list, nil
	}
	what := "index " + d.Digest.String()
	idx, err := oci.ParseIndex(what, raw, d.MediaType)
	if err != nil {
		return nil, err
	}
	if len(idx.Manifests) > oci.MaxManifests {
		return nil, fmt.Errorf("%s: more than %d manifests", what, oci.MaxManifests)
	}
	for _, m := range idx.Manifests {
		if m.MediaType.IsImage() && !slices.Contains(list, m.Digest) {
			list = append(list, m.Digest)
		}
	}
	return list, nil
}

// inLayout returns the certificates of "DIR", "DIR:NAME" and "DIR@sha256:…".
func inLayout(ctx context.Context, rest string) ([]Document, error) {
	dir, name := oci.SplitLayout(rest)
	if name == "" {
		return Layout(ctx, dir)
	}
	l, err := oci.Open(dir)
	if err != nil {
		return nil, err
	}
	d, err := l.Find(name)
	if err != nil {
		return nil, err
	}
	if doc, ok, err := layoutDocument(l, d.Digest); err != nil || ok {
		return []Document{doc}, err
	}
	raw, err := l.ReadBlob(d.Digest)
	if err != nil {
		return nil, err
	}
	list, err := subjects(d, raw)
	if err != nil {
		return nil, err
	}
	var docs []Document
	var held room
	for _, h := range list {
		attached, err := l.Referrers(h)
		if err != nil {
			return nil, err
		}
		for _, d := range attached {
			doc, ok, err := layoutDocument(l, d.Digest)
			if err == nil && ok {
				docs = append(docs, doc)
				err = held.take(dir, doc)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return docs, nil
}

// layoutDocument returns the certificate whose artifact has the digest; ok is false if it is none.
func layoutDocument(l *oci.Layout, h v1.Hash) (doc Document, ok bool, err error) {
	raw, err := l.ReadBlob(h)
	if err != nil {
		return doc, false, fmt.Errorf("%s: %w", l.Dir(), err)
	}
	blob, ok := certificateBlob(raw)
	if !ok {
		return doc, false, nil
	}
	b, err := l.ReadBlob(blob)
	if err != nil {
		return doc, false, fmt.Errorf("%s: %w", l.Dir(), err)
	}
	return Document{"oci:" + l.Dir() + "@" + h.String(), b}, true, nil
}
