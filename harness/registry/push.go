package registry

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
)

// ErrSubject says that a certificate cannot be stored at the given place because of its subject.
var ErrSubject = errors.New("the certificate is not about this")

// Check reports whether a push would be accepted: it uploads the two bytes that every artifact
// needs and, if the Repository names an image, looks it up.
func (r *Repository) Check(ctx context.Context) error {
	if _, err := r.image(ctx); err != nil {
		return err
	}
	return r.repo.Writable(ctx)
}

// Push uploads a certificate, doc, with the content st: as a referrer of its image, if the
// Repository names one, or else under a tag. It returns the artifact's reference by digest.
// Existing data is not sent again, and an interrupted push is completed by the next one.
func (r *Repository) Push(ctx context.Context, doc []byte, st *certificate.Statement) (ref string, err error) {
	if err := r.suits(st); err != nil {
		return "", err
	}
	image, err := r.image(ctx)
	if err != nil {
		return "", err
	}
	a := oci.Artifact{Type: attest.MediaType(doc), Predicate: certificate.PredicateType, Data: doc, Annotations: annotations(st)}
	if image != nil {
		ref, _, err = r.repo.Put(ctx, a, image, "")
		return ref, err
	}
	tag, there, err := r.freeTag(ctx, Tag(st), a.Digest())
	if err != nil || there {
		return r.repo.String() + "@" + a.Digest().String(), err
	}
	ref, _, err = r.repo.Put(ctx, a, nil, tag)
	return ref, err
}

// suits reports whether a certificate may be stored in the Repository.
func (r *Repository) suits(st *certificate.Statement) error {
	if r.subject != nil {
		if err := st.Verify(r.subject.String()); err != nil {
			return fmt.Errorf("%s@%s: %w", r.repo, r.subject, err)
		}
		return nil
	}
	if st.Predicate.Node == nil {
		return fmt.Errorf("%w repository: it is not about a machine; name its image, %s@sha256:…", ErrSubject, r.repo)
	}
	return nil
}

// image returns the descriptor of the image to attach to; nil if there is none.
func (r *Repository) image(ctx context.Context) (*v1.Descriptor, error) {
	if r.subject == nil {
		return nil, nil
	}
	d, err := r.repo.Describe(ctx, *r.subject)
	return &d, err
}

// freeTag returns the tag for an artifact. If another certificate already has it (a machine of
// the same name that finished in the same millisecond, or the same certificate signed again),
// this one gets a longer tag with its digest. It also reports whether the artifact already has
// the tag.
func (r *Repository) freeTag(ctx context.Context, tag string, h v1.Hash) (free string, there bool, err error) {
	d, taken, err := r.repo.Find(ctx, tag)
	if err != nil || !taken || d.Digest == h {
		return tag, taken, err
	}
	free = tag + "-" + h.Hex[:12]
	_, there, err = r.repo.Find(ctx, free)
	return free, there, err
}
