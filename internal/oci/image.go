package oci

import (
	"bytes"
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
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
	for _, d := range idx.Manifests {
		if refName(d) == name {
			img, err := l.blob.Image(d.Digest)
			return img, err == nil, err
		}
	}
	return nil, false, nil
}

// Fetch copies an image or an index, with everything below it, from a registry into the layout. It
// does not add it to index.json.
func (l *Layout) Fetch(ctx context.Context, ref string, opts Options) (v1.Descriptor, error) {
	src, err := OpenSource(ref, opts)
	if err != nil {
		return v1.Descriptor{}, err
	}
	remote, ok := src.(remoteSource)
	if !ok {
		return v1.Descriptor{}, fmt.Errorf("%s is in a layout already", ref)
	}
	var d v1.Descriptor
	err = remote.in.read.Do(ctx, "image "+remote.ref.Identifier(), func() error {
		got, err := remote.in.pull.Get(ctx, remote.ref)
		if err != nil {
			return err
		}
		d = got.Descriptor
		if d.MediaType.IsIndex() {
			idx, err := got.ImageIndex()
			if err != nil {
				return err
			}
			return writeIndex(l.blob, idx)
		}
		img, err := got.Image()
		if err != nil {
			return err
		}
		return l.blob.WriteImage(img)
	})
	return d, err
}

// writeIndex writes an index and everything below it as blobs.
func writeIndex(to layout.Path, idx v1.ImageIndex) error {
	m, err := idx.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range m.Manifests {
		switch {
		case d.MediaType.IsIndex():
			inner, err := idx.ImageIndex(d.Digest)
			if err == nil {
				err = writeIndex(to, inner)
			}
			if err != nil {
				return err
			}
		case d.MediaType.IsImage():
			img, err := idx.Image(d.Digest)
			if err == nil {
				err = to.WriteImage(img)
			}
			if err != nil {
				return err
			}
		}
	}
	raw, err := idx.RawManifest()
	if err != nil {
		return err
	}
	_, _, err = (&Layout{dir: string(to), blob: to}).WriteBlob(bytes.NewReader(raw))
	return err
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
	err = s.in.read.Do(ctx, "manifest "+s.ref.Identifier(), func() error {
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
