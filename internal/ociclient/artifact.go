package ociclient

import (
	"maps"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media types of what is attached to an image or pushed beside it: of the artifact
// and of its layer.
const (
	TypeStatement = "application/vnd.in-toto+json"
	TypeEnvelope  = "application/vnd.dsse.envelope.v1+json"

	TypeEmpty = types.MediaType("application/vnd.oci.empty.v1+json")
)

// Empty is the content of type TypeEmpty, which an artifact has for configuration.
var Empty = []byte("{}")

// AnnotationPredicate says what kind of statement an artifact holds.
const AnnotationPredicate = "in-toto.io/predicate-type"

// ArtifactManifest returns the manifest of a document: artifactType is its layer's
// media type, predicate is "" for what is no statement, and subject is what it is
// attached to, if anything.
func ArtifactManifest(predicate string, config, layer v1.Descriptor, subject *v1.Descriptor, annotations map[string]string) v1.Manifest {
	m := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: string(layer.MediaType),
		Config: config, Layers: []v1.Descriptor{layer}, Subject: subject, Annotations: map[string]string{},
	}
	maps.Copy(m.Annotations, annotations)
	if predicate != "" {
		m.Annotations[AnnotationPredicate] = predicate
		m.Layers[0].Annotations = map[string]string{AnnotationPredicate: predicate}
	}
	return m
}
