package publish

import (
	"bytes"
	"crypto"
	"encoding/json"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/internal/ociclient"
)

// Media types of what is attached to an image; the package comment says why
// these.
const (
	TypeStatement = ociclient.TypeStatement
	TypeEnvelope  = ociclient.TypeEnvelope

	typeEmpty = ociclient.TypeEmpty
)

// AnnotationPredicate says what kind of statement an artifact holds.
const AnnotationPredicate = ociclient.AnnotationPredicate

// An Artifact is one document to attach to a manifest.
type Artifact struct {
	Type        string            // artifactType of the manifest and media type of its layer
	Predicate   string            // predicate type of a statement, "" for anything else
	Data        []byte            // the document
	Annotations map[string]string // of the manifest, besides the predicate type
}

// StatementArtifact makes an artifact of an in-toto Statement, signed with key
// unless that is nil.
func StatementArtifact(statement []byte, key crypto.Signer) (Artifact, error) {
	var s struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
	}
	if err := json.Unmarshal(statement, &s); err != nil {
		return Artifact{}, fmt.Errorf("statement: %w", err)
	}
	if s.Type != certificate.StatementType || s.PredicateType == "" {
		return Artifact{}, fmt.Errorf("not an in-toto Statement v1: _type %q, predicateType %q", s.Type, s.PredicateType)
	}
	if key == nil {
		return Artifact{Type: TypeStatement, Predicate: s.PredicateType, Data: statement}, nil
	}
	env, err := certificate.SignDSSE(TypeStatement, statement, key)
	if err != nil {
		return Artifact{}, fmt.Errorf("signing %s: %w", s.PredicateType, err)
	}
	return Artifact{Type: TypeEnvelope, Predicate: s.PredicateType, Data: env}, nil
}

// Attach stores an artifact as a referrer of subject, which must be among the
// layout's blobs. It replaces an earlier artifact of the same predicate (or,
// without one, of the same type) on the same subject: a layout holds what this
// build says, a registry may hold the history.
func (l *Layout) Attach(subject v1.Hash, a Artifact) (v1.Descriptor, error) {
	sd, err := l.describe(subject)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("attaching to %s: %w", subject, err)
	}
	config, err := l.put(typeEmpty, ociclient.Empty)
	if err != nil {
		return v1.Descriptor{}, err
	}
	layer, err := l.put(types.MediaType(a.Type), a.Data)
	if err != nil {
		return v1.Descriptor{}, err
	}
	m := ociclient.ArtifactManifest(a.Predicate, config, layer, &sd, a.Annotations)
	d, err := l.put(types.OCIManifestSchema1, marshal(m))
	if err != nil {
		return v1.Descriptor{}, err
	}
	d.ArtifactType, d.Annotations = a.Type, m.Annotations
	return d, l.enterReferrer(subject, d)
}

func (l *Layout) put(mt types.MediaType, b []byte) (v1.Descriptor, error) {
	h, size, err := l.WriteBlob(bytes.NewReader(b))
	return v1.Descriptor{MediaType: mt, Digest: h, Size: size}, err
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

// artifactKind is what there is one of on a subject: signing a statement does
// not make it another one.
func artifactKind(d v1.Descriptor) string {
	if p := d.Annotations[AnnotationPredicate]; p != "" {
		return p
	}
	return d.ArtifactType
}

// Referrers returns what is attached to subject, in the order of index.json.
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
	return found, nil
}

// subject returns what an entry of index.json is attached to, the zero Hash
// for one that stands for itself. Only entries without a name are read: an
// image has a name here, and a descriptor does not tell its subject.
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
