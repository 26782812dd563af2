package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/internal/ociclient"
)

// ErrSubject says that a certificate cannot go where it was to go, because of what
// it is about.
var ErrSubject = errors.New("the certificate is not about this")

// Check reports whether a push would be let in: it uploads the two bytes that every
// artifact needs, and with an image looks for it.
func (r *Repository) Check(ctx context.Context) error {
	if _, err := r.describe(ctx); err != nil {
		return err
	}
	return r.upload(ctx, static.NewLayer(ociclient.Empty, ociclient.TypeEmpty))
}

// Push brings a certificate, doc, whose content is st, into the repository: to its
// image, if the Repository names one, else under a tag. It returns the artifact's
// reference by digest. What is there is not sent again, and a push that was broken
// off is completed by the next one.
func (r *Repository) Push(ctx context.Context, doc []byte, st *certificate.Statement) (ref string, err error) {
	if err := r.suits(st); err != nil {
		return "", err
	}
	subject, err := r.describe(ctx)
	if err != nil {
		return "", err
	}
	config := static.NewLayer(ociclient.Empty, ociclient.TypeEmpty)
	layer := static.NewLayer(doc, types.MediaType(mediaType(doc)))
	a, err := newArtifact(config, layer, subject, annotations(st))
	if err != nil {
		return "", err
	}
	at := r.repo.Digest(a.digest.String())
	if subject != nil {
		listed, err := r.listed(ctx, a.digest)
		if err != nil || listed {
			return at.String(), err
		}
	}
	for _, l := range []v1.Layer{config, layer} {
		if err := r.upload(ctx, l); err != nil {
			return "", err
		}
	}
	if subject != nil {
		// The manifest alone would not do: without the referrers API this also
		// enters it in the list that is the subject's fallback tag.
		return at.String(), r.put(ctx, at, a)
	}
	return at.String(), r.tag(ctx, Tag(st), a)
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
		return fmt.Errorf("%w repository: it is no machine's; name its image, %s@sha256:…", ErrSubject, r.repo)
	}
	return nil
}

// describe returns the image's descriptor, nil where there is none to attach to.
func (r *Repository) describe(ctx context.Context) (d *v1.Descriptor, err error) {
	if r.subject == nil {
		return nil, nil
	}
	at := r.repo.Digest(r.subject.String())
	err = do(ctx, r.read, "image "+at.Identifier(), func(ctx context.Context) (err error) {
		head, err := r.pull.Head(ctx, at)
		if err == nil {
			d = &v1.Descriptor{MediaType: head.MediaType, Digest: head.Digest, Size: head.Size}
		}
		return err
	})
	return d, err
}

func (r *Repository) upload(ctx context.Context, l v1.Layer) error {
	h, err := l.Digest()
	if err != nil {
		return err
	}
	return do(ctx, r.write, "blob "+h.String(), func(ctx context.Context) error { return r.push.Upload(ctx, r.repo, l) })
}

func (r *Repository) put(ctx context.Context, ref name.Reference, a *artifact) error {
	return do(ctx, r.write, "manifest "+ref.Identifier(), func(ctx context.Context) error { return r.push.Put(ctx, ref, a) })
}

// tag gives an artifact a tag. Should another certificate have it, of a machine of
// the same name that finished in the same millisecond or signed once more, that one
// keeps it.
func (r *Repository) tag(ctx context.Context, tag string, a *artifact) error {
	for _, t := range []string{tag, tag + "-" + a.digest.Hex[:12]} {
		ref := r.repo.Tag(t)
		var has bool
		var there v1.Hash
		err := do(ctx, r.write, "tag "+t, func(ctx context.Context) error {
			d, err := r.pull.Head(ctx, ref)
			if has, err = found(err); has {
				there = d.Digest
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case !has:
			return r.put(ctx, ref, a)
		case there == a.digest:
			return nil
		}
	}
	return nil // the longer tag has the digest in it
}

// listed reports whether the registry knows an artifact as the image's. That its
// manifest is there would not be enough: a push may have ended between the manifest
// and the fallback tag.
func (r *Repository) listed(ctx context.Context, h v1.Hash) (bool, error) {
	list, err := r.referrers(ctx)
	if err != nil {
		return false, err
	}
	for _, d := range list {
		if d.Digest == h {
			return true, nil
		}
	}
	return false, nil
}

func (r *Repository) referrers(ctx context.Context) (list []v1.Descriptor, err error) {
	err = do(ctx, r.read, "referrers of "+r.subject.String(), func(ctx context.Context) error {
		idx, err := remote.Referrers(r.repo.Digest(r.subject.String()), remote.Reuse(r.pull), remote.WithContext(ctx))
		if err != nil {
			return err
		}
		m, err := idx.IndexManifest()
		if err == nil {
			list = m.Manifests
		}
		return err
	})
	return list, err
}

// An artifact is a manifest as go-containerregistry puts it.
type artifact struct {
	raw    []byte
	digest v1.Hash
}

func newArtifact(config, layer v1.Layer, subject *v1.Descriptor, notes map[string]string) (*artifact, error) {
	c, err := partial.Descriptor(config)
	if err != nil {
		return nil, err
	}
	l, err := partial.Descriptor(layer)
	if err != nil {
		return nil, err
	}
	a := new(artifact)
	if a.raw, err = json.Marshal(ociclient.ArtifactManifest(certificate.PredicateType, *c, *l, subject, notes)); err != nil {
		return nil, err
	}
	a.digest, _, err = v1.SHA256(bytes.NewReader(a.raw))
	return a, err
}

// RawManifest implements remote.Taggable.
func (a *artifact) RawManifest() ([]byte, error) { return a.raw, nil }

// MediaType says what it is, for the same.
func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
