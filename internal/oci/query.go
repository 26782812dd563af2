package oci

import (
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Config returns the configuration of an image, given the digest of its manifest ("sha256:…").
func (l *Layout) Config(digest string) (*v1.ConfigFile, error) {
	h, err := v1.NewHash(digest)
	if err != nil {
		return nil, err
	}
	return l.config(h)
}

// Complete returns an error if a part of an image is missing: it is nil if manifest, configuration
// and layers are all there in their full size. It does not read layers.
func (l *Layout) Complete(digest string) error {
	h, err := v1.NewHash(digest)
	if err != nil {
		return err
	}
	m, err := l.manifest(h)
	if err != nil {
		return err
	}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if err := l.statBlob(d.Digest, d.Size); err != nil {
			return err
		}
	}
	return nil
}

// Holds returns the digest of a target's index if the index contains exactly the given images, by
// the digests of their manifests.
func (l *Layout) Holds(target string, images []string) (digest string, ok bool) {
	d, err := l.Find(target)
	if err != nil || !d.MediaType.IsIndex() {
		return "", false
	}
	raw, err := l.ReadBlob(d.Digest)
	if err != nil {
		return "", false
	}
	idx, err := ParseIndex("index "+d.Digest.String(), raw, d.MediaType)
	if err != nil {
		return "", false
	}
	var have []string
	for _, m := range idx.Manifests {
		have = append(have, m.Digest.String())
	}
	want := slices.Sorted(slices.Values(images))
	slices.Sort(have)
	return d.Digest.String(), slices.Equal(have, want)
}
