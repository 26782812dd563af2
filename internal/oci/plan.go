package oci

import (
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A plan is everything that a registry must contain before a tag may point to root, in the order of
// the upload: blobs, images, indexes (inner before outer), referrers.
type plan struct {
	root      manifest
	blobs     []v1.Descriptor
	images    []manifest
	indexes   []manifest
	referrers []manifest
}

// A manifest is the raw text of a manifest; it is a remote.Taggable.
type manifest struct {
	desc    v1.Descriptor
	raw     []byte
	subject *v1.Hash
}

func (m manifest) RawManifest() ([]byte, error)        { return m.raw, nil }
func (m manifest) MediaType() (types.MediaType, error) { return m.desc.MediaType, nil }

func (l *Layout) plan(digest v1.Hash) (*plan, error) {
	root, err := l.Describe(digest)
	if err != nil {
		return nil, err
	}
	w := planner{layout: l, seen: map[v1.Hash]bool{}}
	if w.root, err = w.add(root, 0); err != nil {
		return nil, err
	}
	if err := w.addReferrers(); err != nil {
		return nil, err
	}
	return &w.plan, w.stat()
}

type planner struct {
	plan
	layout *Layout
	seen   map[v1.Hash]bool
}

// add adds a manifest and everything below it to the plan.
func (w *planner) add(d v1.Descriptor, depth int) (manifest, error) {
	if err := checkLimits(w.layout.dir, d, depth, len(w.images)+len(w.indexes)+1); err != nil {
		return manifest{}, err
	}
	raw, err := w.layout.ReadBlob(d.Digest)
	if err != nil {
		return manifest{}, err
	}
	m := manifest{desc: d, raw: raw}
	if w.seen[d.Digest] {
		return m, nil
	}
	w.seen[d.Digest] = true
	switch {
	case d.MediaType.IsIndex():
		return m, w.addIndex(m, depth)
	case d.MediaType.IsImage():
		return m, w.addImage(m)
	}
	return m, fmt.Errorf("manifest %s: %q is neither an image nor an index", d.Digest, d.MediaType)
}

func (w *planner) addIndex(m manifest, depth int) error {
	idx, err := ParseIndex("index "+m.desc.Digest.String(), m.raw, m.desc.MediaType)
	if err != nil {
		return err
	}
	for _, d := range idx.Manifests {
		if _, err := w.add(d, depth+1); err != nil {
			return err
		}
	}
	w.indexes = append(w.indexes, m)
	return nil
}

func (w *planner) addImage(m manifest) error {
	img, err := ParseManifest("manifest "+m.desc.Digest.String(), m.raw, m.desc.MediaType)
	if err != nil {
		return err
	}
	for _, d := range append([]v1.Descriptor{img.Config}, img.Layers...) {
		if !w.seen[d.Digest] && d.MediaType.IsDistributable() {
			w.seen[d.Digest] = true
			w.blobs = append(w.blobs, d)
		}
	}
	if img.Subject != nil {
		m.subject = &img.Subject.Digest
		w.referrers = append(w.referrers, m)
		return nil
	}
	w.images = append(w.images, m)
	return nil
}

// addReferrers adds the attachments of everything in the plan, and recursively their attachments.
func (w *planner) addReferrers() error {
	idx, err := w.layout.index()
	if err != nil {
		return err
	}
	for found := true; found; {
		found = false
		for _, d := range idx.Manifests {
			s, err := w.layout.subject(d)
			if err != nil {
				return err
			}
			if !w.seen[s] || w.seen[d.Digest] {
				continue
			}
			if _, err := w.add(d, 0); err != nil {
				return err
			}
			found = true
		}
	}
	return nil
}

// stat returns an error that lists all missing or damaged blobs of the plan.
func (w *planner) stat() error {
	var errs []error
	for _, b := range w.blobs {
		errs = append(errs, w.layout.statBlob(b.Digest, b.Size))
	}
	return errors.Join(errs...)
}

// storedBlob passes a blob of the layout to go-containerregistry.
type storedBlob struct {
	layout *Layout
	desc   v1.Descriptor
}

func (b *storedBlob) Digest() (v1.Hash, error)            { return b.desc.Digest, nil }
func (b *storedBlob) Size() (int64, error)                { return b.desc.Size, nil }
func (b *storedBlob) MediaType() (types.MediaType, error) { return b.desc.MediaType, nil }
func (b *storedBlob) Descriptor() (*v1.Descriptor, error) { return &b.desc, nil }
func (b *storedBlob) Compressed() (io.ReadCloser, error) {
	return b.layout.openBlob(b.desc.Digest, b.desc.Size)
}
