package oci

import (
	"context"
	"fmt"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/internal/oci/ocitest"
)

var (
	amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = v1.Platform{OS: "linux", Architecture: "arm64"}
)

// writeImage stores an image of two layers with fixed content and returns its
// digest.
func writeImage(t *testing.T, l *Layout, p v1.Platform, seed int64) string {
	t.Helper()
	d, err := l.Add(ocitest.Image(t, p, seed))
	if err != nil {
		t.Fatal(err)
	}
	return d.Digest.String()
}

// newTarget makes a layout with one target for two platforms, each with three
// documents attached.
func newTarget(t *testing.T, name string) *Layout {
	t.Helper()
	l, err := Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	addTarget(t, l, name, 1)
	return l
}

func addTarget(t *testing.T, l *Layout, name string, seed int64) v1.Hash {
	t.Helper()
	images := []PlatformImage{{arm64, writeImage(t, l, arm64, seed)}, {amd64, writeImage(t, l, amd64, seed+100)}}
	h, err := l.Assemble(name, images, map[string]string{"org.opencontainers.image.title": name})
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		for _, kind := range []string{"certificate", "sbom", "provenance"} {
			attach(t, l, img.Digest, kind, "application/json")
		}
	}
	return h
}

// attach attaches a document of a kind.
func attach(t *testing.T, l *Layout, subject, kind, mediaType string) v1.Descriptor {
	t.Helper()
	doc := fmt.Sprintf(`{"kind":%q,"about":%q}`, kind, subject)
	d, err := l.Attach(mustHash(t, subject), Artifact{Type: mediaType, Predicate: "https://example.com/" + kind, Data: []byte(doc)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustHash(t *testing.T, s string) v1.Hash {
	t.Helper()
	h, err := v1.NewHash(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// root is the digest that a name of a layout means.
func root(t *testing.T, l *Layout, name string) v1.Hash {
	t.Helper()
	d, err := l.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return d.Digest
}

// push does what a command does with these: the name is resolved, its digest is
// pushed, the tags are set.
func push(ctx context.Context, dir, name, repo string, tags []string, opts Options) (Result, error) {
	l, err := Open(dir)
	if err != nil {
		return Result{}, err
	}
	r, err := OpenRepository(repo, opts)
	if err != nil {
		return Result{}, err
	}
	return pushWith(ctx, r, l, name, tags)
}

func pushWith(ctx context.Context, r *Repository, l *Layout, name string, tags []string) (Result, error) {
	if err := r.CheckTags(tags); err != nil {
		return Result{}, err
	}
	d, err := l.Find(name)
	if err != nil {
		return Result{}, err
	}
	res, err := r.Push(ctx, l, d.Digest)
	if err != nil {
		return res, err
	}
	tagged, err := r.Tag(ctx, l, d.Digest, tags)
	res.Add(tagged)
	return res, err
}
