package publish

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/internal/ociclient"
)

// DefaultJobs is how many blobs are uploaded at once unless Options say
// otherwise: registries limit requests a client, and one stream seldom fills
// the line.
const DefaultJobs = 4

// Options are for pushing and for inspecting. The zero value is useful.
type Options struct {
	Insecure  bool              // plain HTTP; registries on localhost get it without asking
	Jobs      int               // blobs uploaded at once; 0 means DefaultJobs
	Keychain  authn.Keychain    // nil means Docker's: config.json and credential helpers
	Transport http.RoundTripper // nil means remote.DefaultTransport
	UserAgent string
	Retry     Retry
	Progress  func(Progress) // called from one goroutine at a time
}

// A Retry says how long to insist.
type Retry = ociclient.Retry

// A RemoteError says what a registry refused, or that it cannot be reached.
type RemoteError = ociclient.RemoteError

func (o Options) client() *ociclient.Client {
	return ociclient.New(ociclient.Options{Insecure: o.Insecure, Keychain: o.Keychain, Transport: o.Transport, UserAgent: o.UserAgent, Retry: o.Retry})
}

// A Result says what one push did. A push of what is there already has zeros
// everywhere but in Present and Digest.
type Result struct {
	Digest    v1.Hash `json:"digest"`    // of the target's index
	Blobs     int     `json:"blobs"`     // uploaded
	Bytes     int64   `json:"bytes"`     // of blobs sent, retries included
	Manifests int     `json:"manifests"` // uploaded, referrers included
	Tags      int     `json:"tags"`      // set or moved
	Present   int     `json:"present"`   // blobs, manifests and tags that needed nothing
}

// A Pusher publishes into one repository. It remembers within its life what
// the repository has, so that layers shared by several targets are asked for
// once, and it may be used from several goroutines.
type Pusher struct {
	repo   name.Repository
	remote *remote.Pusher
	puller *remote.Puller
	jobs   int
	call   ociclient.Caller
	report func(Progress)
}

// NewPusher returns a Pusher for a repository such as ghcr.io/owner/assay. It
// does not connect yet.
func NewPusher(repo string, opts Options) (*Pusher, error) {
	client := opts.client()
	r, err := name.NewRepository(repo, client.NameOptions()...)
	if err != nil {
		return nil, fmt.Errorf("repository: %w", err)
	}
	ropts := client.RemoteOptions()
	push, err := remote.NewPusher(ropts...)
	if err != nil {
		return nil, err
	}
	pull, err := remote.NewPuller(ropts...)
	if err != nil {
		return nil, err
	}
	p := &Pusher{repo: r, remote: push, puller: pull, jobs: opts.Jobs, report: opts.Progress}
	p.call = client.Caller(r, "push to")
	if p.jobs <= 0 {
		p.jobs = DefaultJobs
	}
	return p, nil
}

// Push publishes one target of a layout: a Pusher for a single use.
func Push(ctx context.Context, layoutDir, target, repo string, tags []string, opts Options) (Result, error) {
	p, err := NewPusher(repo, opts)
	if err != nil {
		return Result{}, err
	}
	return p.Push(ctx, layoutDir, target, tags)
}

// Push brings a target (as for [Layout.Find]) into the repository: blobs,
// platform manifests, the index, what is attached to them, and when all of
// that is there the tags, in the order given. A push that was interrupted is
// completed by the next one; what the repository has is not sent again.
func (p *Pusher) Push(ctx context.Context, layoutDir, target string, tags []string) (Result, error) {
	refs, err := p.tags(tags)
	if err != nil {
		return Result{}, err
	}
	l, err := Open(layoutDir)
	if err != nil {
		return Result{}, err
	}
	plan, err := l.plan(target)
	if err != nil {
		return Result{}, err
	}
	r := &run{Pusher: p, layout: l, meter: newMeter(plan, p.report)}
	r.result.Digest = plan.root.desc.Digest
	err = r.all(ctx, plan, refs)
	return r.total(), err
}

func (p *Pusher) tags(tags []string) ([]name.Tag, error) {
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

// A run is one push of one target.
type run struct {
	*Pusher
	*meter
	layout *Layout
}

func (r *run) all(ctx context.Context, p *plan, tags []name.Tag) error {
	if err := r.uploads(ctx, p.blobs); err != nil {
		return err
	}
	for _, m := range append(p.images, p.indexes...) {
		if err := r.put(ctx, r.repo.Digest(m.desc.Digest.String()), m); err != nil {
			return err
		}
	}
	// One after the other: without the referrers API each adds itself to its
	// subject's fallback tag, by reading and writing it.
	for _, m := range p.referrers {
		if err := r.attach(ctx, m); err != nil {
			return err
		}
	}
	for _, t := range tags {
		if err := r.put(ctx, t, p.root); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) uploads(ctx context.Context, blobs []v1.Descriptor) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.jobs)
	for _, d := range blobs {
		g.Go(func() error { return r.upload(ctx, d) })
	}
	return g.Wait()
}

func (r *run) upload(ctx context.Context, d v1.Descriptor) error {
	b := &upload{storedBlob: storedBlob{r.layout, d}, meter: r.meter}
	err := r.call.Do(ctx, "blob "+d.Digest.String(), func() error {
		b.restart()
		err := r.remote.Upload(ctx, r.repo, b)
		if b.fault() != nil {
			return b.fault() // the client may have seen only a broken request
		}
		return err
	})
	r.blobDone(b, err)
	return err
}

// put writes a manifest under a digest or a tag unless it is there already.
func (r *run) put(ctx context.Context, ref name.Reference, m manifest) error {
	_, isTag := ref.(name.Tag)
	return r.call.Do(ctx, "manifest "+ref.Identifier(), func() error {
		there, err := r.has(ctx, ref, m.desc.Digest)
		if err != nil {
			return err
		}
		if !there {
			if err := r.remote.Put(ctx, ref, m); err != nil {
				return err
			}
		}
		r.manifestDone(ref.Identifier(), isTag, !there)
		return nil
	})
}

func (r *run) has(ctx context.Context, ref name.Reference, want v1.Hash) (bool, error) {
	d, err := r.puller.Head(ctx, ref)
	switch {
	case err == nil:
		return d.Digest == want, nil
	case ociclient.Status(err) == http.StatusUnauthorized || ociclient.Temporary(err):
		return false, err
	}
	// Not there, or a registry that answers 403 for a repository that the first
	// push will make, or leaves out a header. The upload will tell.
	return false, nil
}

// attach puts a referrer unless the registry lists it. That its manifest is
// there would not be enough: a push may have been killed between the manifest
// and the fallback tag.
func (r *run) attach(ctx context.Context, m manifest) error {
	ref := r.repo.Digest(m.desc.Digest.String())
	return r.call.Do(ctx, "referrer "+ref.Identifier(), func() error {
		listed, err := r.listed(ctx, m)
		if err != nil {
			return err
		}
		if !listed {
			if err := r.remote.Put(ctx, ref, m); err != nil {
				return err
			}
		}
		r.manifestDone(ref.Identifier(), false, !listed)
		return nil
	})
}

func (r *run) listed(ctx context.Context, m manifest) (bool, error) {
	list, err := remote.Referrers(r.repo.Digest(m.subject.String()), remote.Reuse(r.puller), remote.WithContext(ctx))
	if err != nil {
		return false, err
	}
	idx, err := list.IndexManifest()
	if err != nil {
		return false, err
	}
	for _, d := range idx.Manifests {
		if d.Digest == m.desc.Digest {
			return true, nil
		}
	}
	return false, nil
}
