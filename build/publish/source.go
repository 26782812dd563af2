package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/assay-hpc/assay/internal/ociclient"
)

// A source is where [Inspect] reads: a layout or a repository. What it returns
// for a digest has that digest.
type source interface {
	resolve(ctx context.Context) (v1.Descriptor, error)
	manifest(ctx context.Context, h v1.Hash) ([]byte, error)
	blob(ctx context.Context, h v1.Hash) ([]byte, error)
	referrers(ctx context.Context, subject v1.Hash) ([]v1.Descriptor, error)
}

func openSource(ref string, opts Options) (source, error) {
	if rest, ok := strings.CutPrefix(ref, "oci:"); ok {
		dir, target := splitLayout(rest)
		l, err := Open(dir)
		return layoutSource{l, target}, err
	}
	client := opts.client()
	r, err := name.ParseReference(ref, client.NameOptions()...)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	pull, err := remote.NewPuller(client.RemoteOptions()...)
	if err != nil {
		return nil, err
	}
	return remoteSource{r, pull, client.Caller(r.Context(), "read from")}, nil
}

// splitLayout splits "DIR", "DIR:TARGET" and "DIR@sha256:…". A directory whose
// own name has a colon is understood when it exists.
func splitLayout(s string) (dir, target string) {
	if dir, digest, ok := strings.Cut(s, "@sha256:"); ok {
		return dir, "sha256:" + digest
	}
	if _, err := os.Stat(s); err == nil {
		return s, ""
	}
	if i := strings.LastIndex(s, ":"); i > 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

type layoutSource struct {
	layout *Layout
	target string
}

func (s layoutSource) resolve(context.Context) (v1.Descriptor, error) { return s.layout.Find(s.target) }

func (s layoutSource) manifest(_ context.Context, h v1.Hash) ([]byte, error) {
	return s.layout.ReadBlob(h)
}

func (s layoutSource) blob(_ context.Context, h v1.Hash) ([]byte, error) { return s.layout.ReadBlob(h) }

func (s layoutSource) referrers(_ context.Context, subject v1.Hash) ([]v1.Descriptor, error) {
	return s.layout.Referrers(subject)
}

type remoteSource struct {
	ref  name.Reference
	pull *remote.Puller
	call ociclient.Caller
}

func (s remoteSource) resolve(ctx context.Context) (v1.Descriptor, error) {
	d, err := s.get(ctx, s.ref)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return d.Descriptor, nil
}

func (s remoteSource) manifest(ctx context.Context, h v1.Hash) ([]byte, error) {
	d, err := s.get(ctx, s.ref.Context().Digest(h.String()))
	if err != nil {
		return nil, err
	}
	return d.Manifest, nil
}

// get reads a manifest; go-containerregistry compares the digest of one that
// was asked for by digest, and computes that of one asked for by tag.
func (s remoteSource) get(ctx context.Context, ref name.Reference) (*remote.Descriptor, error) {
	var d *remote.Descriptor
	err := s.call.Do(ctx, "manifest "+ref.Identifier(), func() (err error) {
		d, err = s.pull.Get(ctx, ref)
		return err
	})
	return d, err
}

func (s remoteSource) blob(ctx context.Context, h v1.Hash) ([]byte, error) {
	var b []byte
	err := s.call.Do(ctx, "blob "+h.String(), func() error {
		layer, err := s.pull.Layer(ctx, s.ref.Context().Digest(h.String()))
		if err != nil {
			return err
		}
		rc, err := layer.Compressed() // verifies the digest while it is read
		if err != nil {
			return err
		}
		defer rc.Close()
		b, err = io.ReadAll(io.LimitReader(rc, maxBlob+1))
		return err
	})
	if err == nil && len(b) > maxBlob {
		err = errors.New("blob " + h.String() + " is too large for a statement")
	}
	return b, err
}

func (s remoteSource) referrers(ctx context.Context, subject v1.Hash) ([]v1.Descriptor, error) {
	var idx *v1.IndexManifest
	err := s.call.Do(ctx, "referrers of "+subject.String(), func() error {
		list, err := remote.Referrers(s.ref.Context().Digest(subject.String()), remote.Reuse(s.pull), remote.WithContext(ctx))
		if err != nil {
			return err
		}
		idx, err = list.IndexManifest()
		return err
	})
	if err != nil {
		return nil, err
	}
	return idx.Manifests, nil
}
