package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
)

// A Filter selects certificates of machines, as far as tags tell. A selected certificate may
// still be of another machine.
type Filter struct {
	Node  string // name; "" for all
	Since time.Time
}

func (f Filter) wants(tag string) bool {
	node, finished, ok := parseTag(tag)
	return ok && (f.Node == "" || node == tagName(f.Node)) && !finished.Before(f.Since)
}

// A Document is a certificate as stored: bare, or in its envelope.
type Document struct {
	Name string // its origin, for messages
	Data []byte
}

// readers is how many certificates are fetched at once. Each takes two small requests.
const readers = 8

// Documents returns the repository's certificates: those of the image, if it names one, or else
// those of machines. They are in the order of the tags, or of the referrers.
func (r *Repository) Documents(ctx context.Context, f Filter) ([]Document, error) {
	refs, err := r.references(ctx, f)
	if err != nil {
		return nil, err
	}
	docs := make([]Document, len(refs))
	var held room
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, ref := range refs {
		g.Go(func() (err error) {
			if docs[i], err = r.document(ctx, ref); err != nil {
				return err
			}
			return held.take(r.repo.String(), docs[i])
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(docs, func(d Document) bool { return d.Data == nil }), nil
}

// maxHeld limits the bytes of all certificates of one place together, which are held at once.
var maxHeld int64 = 2 << 30 // tests have less

// A room counts the bytes of certificates.
type room struct{ taken atomic.Int64 }

func (r *room) take(where string, d Document) error {
	if r.taken.Add(int64(len(d.Data))) > maxHeld {
		return fmt.Errorf("%s: its certificates have more than %d MiB together, which is all that is read: name some of them, or choose by --node and --since", where, maxHeld>>20)
	}
	return nil
}

// references returns tags or digests of referrers.
func (r *Repository) references(ctx context.Context, f Filter) (refs []string, err error) {
	if r.subject == nil {
		refs, err = r.repo.Tags(ctx)
		refs = slices.DeleteFunc(refs, func(tag string) bool { return !f.wants(tag) })
		slices.Sort(refs)
		return refs, err
	}
	list, err := r.repo.Source(*r.subject).Referrers(ctx, *r.subject)
	for _, d := range list {
		// Not every registry copies annotations into the list.
		if p, ok := d.Annotations[oci.AnnotationPredicate]; !ok || p == certificate.PredicateType {
			refs = append(refs, d.Digest.String())
		}
	}
	return refs, err
}

// document fetches the certificate with a tag or a digest. It has no data if the artifact is not
// a certificate.
func (r *Repository) document(ctx context.Context, ref string) (Document, error) {
	d, raw, err := r.repo.Get(ctx, ref)
	if err != nil {
		return Document{}, err
	}
	blob, ok := certificateBlob(raw)
	if !ok {
		return Document{}, nil
	}
	data, err := r.repo.Source(d.Digest).Blob(ctx, blob)
	return Document{r.repo.String() + at(ref), data}, err
}

func at(ref string) string {
	if strings.HasPrefix(ref, "sha256:") {
		return "@" + ref
	}
	return ":" + ref
}

// certificateBlob returns the layer of a certificate's manifest.
func certificateBlob(manifest []byte) (v1.Hash, bool) {
	m, err := oci.ParseManifest("a certificate's manifest", manifest, "")
	if err != nil || len(m.Layers) != 1 || m.Annotations[oci.AnnotationPredicate] != certificate.PredicateType {
		return v1.Hash{}, false
	}
	t := string(m.Layers[0].MediaType)
	return m.Layers[0].Digest, t == attest.TypeStatement || t == attest.TypeEnvelope
}

// Layout returns the certificates of images and machines in an OCI layout.
func Layout(ctx context.Context, dir string) ([]Document, error) {
	l, err := oci.Open(dir)
	if err != nil {
		return nil, err
	}
	list, err := l.Manifests()
	if err != nil {
		return nil, err
	}
	var docs []Document
	var held room
	seen := map[v1.Hash]bool{}
	for _, d := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if d.MediaType.IsIndex() || seen[d.Digest] {
			continue // an image, whose referrers are separate entries; or another entry of the same
		}
		seen[d.Digest] = true
		doc, ok, err := layoutDocument(l, d.Digest)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if err := held.take(dir, doc); err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}
