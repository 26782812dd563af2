package oci

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
)

// DefaultJobs is how many blobs are uploaded at once unless Options sets another number: registries
// limit the requests per client, and one stream rarely saturates the link.
const DefaultJobs = 4

// A Result counts the work of one push. If everything is in the repository already, only Present
// and Digest are not zero.
type Result struct {
	Digest    v1.Hash `json:"digest"`    // of what was pushed
	Blobs     int     `json:"blobs"`     // uploaded
	Bytes     int64   `json:"bytes"`     // of blobs sent, retries included
	Manifests int     `json:"manifests"` // uploaded, referrers included
	Tags      int     `json:"tags"`      // set or moved
	Present   int     `json:"present"`   // blobs, manifests and tags that were already there
}

// Add adds the counts of another push.
func (r *Result) Add(o Result) {
	r.Blobs, r.Bytes, r.Manifests, r.Tags, r.Present = r.Blobs+o.Blobs, r.Bytes+o.Bytes, r.Manifests+o.Manifests, r.Tags+o.Tags, r.Present+o.Present
}

// Push copies a manifest of a layout, by its digest, to the repository: blobs, platform manifests,
// the index, and their attachments. An interrupted push is completed by the next one; content that
// the repository has is not sent again. Push does not set tags: [Repository.Tag] does, after the
// caller has verified what it pushed.
func (p *Repository) Push(ctx context.Context, l *Layout, root v1.Hash) (Result, error) {
	plan, err := l.plan(root)
	if err != nil {
		return Result{}, err
	}
	r := &targetPush{Repository: p, layout: l, meter: newMeter(plan, p.report)}
	r.result.Digest = plan.root.desc.Digest
	err = r.all(ctx, plan)
	return r.total(), err
}

// Tag points tags, in their order, to a manifest of the layout that is in the repository already.
func (p *Repository) Tag(ctx context.Context, l *Layout, root v1.Hash, tags []string) (Result, error) {
	refs, err := p.tags(tags)
	if err != nil {
		return Result{}, err
	}
	d, err := l.Describe(root)
	if err != nil {
		return Result{}, err
	}
	raw, err := l.ReadBlob(root)
	if err != nil {
		return Result{}, err
	}
	r := &targetPush{Repository: p, layout: l, meter: newMeter(&plan{root: manifest{desc: d, raw: raw}}, p.report)}
	r.result.Digest = root
	for _, t := range refs {
		if err := r.put(ctx, t, manifest{desc: d, raw: raw}); err != nil {
			return r.total(), err
		}
	}
	return r.total(), nil
}

// CheckTags reports whether all of the given names are valid tags of the repository.
func (p *Repository) CheckTags(tags []string) error {
	_, err := p.tags(tags)
	return err
}

func (p *Repository) tags(tags []string) ([]name.Tag, error) {
	var refs []name.Tag
	for _, t := range tags {
		ref, err := name.NewTag(p.repo.Name()+":"+t, name.StrictValidation)
		if err != nil {
			return nil, fmt.Errorf("tag %q: %w", t, err)
		}
		ref.Repository = p.repo // keeps the registry's scheme
		refs = append(refs, ref)
	}
	return refs, nil
}

// A targetPush is one push of one target.
type targetPush struct {
	*Repository
	*meter
	layout *Layout
}

func (r *targetPush) all(ctx context.Context, p *plan) error {
	if err := r.uploads(ctx, p.blobs); err != nil {
		return err
	}
	for _, m := range append(p.images, p.indexes...) {
		if err := r.put(ctx, r.repo.Digest(m.desc.Digest.String()), m); err != nil {
			return err
		}
	}
	// One after the other: without the referrers API each one adds itself to its subject's fallback
	// tag, by a read and a write.
	for _, m := range p.referrers {
		if err := r.attach(ctx, m); err != nil {
			return err
		}
	}
	bySubject := map[v1.Hash][]manifest{}
	for _, m := range p.referrers {
		bySubject[*m.subject] = append(bySubject[*m.subject], m)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.jobs)
	for subject, list := range bySubject {
		g.Go(func() error { return r.enlist(ctx, subject, list) })
	}
	return g.Wait()
}

func (r *targetPush) uploads(ctx context.Context, blobs []v1.Descriptor) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.jobs)
	for _, d := range blobs {
		g.Go(func() error { return r.upload(ctx, d) })
	}
	return g.Wait()
}

func (r *targetPush) upload(ctx context.Context, d v1.Descriptor) error {
	b := &upload{storedBlob: storedBlob{r.layout, d}, meter: r.meter}
	err := r.write.Do(ctx, "blob "+d.Digest.String(), func() error {
		b.restart()
		err := r.push.Upload(ctx, r.repo, b)
		if b.fault() != nil {
			return b.fault() // the client may have seen only a broken request
		}
		return err
	})
	r.blobDone(b, err)
	return err
}

// put writes a manifest under a digest or a tag unless it is already there.
func (r *targetPush) put(ctx context.Context, ref name.Reference, m manifest) error {
	_, isTag := ref.(name.Tag)
	return r.write.Do(ctx, "manifest "+ref.Identifier(), func() error {
		there, err := r.has(ctx, ref, m.desc.Digest)
		if err != nil {
			return err
		}
		if !there {
			if err := r.push.Put(ctx, ref, m); err != nil {
				return err
			}
		}
		r.manifestDone(ref.Identifier(), isTag, !there)
		return nil
	})
}

func (p *Repository) has(ctx context.Context, ref name.Reference, want v1.Hash) (bool, error) {
	d, err := p.pull.Head(ctx, ref)
	switch {
	case err == nil:
		return d.Digest == want, nil
	case Status(err) == http.StatusUnauthorized || Temporary(err):
		return false, err
	}
	// It is not there, or the registry returns 403 for a repository that the first push creates, or
	// omits a header. The upload will show it.
	return false, nil
}

// attach writes a referrer unless the registry lists it. It is not enough that its manifest is
// there: a push may have been killed between writing the manifest and the fallback tag.
func (r *targetPush) attach(ctx context.Context, m manifest) error {
	ref := r.repo.Digest(m.desc.Digest.String())
	return r.write.Do(ctx, "referrer "+ref.Identifier(), func() error {
		listed, err := r.lists(ctx, *m.subject, m.desc.Digest)
		if err != nil {
			return err
		}
		if !listed {
			if err := r.push.Put(ctx, ref, m); err != nil {
				return err
			}
		}
		r.manifestDone(ref.Identifier(), false, !listed)
		return nil
	})
}
