package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A Repository is one repository of a registry. It remembers what the repository has, so that
// layers shared by several images are queried only once. It may be used from several goroutines.
type Repository struct {
	repo        name.Repository
	push        *remote.Pusher
	pull        *remote.Puller
	jobs        int
	write, read Caller
	report      func(Progress)
	settle      time.Duration // how long a list of referrers stays unchanged before it counts as written
	patience    time.Duration // with an answer that is read as a whole
}

// OpenRepository opens a repository by name, such as ghcr.io/owner/assay. It does not connect.
func OpenRepository(repo string, opts Options) (*Repository, error) {
	if err := CheckUser(repo); err != nil {
		return nil, fmt.Errorf("repository: %w", err)
	}
	client := newClient(opts)
	r, err := name.NewRepository(repo, client.NameOptions()...)
	if err != nil {
		if _, terr := name.NewTag(repo, client.NameOptions()...); terr == nil {
			return nil, fmt.Errorf("%q names a tag, which may move: name the repository", repo)
		}
		return nil, fmt.Errorf("repository: %w", err)
	}
	return newRepository(r, client)
}

func newRepository(repo name.Repository, client *Client) (*Repository, error) {
	p := &Repository{repo: repo, jobs: client.opts.Jobs, report: client.opts.Progress, settle: settleTime, patience: answerLimit}
	var err error
	if p.push, err = remote.NewPusher(client.RemoteOptions()...); err != nil {
		return nil, err
	}
	if p.pull, err = remote.NewPuller(client.RemoteOptions()...); err != nil {
		return nil, err
	}
	p.write, p.read = client.Caller(repo, "push to"), client.Caller(repo, "read from")
	if p.jobs <= 0 {
		p.jobs = DefaultJobs
	}
	return p, nil
}

func (p *Repository) String() string { return p.repo.Name() }

// Source returns a Source for a manifest or an index of the repository.
func (p *Repository) Source(root v1.Hash) Source {
	return remoteSource{p.repo.Digest(root.String()), p}
}

// Find returns the descriptor of a tag; ok is false if there is no such tag.
func (p *Repository) Find(ctx context.Context, tag string) (d v1.Descriptor, ok bool, err error) {
	err = p.ask(ctx, "tag "+tag, func(ctx context.Context) error {
		head, err := p.pull.Head(ctx, p.repo.Tag(tag))
		switch {
		case err == nil:
			d, ok = v1.Descriptor{MediaType: head.MediaType, Digest: head.Digest, Size: head.Size}, true
		case Status(err) == http.StatusNotFound:
			return nil
		}
		return err
	})
	return d, ok, err
}

// Describe returns the descriptor of a manifest in the repository.
func (p *Repository) Describe(ctx context.Context, h v1.Hash) (d v1.Descriptor, err error) {
	err = p.ask(ctx, "image "+h.String(), func(ctx context.Context) error {
		head, err := p.pull.Head(ctx, p.repo.Digest(h.String()))
		if err == nil {
			d = v1.Descriptor{MediaType: head.MediaType, Digest: head.Digest, Size: head.Size}
		}
		return err
	})
	return d, err
}

// Get returns the manifest for a tag or a digest.
func (p *Repository) Get(ctx context.Context, ref string) (v1.Descriptor, []byte, error) {
	if h, err := v1.NewHash(ref); err == nil {
		return p.get(ctx, p.repo.Digest(h.String()))
	}
	return p.get(ctx, p.repo.Tag(ref))
}

// get reads a manifest. go-containerregistry checks the digest if the reference is a digest, and
// computes it if the reference is a tag.
func (p *Repository) get(ctx context.Context, ref name.Reference) (v1.Descriptor, []byte, error) {
	d, raw, err := p.fetchRef(ctx, ref)
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	return d.Descriptor, raw, nil
}

// fetch reads a manifest by its digest, with what go-containerregistry needs to read further.
func (p *Repository) fetch(ctx context.Context, h v1.Hash) (*remote.Descriptor, []byte, error) {
	return p.fetchRef(ctx, p.repo.Digest(h.String()))
}

func (p *Repository) fetchRef(ctx context.Context, ref name.Reference) (d *remote.Descriptor, raw []byte, err error) {
	err = p.ask(ctx, "manifest "+ref.Identifier(), func(ctx context.Context) (err error) {
		d, err = p.pull.Get(ctx, ref)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return d, d.Manifest, nil
}

// Tags lists the repository's tags.
func (p *Repository) Tags(ctx context.Context) (tags []string, err error) {
	err = p.ask(ctx, "tags", func(ctx context.Context) error {
		tags = nil
		pages, err := p.pull.Lister(ctx, p.repo)
		if err != nil {
			return err
		}
		for seen := map[string]bool{}; pages.HasNext(); {
			page, err := pages.Next(ctx)
			switch {
			case err != nil:
				return err
			case page.Next != "" && seen[page.Next]:
				return permanentError("the registry's list of tags leads back to a page that it had already")
			case len(tags)+len(page.Tags) > maxTags:
				return permanentError(fmt.Sprintf("there are more than %d, which is all that is read", maxTags))
			}
			seen[page.Next] = true
			tags = append(tags, page.Tags...)
		}
		return nil
	})
	return tags, err
}

// maxTags limits the tags of one repository.
const maxTags = 1_000_000

// answerLimit is how long a registry may take to send a document or a list, with all attempts. One
// that sends a byte now and then never stalls.
const answerLimit = 10 * time.Minute

// ask makes a call whose answer is read as a whole. The context of the call stays valid: descriptors
// read with it what they describe.
func (p *Repository) ask(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(p.patience, func() { cancel(fmt.Errorf("the registry did not send it within %v", p.patience)) })
	defer late.Stop()
	return p.read.Do(ctx, what, func() error { return f(ctx) })
}

// Writable reports whether a push would be permitted: it uploads the two bytes that every artifact
// needs.
func (p *Repository) Writable(ctx context.Context) error {
	return p.upload(ctx, static.NewLayer(Empty, TypeEmpty))
}

// Put stores an artifact: as a referrer of subject; or under the tag, which it moves; or, if both
// are empty, only by its digest. Existing content is not sent again. It returns the artifact's
// reference by digest.
func (p *Repository) Put(ctx context.Context, a Artifact, subject *v1.Descriptor, tag string) (ref string, h v1.Hash, err error) {
	m, err := json.Marshal(a.manifest(subject))
	if err != nil {
		return "", h, err
	}
	if h, _, err = v1.SHA256(bytes.NewReader(m)); err != nil {
		return "", h, err
	}
	at := p.repo.Digest(h.String())
	if subject != nil {
		if listed, err := p.lists(ctx, subject.Digest, h); err != nil || listed {
			return at.String(), h, err
		}
	}
	for _, l := range []v1.Layer{static.NewLayer(Empty, TypeEmpty), static.NewLayer(a.Data, types.MediaType(a.Type))} {
		if err := p.upload(ctx, l); err != nil {
			return "", h, err
		}
	}
	// It is not enough that a referrer's manifest exists: without the referrers API this Put also
	// adds it to the list under the subject's fallback tag.
	var to name.Reference = at
	if subject == nil && tag != "" {
		to = p.repo.Tag(tag)
	}
	man := manifest{desc: v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: h, Size: int64(len(m))}, raw: m}
	err = p.write.Do(ctx, "manifest "+to.Identifier(), func() error {
		// It may be there already: from an earlier run, or by a request whose answer was lost.
		var there bool
		var err error
		if subject != nil {
			there, err = p.lists(ctx, subject.Digest, h)
		} else {
			there, err = p.has(ctx, to, h)
		}
		if there || err != nil {
			return err
		}
		return p.push.Put(ctx, to, man)
	})
	if err == nil && subject != nil {
		err = p.enlist(ctx, subject.Digest, []manifest{man})
	}
	return at.String(), h, err
}

func (p *Repository) upload(ctx context.Context, l v1.Layer) error {
	h, err := l.Digest()
	if err != nil {
		return err
	}
	return p.write.Do(ctx, "blob "+h.String(), func() error { return p.push.Upload(ctx, p.repo, l) })
}

// lists reports whether the registry lists h as a referrer of subject.
func (p *Repository) lists(ctx context.Context, subject, h v1.Hash) (bool, error) {
	list, err := p.referrers(ctx, subject)
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

func (p *Repository) referrers(ctx context.Context, subject v1.Hash) ([]v1.Descriptor, error) {
	idx, err := remote.Referrers(p.repo.Digest(subject.String()), remote.Reuse(p.pull), remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	raw, err := idx.RawManifest()
	if err != nil {
		return nil, err
	}
	m, err := ParseIndex("the list of what is attached to "+subject.String(), raw, types.OCIImageIndex)
	if err != nil {
		return nil, err
	}
	return once(m.Manifests), nil
}

// once removes entries of a list that stand in it before: each is read.
func once(list []v1.Descriptor) []v1.Descriptor {
	seen := map[v1.Hash]bool{}
	return slices.DeleteFunc(list, func(d v1.Descriptor) bool {
		again := seen[d.Digest]
		seen[d.Digest] = true
		return again
	})
}
