package oci

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A PlatformImage is one platform's manifest, which is already in the layout.
type PlatformImage struct {
	Platform v1.Platform
	Digest   string // "sha256:…"
}

// Assemble writes the multi-arch index of a target and adds it to index.json under the target's
// name. For tools that cannot select from an index it also adds one entry per platform,
// "TARGET/linux/amd64". Existing entries with these names are replaced. The returned digest depends
// only on the arguments.
func (l *Layout) Assemble(target string, images []PlatformImage, annotations map[string]string) (v1.Hash, error) {
	if !namePattern.MatchString(target) {
		return v1.Hash{}, fmt.Errorf("%q is not a name for a target in an OCI layout", target)
	}
	if len(images) == 0 {
		return v1.Hash{}, fmt.Errorf("target %s: no images to assemble", target)
	}
	idx := newIndex()
	idx.Annotations = annotations
	for _, img := range images {
		d, err := l.platformImage(img)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("target %s, %s: %w", target, img.Platform, err)
		}
		idx.Manifests = append(idx.Manifests, d)
	}
	if err := sortPlatforms(target, idx.Manifests); err != nil {
		return v1.Hash{}, err
	}
	raw := marshal(idx)
	h, size, err := l.WriteBlob(bytes.NewReader(raw))
	if err != nil {
		return v1.Hash{}, err
	}
	entry := v1.Descriptor{MediaType: types.OCIImageIndex, Digest: h, Size: size}
	return h, l.enter(target, entry, idx.Manifests)
}

func sortPlatforms(target string, ds []v1.Descriptor) error {
	slices.SortFunc(ds, func(a, b v1.Descriptor) int { return strings.Compare(a.Platform.String(), b.Platform.String()) })
	for i := 1; i < len(ds); i++ {
		if ds[i].Platform.Equals(*ds[i-1].Platform) {
			return fmt.Errorf("target %s: two images for %s", target, ds[i].Platform)
		}
	}
	return nil
}

// platformImage describes one image after checking that its configuration is for the given
// platform.
func (l *Layout) platformImage(img PlatformImage) (v1.Descriptor, error) {
	h, err := v1.NewHash(img.Digest)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("digest %q: %w", img.Digest, err)
	}
	d, err := l.Describe(h)
	if err != nil {
		return v1.Descriptor{}, err
	}
	if !d.MediaType.IsImage() {
		return v1.Descriptor{}, fmt.Errorf("%s is a %s, not an image manifest", h, d.MediaType)
	}
	cfg, err := l.config(h)
	if err != nil {
		return v1.Descriptor{}, err
	}
	if cfg.OS != img.Platform.OS || cfg.Architecture != img.Platform.Architecture {
		return v1.Descriptor{}, fmt.Errorf("image %s is for %s/%s", h, cfg.OS, cfg.Architecture)
	}
	d.Platform = &v1.Platform{OS: cfg.OS, Architecture: cfg.Architecture, Variant: cfg.Variant}
	return d, nil
}

func (l *Layout) config(image v1.Hash) (*v1.ConfigFile, error) {
	m, err := l.manifest(image)
	if err != nil {
		return nil, err
	}
	raw, err := l.ReadBlob(m.Config.Digest)
	if err != nil {
		return nil, err
	}
	return ParseConfig("configuration "+m.Config.Digest.String(), raw)
}

func (l *Layout) manifest(h v1.Hash) (*v1.Manifest, error) {
	raw, err := l.ReadBlob(h)
	if err != nil {
		return nil, err
	}
	return ParseManifest("manifest "+h.String(), raw, "")
}

// enter replaces the entries of a target in index.json, and removes attachments of images that no
// entry refers to any longer. Statements about images that are not listed yet stay: another target
// may be in progress.
func (l *Layout) enter(target string, index v1.Descriptor, images []v1.Descriptor) error {
	return l.update(func(idx *v1.IndexManifest) error {
		old := map[v1.Hash]bool{}
		idx.Manifests = slices.DeleteFunc(idx.Manifests, func(d v1.Descriptor) bool {
			mine := refName(d) == target || strings.HasPrefix(refName(d), target+"/")
			if mine {
				old[d.Digest] = true
			}
			return mine
		})
		idx.Manifests = append(idx.Manifests, named(index, target))
		for _, d := range images {
			idx.Manifests = append(idx.Manifests, named(d, target+"/"+d.Platform.String()))
		}
		for _, d := range idx.Manifests {
			delete(old, d.Digest)
		}
		return l.dropReferrers(idx, old)
	})
}

func named(d v1.Descriptor, name string) v1.Descriptor {
	d.Annotations = map[string]string{AnnotationRefName: name}
	return d
}

func (l *Layout) dropReferrers(idx *v1.IndexManifest, subjects map[v1.Hash]bool) error {
	var errs error
	idx.Manifests = slices.DeleteFunc(idx.Manifests, func(d v1.Descriptor) bool {
		subject, err := l.subject(d)
		errs = cmp.Or(errs, err)
		return err == nil && subjects[subject]
	})
	return errs
}
