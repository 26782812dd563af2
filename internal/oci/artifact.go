package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TypeEmpty is the media type of an artifact's configuration.
const TypeEmpty = types.MediaType("application/vnd.oci.empty.v1+json")

// Empty is the content of type TypeEmpty, which artifacts use as their configuration.
var Empty = []byte("{}")

// AnnotationPredicate is the annotation with the predicate type of an artifact's statement.
const AnnotationPredicate = "in-toto.io/predicate-type"

// An Artifact is a document to store with images.
type Artifact struct {
	Type        string            // artifactType of the manifest and media type of its layer
	Predicate   string            // predicate type of a statement; "" for other documents
	Data        []byte            // the document
	Annotations map[string]string // of the manifest, in addition to the predicate type
}

// manifest returns the artifact's manifest, as described in the package comment. subject is what it
// is attached to, or nil.
func (a Artifact) manifest(subject *v1.Descriptor) v1.Manifest {
	m := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: a.Type,
		Config: descriptor(TypeEmpty, Empty), Layers: []v1.Descriptor{descriptor(types.MediaType(a.Type), a.Data)},
		Subject: subject, Annotations: map[string]string{},
	}
	maps.Copy(m.Annotations, a.Annotations)
	if a.Predicate != "" {
		m.Annotations[AnnotationPredicate] = a.Predicate
		m.Layers[0].Annotations = map[string]string{AnnotationPredicate: a.Predicate}
	}
	return m
}

// Digest returns the digest of the artifact's manifest without a subject.
func (a Artifact) Digest() v1.Hash {
	return descriptor(types.OCIManifestSchema1, marshal(a.manifest(nil))).Digest
}

func descriptor(mt types.MediaType, b []byte) v1.Descriptor {
	sum := sha256.Sum256(b)
	return v1.Descriptor{MediaType: mt, Digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}, Size: int64(len(b))}
}
