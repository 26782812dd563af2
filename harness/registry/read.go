package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/internal/ociclient"
)

// A Filter says which machines' certificates are of interest, as far as tags tell.
// What it lets through may still be another's.
type Filter struct {
	Node  string // name; "" for all
	Since time.Time
}

func (f Filter) wants(tag string) bool {
	node, finished, ok := parseTag(tag)
	return ok && (f.Node == "" || node == TagName(f.Node)) && !finished.Before(f.Since)
}

// A Document is a certificate as it was stored: bare, or in its envelope.
type Document struct {
	Name string // where it is from, for messages
	Data []byte
}

// readers is how many certificates are fetched at once: each is two small requests.
const readers = 8

// Documents returns the repository's certificates: those of the image, if it names
// one, else those of machines. The order is that of the tags, or of the referrers.
func (r *Repository) Documents(ctx context.Context, f Filter) ([]Document, error) {
	refs, err := r.references(ctx, f)
	if err != nil {
		return nil, err
	}
	docs := make([]Document, len(refs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, ref := range refs {
		g.Go(func() (err error) {
			docs[i], err = r.document(ctx, ref)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(docs, func(d Document) bool { return d.Data == nil }), nil
}

// references returns tags, or digests of referrers.
func (r *Repository) references(ctx context.Context, f Filter) (refs []string, err error) {
	if r.subject == nil {
		err = do(ctx, r.read, "tags", func(ctx context.Context) (err error) {
			refs, err = r.pull.List(ctx, r.repo)
			return err
		})
		refs = slices.DeleteFunc(refs, func(tag string) bool { return !f.wants(tag) })
		slices.Sort(refs)
		return refs, err
	}
	list, err := r.referrers(ctx)
	for _, d := range list {
		// Not every registry copies annotations into the list.
		if p, ok := d.Annotations[ociclient.AnnotationPredicate]; !ok || p == certificate.PredicateType {
			refs = append(refs, d.Digest.String())
		}
	}
	return refs, err
}

// document fetches what a tag or a digest leads to; it has no data if that is no
// certificate.
func (r *Repository) document(ctx context.Context, ref string) (Document, error) {
	var at name.Reference = r.repo.Tag(ref)
	if r.subject != nil {
		at = r.repo.Digest(ref)
	}
	var raw []byte
	err := do(ctx, r.read, "manifest "+ref, func(ctx context.Context) error {
		d, err := r.pull.Get(ctx, at)
		if err == nil {
			raw = d.Manifest
		}
		return err
	})
	if err != nil {
		return Document{}, err
	}
	blob, ok := certificateBlob(raw)
	if !ok {
		return Document{}, nil
	}
	data, err := r.blob(ctx, blob)
	return Document{at.Name(), data}, err
}

// certificateBlob returns the layer of a certificate's manifest.
func certificateBlob(manifest []byte) (v1.Hash, bool) {
	var m v1.Manifest
	if json.Unmarshal(manifest, &m) != nil || len(m.Layers) != 1 || m.Annotations[ociclient.AnnotationPredicate] != certificate.PredicateType {
		return v1.Hash{}, false
	}
	t := string(m.Layers[0].MediaType)
	return m.Layers[0].Digest, t == ociclient.TypeStatement || t == ociclient.TypeEnvelope
}

// maxDocument bounds what is read: an envelope is longer than what is in it.
const maxDocument = 2 * certificate.MaxSize

func (r *Repository) blob(ctx context.Context, h v1.Hash) (b []byte, err error) {
	err = do(ctx, r.read, "blob "+h.String(), func(ctx context.Context) error {
		layer, err := r.pull.Layer(ctx, r.repo.Digest(h.String()))
		if err != nil {
			return err
		}
		rc, err := layer.Compressed() // verifies the digest while it is read
		if err != nil {
			return err
		}
		defer rc.Close()
		b, err = readAll(rc, h)
		return err
	})
	return b, err
}

func readAll(r io.Reader, h v1.Hash) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err == nil && len(b) > maxDocument {
		err = fmt.Errorf("blob %s is too large for a certificate", h)
	}
	return b, err
}

// Layout returns the certificates in an OCI layout: of images and of machines.
func Layout(ctx context.Context, dir string) ([]Document, error) {
	l, err := layout.FromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is no OCI layout: %w", dir, err)
	}
	idx, err := l.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	m, err := idx.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	var docs []Document
	for _, d := range m.Manifests {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if d.MediaType.IsIndex() {
			continue // an image; what is attached to it stands beside it
		}
		raw, err := blobOf(l, d.Digest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		h, ok := certificateBlob(raw)
		if !ok {
			continue
		}
		b, err := blobOf(l, h)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		docs = append(docs, Document{"oci:" + dir + "@" + d.Digest.String(), b})
	}
	return docs, nil
}

// blobOf reads a layout's blob and holds it against its digest.
func blobOf(l layout.Path, h v1.Hash) ([]byte, error) {
	rc, err := l.Blob(h)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	b, err := readAll(rc, h)
	if err != nil {
		return nil, err
	}
	if got, _, err := v1.SHA256(bytes.NewReader(b)); err != nil || got != h {
		return nil, errors.Join(err, fmt.Errorf("the blob %s has the digest %s", h, got))
	}
	return b, nil
}
