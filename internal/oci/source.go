package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A Source reads one image with its attachments, in a layout or in a repository. Content that it
// returns for a digest has that digest.
type Source interface {
	String() string // the reference
	// Resolve returns the manifest or index of the reference.
	Resolve(ctx context.Context) (v1.Descriptor, error)
	Manifest(ctx context.Context, h v1.Hash) ([]byte, error)
	// Blob returns a small blob as a whole: a configuration, a document.
	Blob(ctx context.Context, h v1.Hash) ([]byte, error)
	// Open reads a blob of any size, once. The last Read fails if the blob does not match the
	// descriptor.
	Open(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
	// Stat reports whether a blob is there in the descriptor's size, without reading it: a
	// [*BlobError] if not.
	Stat(ctx context.Context, d v1.Descriptor) error
	Referrers(ctx context.Context, subject v1.Hash) ([]v1.Descriptor, error)
}

// OpenSource opens "ghcr.io/owner/assay:tag", "…@sha256:…", or a layout:
// "oci:DIR", "oci:DIR:TARGET", "oci:DIR@sha256:…".
func OpenSource(ref string, opts Options) (Source, error) {
	if rest, ok := strings.CutPrefix(ref, "oci:"); ok {
		dir, target := SplitLayout(rest)
		l, err := Open(dir)
		if err != nil {
			return nil, err
		}
		return l.Source(target), nil
	}
	if err := CheckUser(ref); err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	client := newClient(opts)
	r, err := name.ParseReference(ref, client.NameOptions()...)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	repo, err := newRepository(r.Context(), client)
	if err != nil {
		return nil, err
	}
	return remoteSource{r, repo}, nil
}

// CheckReference reports whether a registry reference is well-formed.
func CheckReference(ref string) error {
	if err := CheckUser(ref); err != nil {
		return err
	}
	_, err := name.ParseReference(ref)
	return err
}

// CheckUser refuses a registry's name with a user or password in it, as URLs have them. The error,
// unlike others about names, does not show the name.
func CheckUser(ref string) error {
	if ref, _, _ = strings.Cut(ref, "@sha256:"); strings.Contains(ref, "@") {
		return errors.New(`there is an "@" that begins no digest, @sha256:…; users and passwords of registries are set by "docker login"`)
	}
	return nil
}

// SplitLayout splits "DIR", "DIR:TARGET" and "DIR@sha256:…". A directory with a colon in its name
// is recognised if it exists.
func SplitLayout(s string) (dir, target string) {
	if dir, digest, ok := strings.Cut(s, "@sha256:"); ok {
		return dir, "sha256:" + digest
	}
	if _, err := os.Stat(s); err == nil {
		return s, ""
	}
	if i := strings.LastIndex(s, ":"); i > 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// Source returns a Source for the image of ref (as for [Layout.Find]).
func (l *Layout) Source(ref string) Source { return layoutSource{l, ref} }

type layoutSource struct {
	layout *Layout
	target string
}

func (s layoutSource) String() string {
	switch {
	case s.target == "":
		return "oci:" + s.layout.dir
	case strings.HasPrefix(s.target, "sha256:"):
		return "oci:" + s.layout.dir + "@" + s.target
	}
	return "oci:" + s.layout.dir + ":" + s.target
}

func (s layoutSource) Resolve(context.Context) (v1.Descriptor, error) { return s.layout.Find(s.target) }

func (s layoutSource) Manifest(_ context.Context, h v1.Hash) ([]byte, error) {
	return s.layout.ReadBlob(h)
}

func (s layoutSource) Blob(_ context.Context, h v1.Hash) ([]byte, error) { return s.layout.ReadBlob(h) }

func (s layoutSource) Open(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	rc, err := s.layout.openBlob(d.Digest, d.Size)
	if err != nil {
		return nil, err
	}
	return &until{rc, ctx}, nil
}

// until reads until the context ends, as from a registry: a layer may take minutes.
type until struct {
	io.ReadCloser
	ctx context.Context
}

func (u *until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.ReadCloser.Read(p)
}

func (s layoutSource) Stat(_ context.Context, d v1.Descriptor) error {
	return s.layout.statBlob(d.Digest, d.Size)
}

func (s layoutSource) Referrers(_ context.Context, subject v1.Hash) ([]v1.Descriptor, error) {
	return s.layout.Referrers(subject)
}

type remoteSource struct {
	ref name.Reference
	in  *Repository
}

func (s remoteSource) String() string { return s.ref.String() }

func (s remoteSource) Resolve(ctx context.Context) (v1.Descriptor, error) {
	d, _, err := s.in.get(ctx, s.ref)
	return d, err
}

func (s remoteSource) Manifest(ctx context.Context, h v1.Hash) ([]byte, error) {
	_, raw, err := s.in.get(ctx, s.in.repo.Digest(h.String()))
	return raw, err
}

func (s remoteSource) Blob(ctx context.Context, h v1.Hash) ([]byte, error) {
	var b []byte
	err := s.in.ask(ctx, "blob "+h.String(), func(ctx context.Context) error {
		layer, err := s.in.pull.Layer(ctx, s.ref.Context().Digest(h.String()))
		if err != nil {
			return err
		}
		rc, err := layer.Compressed() // verifies the digest during the read
		if err != nil {
			return err
		}
		defer rc.Close()
		b, err = io.ReadAll(io.LimitReader(rc, maxBlob+1))
		return err
	})
	if err == nil && len(b) > maxBlob {
		err = fmt.Errorf("blob %s is larger than %d bytes: not a configuration or a statement", h, maxBlob)
	}
	return b, err
}

func (s remoteSource) Open(ctx context.Context, d v1.Descriptor) (rc io.ReadCloser, err error) {
	err = s.in.read.Do(ctx, "blob "+d.Digest.String(), func() error {
		layer, err := s.in.pull.Layer(ctx, s.ref.Context().Digest(d.Digest.String()))
		if err != nil {
			return err
		}
		rc, err = layer.Compressed() // verifies the digest during the read
		if err != nil && Status(err) == http.StatusNotFound {
			return &BlobError{Repository: s.in.String(), Digest: d.Digest}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &served{ReadCloser: rc, in: s.in, desc: d}, nil
}

// served reads a blob of a repository, and reports content that is not the descriptor's as a
// [*BlobError].
type served struct {
	io.ReadCloser
	in   *Repository
	desc v1.Descriptor
	n    int64
}

func (r *served) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.n += int64(n)
	switch {
	case err == io.EOF && r.n != r.desc.Size:
		err = &BlobError{Repository: r.in.String(), Digest: r.desc.Digest, Got: fmt.Sprintf("%d bytes, not %d", r.n, r.desc.Size)}
	case err != nil && strings.Contains(err.Error(), "error verifying"): // go-containerregistry's, of a type that it hides
		err = &BlobError{Repository: r.in.String(), Digest: r.desc.Digest, Got: "another digest"}
	}
	return n, err
}

func (s remoteSource) Stat(ctx context.Context, d v1.Descriptor) error {
	var size int64
	err := s.in.ask(ctx, "blob "+d.Digest.String(), func(ctx context.Context) error {
		layer, err := s.in.pull.Layer(ctx, s.ref.Context().Digest(d.Digest.String()))
		if err != nil {
			return err
		}
		size, err = layer.Size()
		if err != nil && Status(err) == http.StatusNotFound {
			return &BlobError{Repository: s.in.String(), Digest: d.Digest}
		}
		return err
	})
	if err == nil && size >= 0 && size != d.Size { // -1: the registry does not say it
		err = &BlobError{Repository: s.in.String(), Digest: d.Digest, Got: fmt.Sprintf("%d bytes, not %d", size, d.Size)}
	}
	return err
}

func (s remoteSource) Referrers(ctx context.Context, subject v1.Hash) ([]v1.Descriptor, error) {
	var list []v1.Descriptor
	err := s.in.ask(ctx, "referrers of "+subject.String(), func(ctx context.Context) (err error) {
		list, err = s.in.referrers(ctx, subject)
		return err
	})
	return list, err
}
