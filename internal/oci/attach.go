package oci

import (
	"bytes"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Attach stores an artifact as a referrer of subject, which must be in the layout. It replaces an
// earlier artifact with the same predicate (or, without one, the same type) on the same subject: a
// layout contains the statements of this build, a registry may contain the history.
func (l *Layout) Attach(subject v1.Hash, a Artifact) (v1.Descriptor, error) {
	sd, err := l.Describe(subject)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("attaching to %s: %w", subject, err)
	}
	m := a.manifest(&sd)
	raw := marshal(m)
	for _, b := range [][]byte{Empty, a.Data, raw} {
		if _, _, err := l.WriteBlob(bytes.NewReader(b)); err != nil {
			return v1.Descriptor{}, err
		}
	}
	d := descriptor(types.OCIManifestSchema1, raw)
	d.ArtifactType, d.Annotations = a.Type, m.Annotations
	return d, l.enterReferrer(subject, d)
}

func (l *Layout) enterReferrer(subject v1.Hash, d v1.Descriptor) error {
	return l.update(func(idx *v1.IndexManifest) error {
		older, err := l.referrersIn(idx, subject)
		if err != nil {
			return err
		}
		idx.Manifests = slices.DeleteFunc(idx.Manifests, func(e v1.Descriptor) bool {
			same := func(o v1.Descriptor) bool { return o.Digest == e.Digest && artifactKind(o) == artifactKind(d) }
			return slices.ContainsFunc(older, same)
		})
		idx.Manifests = append(idx.Manifests, d)
		return nil
	})
}

// artifactKind is the key that is unique per subject: a signed statement replaces the unsigned one.
func artifactKind(d v1.Descriptor) string {
	if p := d.Annotations[AnnotationPredicate]; p != "" {
		return p
	}
	return d.ArtifactType
}

// Referrers returns the attachments of subject, in the order of index.json.
func (l *Layout) Referrers(subject v1.Hash) ([]v1.Descriptor, error) {
	idx, err := l.index()
	if err != nil {
		return nil, err
	}
	return l.referrersIn(idx, subject)
}

func (l *Layout) referrersIn(idx *v1.IndexManifest, subject v1.Hash) ([]v1.Descriptor, error) {
	var found []v1.Descriptor
	for _, d := range idx.Manifests {
		s, err := l.subject(d)
		if err != nil {
			return nil, err
		}
		if s == subject {
			found = append(found, d)
		}
	}
	return once(found), nil
}

// subject returns what an entry of index.json is attached to; the zero Hash if it is not attached
// to anything. It reads only entries without a name: images have names here, and a descriptor does
// not contain the subject.
func (l *Layout) subject(d v1.Descriptor) (v1.Hash, error) {
	if refName(d) != "" || !d.MediaType.IsImage() {
		return v1.Hash{}, nil
	}
	m, err := l.manifest(d.Digest)
	if err != nil || m.Subject == nil {
		return v1.Hash{}, err
	}
	return m.Subject.Digest, nil
}
