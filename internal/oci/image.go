package oci

import (
	"bytes"
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Add stores a whole image, but does not add it to index.json.
func (l *Layout) Add(img v1.Image) (v1.Descriptor, error) {
	if err := l.blob.WriteImage(img); err != nil {
		return v1.Descriptor{}, fmt.Errorf("writing an image: %w", err)
	}
	d, err := partial.Descriptor(img)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return *d, nil
}

// Put stores a whole image under a name, and replaces the name's previous image.
func (l *Layout) Put(name string, img v1.Image) error {
	d, err := l.Add(img)
	if err != nil {
		return err
	}
	return l.update(func(idx *v1.IndexManifest) error {
		rename(idx, name, d)
		return nil
	})
}

// Get returns the image with a name; ok is false if there is none.
func (l *Layout) Get(name string) (img v1.Image, ok bool, err error) {
	idx, err := l.index()
	if err != nil {
		return nil, false, err
	}
	d, ok, err := called(idx, name)
	if err != nil || !ok {
		return nil, false, err
	}
	img, err = l.blob.Image(d.Digest)
	return img, err == nil, err
}

// Fetch copies an image or an index, with everything below it, from a registry into the layout. It
// does not add it to index.json.
func (l *Layout) Fetch(ctx context.Context, ref string, opts Options) (v1.Descriptor, error) {
	src, err := OpenSource(ref, opts)
	if err != nil {
		return v1.Descriptor{}, err
	}
	from, ok := src.(remoteSource)
	if !ok {
		return v1.Descriptor{}, fmt.Errorf("%s is in a layout already", ref)
	}
	d, err := src.Resolve(ctx)
	if err != nil {
		return v1.Descriptor{}, err
	}
	f := fetcher{from: from, to: l, seen: map[v1.Hash]bool{}, blobs: map[v1.Hash]bool{}}
	return d, f.manifest(ctx, d, 0)
}

// Limits of what is below one reference: far above any real image, and low enough that whoever
// writes an index cannot keep a reader busy, or fill its disk.
const (
	MaxNesting    = 4         // of indexes
	MaxManifests  = 1000      // images and indexes
	MaxLayerBytes = 256 << 30 // of all layers together, compressed
)

// A fetcher copies what a manifest leads to, each manifest once.
type fetcher struct {
	from  remoteSource
	to    *Layout
	seen  map[v1.Hash]bool
	blobs map[v1.Hash]bool
	bytes int64 // of the layers so far
}

func (f *fetcher) manifest(ctx context.Context, d v1.Descriptor, depth int) error {
	if f.seen[d.Digest] || !d.MediaType.IsIndex() && !d.MediaType.IsImage() {
		return nil
	}
	f.seen[d.Digest] = true
	if err := checkLimits(f.from.String(), d, depth, len(f.seen)); err != nil {
		return err
	}
	got, raw, err := f.from.in.fetch(ctx, d.Digest)
	if err != nil {
		return err
	}
	if d.MediaType.IsImage() {
		return f.image(ctx, got, raw)
	}
	idx, err := ParseIndex("index "+d.Digest.String(), raw, d.MediaType)
	if err != nil {
		return err
	}
	for _, m := range idx.Manifests {
		if err := f.manifest(ctx, m, depth+1); err != nil {
			return err
		}
	}
	_, _, err = f.to.WriteBlob(bytes.NewReader(raw))
	return err
}

func (f *fetcher) image(ctx context.Context, d *remote.Descriptor, raw []byte) error {
	m, err := ParseManifest("manifest "+d.Digest.String(), raw, d.MediaType)
	if err != nil {
		return err
	}
	for _, layer := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if f.blobs[layer.Digest] {
			continue
		}
		f.blobs[layer.Digest] = true
		if f.bytes += max(layer.Size, 0); f.bytes > MaxLayerBytes {
			return fmt.Errorf("%s: its layers are larger than %d GiB, which is all that is fetched", f.from, MaxLayerBytes>>30)
		}
	}
	return f.from.in.read.Do(ctx, "image "+d.Digest.String(), func() error {
		img, err := d.Image()
		if err != nil {
			return err
		}
		return f.to.blob.WriteImage(img)
	})
}

// checkLimits reports whether a manifest lies too deep below the reference, or is one too many.
func checkLimits(ref string, d v1.Descriptor, depth, count int) error {
	switch {
	case count > MaxManifests:
		return fmt.Errorf("%s: more than %d manifests", ref, MaxManifests)
	case d.MediaType.IsIndex() && depth >= MaxNesting:
		return fmt.Errorf("%s: indexes are nested deeper than %d levels", ref, MaxNesting)
	}
	return nil
}

// Digest queries a registry for the digest of a reference without fetching the manifest: registries
// that count pulls do not count this.
func Digest(ctx context.Context, ref string, opts Options) (v1.Hash, error) {
	src, err := OpenSource(ref, opts)
	if err != nil {
		return v1.Hash{}, err
	}
	s, ok := src.(remoteSource)
	if !ok {
		d, err := src.Resolve(ctx)
		return d.Digest, err
	}
	var h v1.Hash
	err = s.in.ask(ctx, "manifest "+s.ref.Identifier(), func(ctx context.Context) error {
		d, err := s.in.pull.Head(ctx, s.ref)
		if err == nil {
			h = d.Digest
		}
		return err
	})
	return h, err
}

// RawConfig returns the configuration of a reference's image for a platform.
func RawConfig(ctx context.Context, ref string, p v1.Platform, opts Options) ([]byte, error) {
	src, err := OpenSource(ref, opts)
	if err != nil {
		return nil, err
	}
	d, err := src.Resolve(ctx)
	if err != nil {
		return nil, err
	}
	if d.MediaType.IsIndex() {
		if d, err = choose(ctx, src, d, p); err != nil {
			return nil, err
		}
	}
	raw, err := src.Manifest(ctx, d.Digest)
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest("manifest "+d.Digest.String(), raw, d.MediaType)
	if err != nil {
		return nil, err
	}
	return src.Blob(ctx, m.Config.Digest)
}

// choose returns an index's first image for a platform.
func choose(ctx context.Context, src Source, d v1.Descriptor, p v1.Platform) (v1.Descriptor, error) {
	raw, err := src.Manifest(ctx, d.Digest)
	if err != nil {
		return d, err
	}
	idx, err := ParseIndex("index "+d.Digest.String(), raw, d.MediaType)
	if err != nil {
		return d, err
	}
	for _, m := range idx.Manifests {
		if m.Platform != nil && m.MediaType.IsImage() && m.Platform.Satisfies(p) {
			return m, nil
		}
	}
	return d, fmt.Errorf("%s has no image for %s", src, p)
}
