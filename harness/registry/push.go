package registry

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/oci"
)

// ErrSubject says that a certificate cannot go where it was to go, because of what
// it is about.
var ErrSubject = errors.New("the certificate is not about this")

// Check reports whether a push would be let in: it uploads the two bytes that every
// artifact needs, and with an image looks for it.
func (r *Repository) Check(ctx context.Context) error {
	if _, err := r.image(ctx); err != nil {
		return err
	}
	return r.repo.Writable(ctx)
}

// Push brings a certificate, doc, whose content is st, into the repository: to its
// image, if the Repository names one, else under a tag. It returns the artifact's
// reference by digest. What is there is not sent again, and a push that was broken
// off is completed by the next one.
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

// suits reports whether a certificate may go where the Repository says.
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

// image returns the image's descriptor, nil where there is none to attach to.
func (r *Repository) image(ctx context.Context) (*v1.Descriptor, error) {
	if r.subject == nil {
		return nil, nil
	}
	d, err := r.repo.Describe(ctx, *r.subject)
	return &d, err
}

// freeTag returns the tag for an artifact. Should another certificate have it, of a
// machine of the same name that finished in the same millisecond or signed once
// more, that one keeps it, and this one gets a longer tag with its digest. It
// reports whether the artifact has the tag already.
func (r *Repository) freeTag(ctx context.Context, tag string, h v1.Hash) (free string, there bool, err error) {
	d, taken, err := r.repo.Find(ctx, tag)
	if err != nil || !taken || d.Digest == h {
		return tag, taken, err
	}
	free = tag + "-" + h.Hex[:12]
	_, there, err = r.repo.Find(ctx, free)
	return free, there, err
}
